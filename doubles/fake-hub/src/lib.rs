//! Fake Hugging Face hub: file lists, redirects to a second host, byte ranges, access tokens, and faults on
//! request.
//!
//! A file is a header followed by zeros of any length, so a model of a terabyte takes no disk space. The
//! server records every request, so that tests can count bytes and check where access tokens go.
#![forbid(unsafe_code)]

mod answer;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use plimsoll_model::gguf::DraftHeader;

/// The commit of every repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// File of a repository.
#[derive(Clone, Debug, Default)]
pub struct HostedFile {
    pub head: Arc<[u8]>,
    /// Zeros follow the header up to here.
    pub length: u64,
    pub fault: Fault,
    /// SHA-256 that the hub states; without one a made-up one.
    pub digest: Option<String>,
}

/// Misbehaviour of the server where a file is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    Status(u16),
    /// Redirects to itself.
    Loop,
    /// Redirects to an address that is none.
    BadRedirect,
    /// Sends the whole file, whatever range was asked for.
    IgnoresRanges,
    /// Sends a byte now and then.
    Slow,
    /// Ends the connection in the middle of an answer.
    Truncates,
    /// Ends the connection before an answer.
    Hangs,
    /// States another length of the file than there is.
    Length(u64),
    /// States another range than was asked for.
    OtherRange,
    /// Sends more than the range.
    TooMuch,
    /// Another file with each request.
    Changes,
    /// The same, without an ETag: what follows its first MiB is another byte with each request.
    Untagged,
    /// Answers with noise instead of HTTP.
    Noise,
    /// Wants a token.
    Gated,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// True at the second host, where files are.
    pub elsewhere: bool,
    pub path: String,
    pub range: Option<(u64, u64)>,
    pub authorization: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Repositories, each with its files.
    repositories: BTreeMap<String, BTreeMap<String, HostedFile>>,
    /// The fault of the lists.
    lists: Fault,
    elsewhere: String,
    requests: Mutex<Vec<Request>>,
}

/// A running stand-in. Its threads end with the process.
#[derive(Debug)]
pub struct FakeHub {
    pub address: String,
    shared: Arc<Shared>,
}

impl HostedFile {
    pub fn of(draft: &DraftHeader) -> Self {
        let head: Arc<[u8]> = draft.header().into();
        let length = u64::try_from(head.len()).unwrap_or(0) + draft.data_length().get();
        Self { head, length, ..Self::default() }
    }

    /// A whole file, with its own digest.
    pub fn whole(bytes: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { head: bytes.into(), length, fault: Fault::None, digest: Some(digest) }
    }

    /// The digest that the hub states.
    fn stated(&self) -> String {
        self.digest.clone().unwrap_or_else(|| "ab".repeat(32))
    }

    #[must_use]
    pub fn with(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }
}

impl FakeHub {
    /// Serves repositories, given by `USER/REPO` and path.
    pub fn start(files: Vec<(&str, &str, HostedFile)>) -> std::io::Result<Self> {
        Self::start_with(files, Fault::None)
    }

    /// The same with a fault in the lists.
    pub fn start_with(files: Vec<(&str, &str, HostedFile)>, lists: Fault) -> std::io::Result<Self> {
        let (hub, elsewhere) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let address = format!("http://{}", hub.local_addr()?);
        let mut shared =
            Shared { lists, elsewhere: format!("http://{}", elsewhere.local_addr()?), ..Shared::default() };
        for (repo, path, file) in files {
            shared.repositories.entry(repo.to_owned()).or_default().insert(path.to_owned(), file);
        }
        let shared = Arc::new(shared);
        for (listener, is_elsewhere) in [(hub, false), (elsewhere, true)] {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, is_elsewhere, &shared));
        }
        Ok(Self { address, shared })
    }

    /// The address of a file at the second host, which states no digest.
    pub fn plain(&self, repo: &str, path: &str) -> String {
        format!("{}/{repo}/resolve/{COMMIT}/{path}", self.shared.elsewhere)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of the ranges that were asked for, and their number.
    pub fn requested(&self) -> (u64, usize) {
        let requests = self.requests();
        let ranges = requests.iter().filter(|request| request.elsewhere).filter_map(|request| request.range);
        ranges.fold((0, 0), |(bytes, count), (from, to)| (bytes + to + 1 - from, count + 1))
    }
}

fn accept(listener: &TcpListener, elsewhere: bool, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A client that leaves ends its connection; that is its right.
            let _ = converse(stream, elsewhere, &shared);
        });
    }
}

fn converse(mut stream: TcpStream, elsewhere: bool, shared: &Shared) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let Some(request) = read(&mut lines, elsewhere)? else { return Ok(()) };
        let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request.clone());
        let number = requests.len();
        drop(requests);
        if !answer::answer(&mut stream, &request, shared, number)? {
            return Ok(());
        }
    }
}

fn read(lines: &mut impl BufRead, elsewhere: bool) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request { elsewhere, path, range: None, authorization: None };
    loop {
        line.clear();
        lines.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Ok(Some(request)) };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = Some(value.to_owned()),
            "range" => {
                let range = value.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
                request.range = range.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            }
            _ => {}
        }
    }
}
