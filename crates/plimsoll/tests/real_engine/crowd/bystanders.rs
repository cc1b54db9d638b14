//! Implements the forty-eight well-behaved clients of the test with hostile clients: chats and streams, on
//! new and reused connections.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::dice::Dice;
use super::{Phase, Stage};
use crate::http::{self, Answer};

pub(super) const BYSTANDERS: usize = 48;
const PATIENCE: Duration = Duration::from_secs(120);

/// A client's kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Errand {
    Chat,
    Stream,
    Large,
    Real,
    Swap,
}

impl Errand {
    fn of(number: usize) -> Self {
        match number {
            0..18 => Self::Chat,
            18..36 => Self::Stream,
            36..38 => Self::Large,
            38..46 => Self::Real,
            _ => Self::Swap,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Stream => "stream",
            Self::Large => "2 MB answer",
            Self::Real => "llama.cpp",
            Self::Swap => "swap",
        }
    }

    /// Milliseconds between two requests. Swaps are rare, as they are in service.
    fn pause(self) -> (u64, u64) {
        match self {
            Self::Chat | Self::Stream => (100, 400),
            Self::Large | Self::Real => (400, 900),
            Self::Swap => (2000, 4000),
        }
    }

    fn body(self, turn: u64) -> Value {
        let stream = self == Self::Stream;
        let model = match (self, turn % 2) {
            (Self::Chat | Self::Stream, 0) => "a",
            (Self::Chat | Self::Stream, _) => "b",
            (Self::Large, _) => "wide",
            (Self::Real, _) => "real",
            (Self::Swap, 0) => "c",
            (Self::Swap, _) => "d",
        };
        let mut body = http::chat_body(model, stream);
        body["max_tokens"] = json!(4);
        body
    }
}

/// Asks until the course is over.
pub(super) fn attend(stage: &Stage, number: usize) {
    let errand = Errand::of(number);
    let mut dice = Dice::new(number);
    // Every third client of the small answers keeps its connection.
    let keeps = number.is_multiple_of(3) && matches!(errand, Errand::Chat | Errand::Stream);
    let mut kept = None;
    let mut turn = 0;
    loop {
        let (least, most) = errand.pause();
        dice.pause(least, most);
        let before = stage.phase();
        if before == Phase::Over {
            return;
        }
        turn += 1;
        let (start, body) = (Instant::now(), errand.body(turn));
        let answer = if keeps { on_kept(stage, &mut kept, &body) } else { on_fresh(stage, &body) };
        let was_hostile = before == Phase::Hostile || stage.phase() == Phase::Hostile;
        match lost(errand, &answer) {
            Some(why) => stage.tally.lost(errand, why),
            None => stage.tally.answered(errand, was_hostile, start.elapsed()),
        }
    }
}

/// The reason why an answer is none.
fn lost(errand: Errand, answer: &Answer) -> Option<String> {
    let ends = errand != Errand::Stream || answer.text().ends_with("data: [DONE]\n\n");
    let is_good = answer.status == 200 && answer.whole && ends;
    let text: String = answer.text().chars().take(300).collect();
    (!is_good).then(|| format!("{} whole={} {text}", answer.status, answer.whole))
}

fn send(stage: &Stage, stream: &mut TcpStream, close: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\n{close}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        stage.address,
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}

fn connect(stage: &Stage) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(stage.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn on_fresh(stage: &Stage, body: &Value) -> Answer {
    let sent = connect(stage).and_then(|mut stream| {
        send(stage, &mut stream, "Connection: close\r\n", body)?;
        Ok(stream)
    });
    sent.map_or_else(|_| Answer::default(), |stream| http::read(&stream))
}

/// Asks on the kept connection. One that was closed before the first byte of an answer is replaced, as every
/// HTTP client does.
fn on_kept(stage: &Stage, kept: &mut Option<TcpStream>, body: &Value) -> Answer {
    let mut old = kept.take();
    loop {
        let was_kept = old.is_some();
        let requested = old.take().map_or_else(|| connect(stage), Ok).and_then(|mut stream| {
            send(stage, &mut stream, "", body)?;
            let answer = http::read_one(&mut stream);
            Ok((stream, answer))
        });
        match requested {
            Ok((stream, answer)) if answer.status != 0 => {
                *kept = Some(stream);
                return answer;
            }
            _ if was_kept => stage.tally.reconnected(),
            _ => return Answer::default(),
        }
    }
}
