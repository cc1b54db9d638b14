//! Copy of a model's files from another host: their list, then each that is missing, part by part.
//!
//! A thread writes the files; it asks this task for each part, so that bytes come over the connections of the fleet.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use plimsoll_config::ConfiguredModel;
use plimsoll_fleet::{FileDigest, RunningCopy};
use plimsoll_hub::{CopyCalls, FileCopy, HostFault, HubError, HubFailure};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::place::{self, FilePlace, MOST_FILES};
use super::{FileList, FleetMember, SharedFiles};
use crate::fleet::offers;
use crate::route::{EngineBody, FILES, HOP, MODEL, ModelService, Rope, StreamSource, Upstream, to_engine};
use crate::runtime::Runtime;
use crate::task::spawn_blocking;

/// Time to connect, and for one answer: the other host lets a part wait for 10 s, and a slow line takes its time.
const CONNECT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for the turn of a part.
const TURN: Duration = Duration::from_secs(3600);
/// Pauses and attempts while the other host reads its files for their digests: half an hour.
const PENDING: Duration = Duration::from_secs(1);
const MOST_PENDING: u32 = 1800;
/// Hosts that are asked, one after the other.
const MOST_SOURCES: usize = 8;
/// Longest list of files.
const LONGEST_LIST: usize = MOST_FILES * 256;

/// A host that has the model's files.
#[derive(Clone, Debug)]
struct CopySource {
    host: String,
    address: String,
    digest: FileDigest,
}

/// Part of a file that the writing thread wants.
struct PartQuestion {
    sha256: String,
    start: u64,
    length: u64,
    size: u64,
    answer: oneshot::Sender<Result<Vec<u8>, HostFault>>,
}

impl FleetMember {
    /// Copies the files of a model from one host after the other, until one has given all.
    pub(super) async fn copy(self: Rc<Self>, model: String) {
        let (Some(files), Some(runtime)) = (&self.files, self.runtime()) else { return };
        let Some(id) = runtime.resolve(&model) else { return drop(files.copying.take()) };
        let entry = runtime.entry(id);
        let mut is_whole = false;
        for source in self.sources(&model) {
            let host = source.host.clone();
            files.copying.replace(Some(RunningCopy { model: model.clone(), from: host.clone(), percent: 0 }));
            self.tell_copy(files);
            match self.copy_from(files, &runtime, &entry, source).await {
                Ok(()) => {
                    tracing::info!("fleet: the files of model '{model}' have come from host '{host}'");
                    is_whole = true;
                    break;
                }
                Err(error) => {
                    tracing::warn!(
                        "fleet: the files of model '{model}' do not come from host '{host}': {error}"
                    );
                }
            }
        }
        files.copying.take();
        runtime.end_copy(&model);
        if is_whole {
            Rc::clone(&runtime).foresee(vec![id]).await;
        } else {
            files.postpone(&model);
        }
        self.tell_copy(files);
    }

    /// Hosts with the model's files, each host's in an order of its own; none if they have different ones.
    fn sources(&self, model: &str) -> Vec<CopySource> {
        let (node, own) = (self.node.borrow(), self.name.to_str().unwrap_or_default());
        let hosts = node.view.hosts.iter().map(|(name, host)| (name, &host.record.body));
        let trusted = hosts.filter(|(name, host)| *name != own && node.view.trusts(name, host));
        let sources = trusted.filter_map(|(name, host)| {
            let digest = node.view.offer(host, model)?.file.clone()?;
            Some(CopySource { host: name.clone(), address: host.address.clone(), digest })
        });
        let mut sources: Vec<CopySource> = sources.collect();
        sources.sort_by_key(|source| offers::fnv(format!("{own}\n{}", source.host).as_bytes()));
        if sources.iter().any(|source| Some(&source.digest) != sources.first().map(|first| &first.digest)) {
            tracing::warn!("fleet: hosts have different files for model '{model}', so none is copied");
            return Vec::new();
        }
        sources.truncate(MOST_SOURCES);
        sources
    }

    async fn copy_from(
        &self,
        files: &SharedFiles,
        runtime: &Rc<Runtime>,
        entry: &ConfiguredModel,
        source: CopySource,
    ) -> Result<(), HubError> {
        let of_host = |fault: HostFault| HubFailure::Host(fault).of(&source.host);
        // A name of a model may be any text; a header carries its bytes.
        let name = HeaderValue::from_bytes(entry.name.as_bytes());
        let name = name.map_err(|_| of_host(HostFault::Refused("no header carries the name".to_owned())))?;
        let lines = vec![(HOP, HeaderValue::from_static(FILES)), (MODEL, name)];
        let peer = self.peer(&source.host, &source.address).with_lines(lines);
        let list = list(&peer, &source.digest).await.map_err(of_host)?;
        let copies = matched(place::places(entry), &list, &source.digest).map_err(of_host)?;
        let (ask, mut asked) = mpsc::channel(1);
        let (host, digest, part) = (source.host.clone(), source.digest.clone(), files.part());
        let total: u64 = copies.iter().map(|(_, copy)| copy.size()).sum();
        let work = spawn_blocking(move || write(&copies, &ask, &host, &digest, part));
        let mut before = 0;
        while let Some(question) = asked.recv().await {
            let CopyNews::Part(question) = question else {
                if let CopyNews::Whole(size) = question {
                    before += size;
                }
                continue;
            };
            runtime.show_copy(&entry.name, before + question.start, total);
            self.tell_progress(files, before + question.start, total);
            let answered = self.part_of(files, &peer, &question).await;
            // The thread has ended.
            let _ = question.answer.send(answered);
        }
        let broken = |error: crate::task::NoAnswer| HubFailure::Broken(error.to_string()).of(&source.host);
        work.await.map_err(broken)?
    }

    /// Notes how far the copy is, and tells the fleet of each tenth.
    fn tell_progress(&self, files: &SharedFiles, done: u64, total: u64) {
        let tenth = u128::from(done) * 10 / u128::from(total.max(1));
        let percent = u8::try_from(tenth.min(10) * 10).unwrap_or_default();
        let mut copying = files.copying.borrow_mut();
        if let Some(running) = copying.as_mut().filter(|running| running.percent != percent) {
            running.percent = percent;
            drop(copying);
            self.tell_copy(files);
        }
    }

    async fn part_of(
        &self,
        files: &SharedFiles,
        peer: &Upstream,
        question: &PartQuestion,
    ) -> Result<Vec<u8>, HostFault> {
        if self.is_out() {
            return Err(HostFault::Refused("this host is no member of the fleet any more".to_owned()));
        }
        if !files.taking.turn(question.length, TURN).await {
            return Err(HostFault::Silent("no turn came".to_owned()));
        }
        let silent = |_| Err(HostFault::Silent(format!("nothing within {} s", PATIENCE.as_secs())));
        let bytes = timeout(PATIENCE, part_from(peer, question)).await.unwrap_or_else(silent)?;
        files.copied.set(files.copied.get().saturating_add(question.length));
        Ok(bytes)
    }
}

/// What the writing thread tells.
enum CopyNews {
    Part(PartQuestion),
    /// A file of this size is there.
    Whole(u64),
}

/// The list of the files, once the other host has their digests.
async fn list(peer: &Upstream, digest: &FileDigest) -> Result<FileList, HostFault> {
    let path = format!("/{}-{}", digest.header, digest.size.get());
    for _ in 0..MOST_PENDING {
        let asked = timeout(PATIENCE, peer.ask(Method::GET, &path, None, LONGEST_LIST)).await;
        let answer = asked.ok().flatten().ok_or_else(|| HostFault::Silent("no list of the files".to_owned()));
        let (status, text) = answer?;
        if status == StatusCode::OK {
            let list: Option<FileList> = serde_json::from_slice(&text).ok();
            return list.ok_or_else(|| HostFault::Lies("no list of files".to_owned()));
        }
        match refusal(status, &text) {
            HostFault::Silent(code) if code == "digest_pending" => sleep(PENDING).await,
            fault => return Err(fault),
        }
    }
    Err(HostFault::Silent("it has read its files for half an hour".to_owned()))
}

/// The fault of a host that answers with such a status.
fn refusal(status: StatusCode, text: &[u8]) -> HostFault {
    let text: Option<Value> = serde_json::from_slice(text).ok();
    let code =
        text.and_then(|text| Some(text["error"]["code"].as_str()?.chars().take(64).collect::<String>()));
    let code = code.unwrap_or_else(|| format!("status {status}"));
    match status {
        StatusCode::OK => HostFault::Lies("the whole file in place of a part".to_owned()),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => HostFault::Silent(code),
        _ => HostFault::Refused(code),
    }
}

/// The files of this host with what the other host says of each. It has to have as many of each kind.
fn matched(
    own: Vec<(FilePlace, std::path::PathBuf)>,
    list: &FileList,
    digest: &FileDigest,
) -> Result<Vec<(FilePlace, FileCopy)>, HostFault> {
    let lies = |text: String| Err(HostFault::Lies(text));
    let own_places: Vec<FilePlace> = own.iter().map(|(place, _)| *place).collect();
    let of_role =
        |places: &mut dyn Iterator<Item = FilePlace>, role| places.filter(|it| it.role == role).count();
    let mut copies = Vec::new();
    for (place, path) in own {
        let (mut here, mut there) = (own_places.iter().copied(), list.files.iter().map(|file| file.place));
        if of_role(&mut here, place.role) != of_role(&mut there, place.role) {
            let text = format!("the model has another number of files there ({:?})", place.role);
            return Err(HostFault::Refused(text));
        }
        let mut found = list.files.iter().filter(|file| file.place == place);
        let (Some(file), None) = (found.next(), found.next()) else {
            return lies(format!("the list has {place:?} not once"));
        };
        if file.size == 0 || (place == FilePlace::FIRST && file.size != digest.size.get()) {
            return lies(format!("a file of {} bytes is listed", file.size));
        }
        match FileCopy::new(path, file.size, &file.sha256) {
            Some(copy) => copies.push((place, copy)),
            None => return lies("a digest is none".to_owned()),
        }
    }
    match copies.is_empty() {
        true => Err(HostFault::Refused("the model names no file".to_owned())),
        false => Ok(copies),
    }
}

/// Writes the files that are missing. Runs on a thread of its own, and ends when the task does that it asks.
fn write(
    copies: &[(FilePlace, FileCopy)],
    ask: &mpsc::Sender<CopyNews>,
    host: &str,
    digest: &FileDigest,
    part: u64,
) -> Result<(), HubError> {
    let (missing, there): (Vec<_>, Vec<_>) =
        copies.iter().cloned().partition(|(_, copy)| place::is_missing(copy.path()));
    for (place, copy) in &there {
        if *place == FilePlace::FIRST {
            let other = |why| HubFailure::WrongFile(why).of(copy.path().display());
            is_offered(copy.path(), digest).map_err(other)?;
        }
        tell_whole(ask, copy);
    }
    let copies: Vec<FileCopy> = missing.iter().map(|(_, copy)| copy.clone()).collect();
    FileCopy::check(&copies)?;
    for (place, copy) in &missing {
        let accept = |path: &Path| if *place == FilePlace::FIRST { is_offered(path, digest) } else { Ok(()) };
        let had_begun = copy.has_begun();
        let run = || {
            let mut fetch = |start, length| fetched(ask, copy, host, (start, length));
            copy.run(part, CopyCalls { fetch: &mut fetch, accept: &accept, goes_on: &|_| !ask.is_closed() })
        };
        let mut copied = run();
        // What had come before may have been of another host, whose fault is not this one's.
        if had_begun && matches!(&copied, Err(error) if matches!(error.failure, HubFailure::WrongFile(_))) {
            copied = run();
        }
        if let Err(HubError { failure: HubFailure::Host(HostFault::Lies(_)), .. }) = &copied {
            copy.discard();
        }
        copied?;
        tell_whole(ask, copy);
    }
    Ok(())
}

fn tell_whole(ask: &mpsc::Sender<CopyNews>, copy: &FileCopy) {
    // The task has ended, and the next question tells.
    let _ = ask.blocking_send(CopyNews::Whole(copy.size()));
}

fn fetched(
    ask: &mpsc::Sender<CopyNews>,
    copy: &FileCopy,
    host: &str,
    (start, length): (u64, u64),
) -> Result<Vec<u8>, HubError> {
    let ended = || HubFailure::Cancelled.of(host);
    let (answer, answered) = oneshot::channel();
    let (sha256, size) = (copy.digest().to_owned(), copy.size());
    let question = PartQuestion { sha256, start, length, size, answer };
    ask.blocking_send(CopyNews::Part(question)).map_err(|_| ended())?;
    answered.blocking_recv().map_err(|_| ended())?.map_err(|fault| HubFailure::Host(fault).of(host))
}

/// Checks that a file is the one of the offer.
fn is_offered(path: &Path, digest: &FileDigest) -> Result<(), String> {
    let found = offers::file_digest(path).map_err(|error| error.to_string())?;
    match found == *digest {
        true => Ok(()),
        false => Err(format!("its header is {}, and {} was offered", found.header, digest.header)),
    }
}

/// One part, which has to be exactly what was asked for.
async fn part_from(peer: &Upstream, question: &PartQuestion) -> Result<Vec<u8>, HostFault> {
    let silent = |error: &dyn std::fmt::Display| HostFault::Silent(error.to_string());
    let (start, end) = (question.start, question.start + question.length - 1);
    let lies = |text: String| Err(HostFault::Lies(text));
    let mut wire = match peer.reuse().await {
        Some(wire) => wire,
        None => peer.connect(CONNECT).await.map_err(|error| silent(&error))?,
    };
    let mut lines = HeaderMap::new();
    let range = HeaderValue::try_from(format!("bytes={start}-{end}")).map_err(|error| silent(&error))?;
    lines.insert(RANGE, range);
    let mut request = Request::new(EngineBody::from(Rope::default()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = Uri::try_from(format!("/{}", question.sha256)).map_err(|error| silent(&error))?;
    *request.headers_mut() = to_engine(&lines, peer, 0);
    let (head, body) = wire.send(request).await.map_err(|error| silent(&error))?.into_parts();
    let mut source = StreamSource { wire, body };
    let most = usize::try_from(question.length).unwrap_or(usize::MAX);
    if head.status != StatusCode::PARTIAL_CONTENT {
        // A whole file in place of a part is not read.
        let is_short = head.status != StatusCode::OK;
        let text = if is_short { source.rest(most).await.ok().flatten() } else { None };
        return Err(refusal(head.status, &text.unwrap_or_default()));
    }
    let range = head.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
    if range != format!("bytes {start}-{end}/{}", question.size) {
        return lies(format!(
            "`{}` for the bytes {start} to {end}",
            range.escape_debug().take(64).collect::<String>()
        ));
    }
    let bytes = source.rest(most).await.map_err(|error| silent(&error))?;
    match bytes.filter(|bytes| bytes.len() == most) {
        Some(bytes) => {
            peer.give_back(source.wire);
            Ok(bytes)
        }
        None => lies("another number of bytes than it says".to_owned()),
    }
}
