//! Implements the sixteen hostile clients of the test. Each abuses the server in a different way, and only in
//! hostile rounds.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use serde_json::json;

use super::dice::Dice;
use super::{Phase, Stage};
use crate::http;
use crate::real_engine::words;

/// Longest wait for an answer that need not come.
const GLANCE: Duration = Duration::from_secs(10);
const CHAT: &str = "/v1/chat/completions";

/// A name, and one act.
pub(super) type Way = (&'static str, fn(&mut Offender<'_>));

pub(super) const WAYS: [Way; 16] = [
    ("never reads a large answer", |one| one.never_read("wide", 4)),
    ("never reads what a swap waits for", |one| one.never_read("c", 1)),
    ("never reads the engine's own route", |one| one.never_read_tokens()),
    ("reads a large answer slowly", |one| one.read_slowly()),
    ("sends half a body", |one| one.send_half(8 << 20, 4)),
    ("sends half a head", |one| one.send_half(0, 50)),
    ("connects and is silent", |one| one.be_silent()),
    ("sends a byte at a time", |one| one.dribble()),
    ("pipelines", |one| one.pipeline()),
    ("makes the engine drop the answer", |one| one.drop_answer()),
    ("has the engine log words", |one| one.log_words()),
    ("comes from a foreign origin", |one| one.be_foreign()),
    ("floods with refusals", |one| one.be_refused()),
    ("leaves in mid stream", |one| one.leave()),
    ("sends malformed heads", |one| one.be_malformed()),
    ("resets its connections", |one| one.reset()),
];

/// One hostile client.
pub(super) struct Offender<'a> {
    stage: &'a Stage,
    dice: Dice,
    /// Connections that it keeps open for the round.
    occupied: Vec<TcpStream>,
    acts: u64,
    statuses: BTreeMap<u16, u64>,
}

/// Misbehaves in every hostile round, and lets go of its connections between them.
pub(super) fn attend(stage: &Stage, (name, act): &Way) {
    let mut offender = Offender {
        stage,
        dice: Dice::new(name.len()),
        occupied: Vec::new(),
        acts: 0,
        statuses: BTreeMap::new(),
    };
    loop {
        match stage.phase() {
            Phase::Hostile => {
                act(&mut offender);
                offender.acts += 1;
            }
            Phase::Quiet => {
                offender.occupied.clear();
                std::thread::sleep(Duration::from_millis(50));
            }
            Phase::Over => break,
        }
    }
    drop(offender.occupied);
    stage.tally.acted(name, offender.acts, &offender.statuses);
}

fn chat(model: &str, stream: bool) -> Vec<u8> {
    http::chat_body(model, stream).to_string().into_bytes()
}

fn head(method: &str, path: &str, more: &str, length: usize) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n").into_bytes()
}

fn request(path: &str, more: &str, body: &[u8]) -> Vec<u8> {
    [head("POST", path, more, body.len()), body.to_vec()].concat()
}

impl Offender<'_> {
    /// A connection that has sent `bytes`; errors of a connection are what this client is after.
    fn sent(&mut self, bytes: &[u8]) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(self.stage.address).ok()?;
        stream.set_read_timeout(Some(GLANCE)).ok()?;
        stream.set_write_timeout(Some(GLANCE)).ok()?;
        let _ = stream.write_all(bytes);
        Some(stream)
    }

    fn ask(&mut self, bytes: &[u8]) {
        if let Some(stream) = self.sent(bytes) {
            let answer = http::read(&stream);
            *self.statuses.entry(answer.status).or_default() += 1;
        }
    }

    /// Holds up to `most` connections that have sent `bytes`; the oldest makes room for the next now and
    /// then.
    fn hold(&mut self, bytes: &[u8], most: usize, pause: u64) {
        if self.occupied.len() >= most && self.dice.below(100) == 0 {
            self.occupied.remove(0);
        }
        if self.occupied.len() < most {
            let stream = self.sent(bytes);
            self.occupied.extend(stream);
        }
        self.dice.pause(pause, 2 * pause);
    }

    fn never_read(&mut self, model: &str, most: usize) {
        self.hold(&request(CHAT, "", &chat(model, false)), most, 200);
    }

    fn never_read_tokens(&mut self) {
        let body = json!({"model": "real", "content": "a ".repeat(100_000)}).to_string();
        self.hold(&request("/tokenize", "", body.as_bytes()), 4, 500);
    }

    fn read_slowly(&mut self) {
        self.never_read("wide", 2);
        for stream in &mut self.occupied {
            let _ = stream.read(&mut [0; 512]);
        }
    }

    /// All but the last byte of a body, or of a head where the body has none.
    fn send_half(&mut self, body: usize, most: usize) {
        if self.occupied.len() >= most {
            return self.dice.pause(100, 300);
        }
        let whole = match body {
            0 => head("GET", "/v1/models", "", 0),
            size => request(CHAT, "", &vec![b' '; size]),
        };
        self.hold(&whole[..whole.len() - 1], most, 100);
    }

    /// More connections than the daemon takes.
    fn be_silent(&mut self) {
        if self.occupied.len() > 1100 {
            self.occupied.drain(..100);
        }
        for _ in 0..20 {
            let stream = self.sent(b"");
            self.occupied.extend(stream);
        }
        self.dice.pause(50, 100);
    }

    fn dribble(&mut self) {
        if self.occupied.len() < 20 {
            let stream = self.sent(b"POST /v1/chat/completions HTTP/1.1\r\nX: ");
            self.occupied.extend(stream);
        }
        self.occupied.retain_mut(|stream| stream.write_all(b"x").is_ok());
        self.dice.pause(50, 100);
    }

    /// Many requests in one write; what comes back is read by half of these clients.
    fn pipeline(&mut self) {
        let one = request(CHAT, "", &chat("a", false));
        if let Some(mut stream) = self.sent(&one.repeat(10))
            && self.dice.below(2) == 0
        {
            let answer = http::read_one(&mut stream);
            *self.statuses.entry(answer.status).or_default() += 1;
        }
        self.dice.pause(200, 400);
    }

    /// Deeper than the engine's double answers: it closes the connection instead.
    fn drop_answer(&mut self) {
        let mut body = http::chat_body("a", false);
        body["messages"] = json!([{"role": "user", "content": "deep ".repeat(2000)}]);
        self.ask(&request(CHAT, "", body.to_string().as_bytes()));
        self.dice.pause(50, 150);
    }

    fn log_words(&mut self) {
        let shapes = words::shapes("real");
        let count = u64::try_from(shapes.len()).expect("a few");
        let (path, body) = &shapes[usize::try_from(self.dice.below(count)).expect("a few")];
        self.ask(&request(path, "Connection: close\r\n", body));
        self.dice.pause(200, 400);
    }

    fn be_foreign(&mut self) {
        let foreign = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n";
        let requests = [
            head("GET", "/upstream/d/x.png", foreign, 0),
            head("GET", "/v1/x?model=d", foreign, 0),
            head("GET", "/slots?model=d", foreign, 0),
            head("GET", "/v1/models?reload", foreign, 0),
            request("/api/models/unload", foreign, b"{}"),
            request(CHAT, foreign, &chat("d", false)),
        ];
        for request in &requests {
            self.ask(request);
        }
        self.dice.pause(100, 200);
    }

    /// Refusals that alternate, so that each is news.
    fn be_refused(&mut self) {
        let names = ["gone", "lost", "a\\u0000b"];
        for name in names {
            let body = format!("{{\"model\":\"{name}{}\"}}", self.dice.below(1000));
            self.ask(&request(CHAT, "Connection: close\r\n", body.as_bytes()));
        }
        self.ask(&request(CHAT, "Connection: close\r\n", b"{\"model\":"));
        self.ask(&head("POST", CHAT, "", 999_999_999));
        self.dice.pause(5, 15);
    }

    fn leave(&mut self) {
        if let Some(mut stream) = self.sent(&request(CHAT, "", &chat("b", true))) {
            let _ = stream.read(&mut [0; 64]);
        }
        self.dice.pause(20, 60);
    }

    fn be_malformed(&mut self) {
        let long = "x".repeat(70_000);
        let heads = [
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"
                .to_vec(),
            format!("GET /health HTTP/1.1\r\nX: {long}\r\n\r\n").into_bytes(),
            format!("GET /{long} HTTP/1.1\r\n\r\n").into_bytes(),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: -1\r\n\r\n".to_vec(),
        ];
        let at = usize::try_from(self.dice.below(6)).expect("six");
        if let Some(mut stream) = self.sent(&heads[at]) {
            let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = stream.read(&mut [0; 4096]);
        }
        self.dice.pause(20, 60);
    }

    /// Closes with a reset, at once or in the middle of an answer.
    fn reset(&mut self) {
        if let Some(stream) = self.sent(&request(CHAT, "", &chat("b", true))) {
            self.dice.pause(0, 60);
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        }
        self.dice.pause(10, 40);
    }
}
