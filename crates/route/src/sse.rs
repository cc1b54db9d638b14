//! Keeps a stream of server-sent events well-formed even if the engine dies in the middle.
//!
//! Only complete events pass to the client, so a final `error` event can follow at any time.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memrchr2_iter;
use serde_json::{Value, json};

use super::problem::HttpProblem;

/// Limit on held bytes. A longer event is passed in pieces; if the engine dies within it, no error event can
/// follow.
const MOST_OCCUPIED: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct EventGuard {
    /// Copied together: an engine may write an event byte by byte, and each piece would keep a read buffer
    /// alive.
    occupied: Vec<u8>,
    /// The two bytes before the next one.
    before: [u8; 2],
    /// Part of an event that is not over has been let through.
    leaking: bool,
}

impl Default for EventGuard {
    fn default() -> Self {
        Self {
            occupied: Vec::new(),
            // The start of a stream counts as the end of an event.
            before: [b'\n'; 2],
            leaking: false,
        }
    }
}

impl EventGuard {
    /// Takes a piece of the stream and appends the bytes that may pass to `pass`.
    pub(crate) fn feed(&mut self, piece: Bytes, pass: &mut VecDeque<Bytes>) {
        let end = last_event_end(self.before, &piece);
        self.remember(&piece);
        match end {
            Some(end) if end == piece.len() => {
                self.release(pass);
                pass.push_back(piece);
                self.leaking = false;
            }
            Some(end) => {
                self.release(pass);
                // A slice of the same buffer, so complete events are not copied.
                pass.push_back(piece.slice(..end));
                self.leaking = false;
                self.hold(&piece[end..]);
            }
            None => self.hold(&piece),
        }
        if self.occupied.len() > MOST_OCCUPIED {
            self.release(pass);
            self.leaking = true;
        }
    }

    /// Lets everything pass: the stream ended as its engine meant it to.
    pub(crate) fn release(&mut self, pass: &mut VecDeque<Bytes>) {
        if !self.occupied.is_empty() {
            pass.push_back(Bytes::from(std::mem::take(&mut self.occupied)));
        }
    }

    /// True if the client is between two events.
    pub(crate) fn can_end(&self) -> bool {
        !self.leaking
    }

    fn hold(&mut self, piece: &[u8]) {
        if self.occupied.capacity() - self.occupied.len() < piece.len() {
            // By a quarter, so that what is reserved stays near what is held.
            self.occupied.reserve_exact(piece.len().max(self.occupied.len() / 4));
        }
        self.occupied.extend_from_slice(piece);
    }

    fn remember(&mut self, piece: &[u8]) {
        self.before = match *piece {
            [] => self.before,
            [last] => [self.before[1], last],
            [.., last_but_one, last] => [last_but_one, last],
        };
    }
}

/// Returns the end of the last event that `piece` completes, after its blank line. Lines end in LF, CR LF or
/// CR.
fn last_event_end(before: [u8; 2], piece: &[u8]) -> Option<usize> {
    let byte = |place: usize, back: usize| match place.checked_sub(back) {
        Some(place) => piece[place],
        None => before[2 + place - back],
    };
    // From the end: an engine writes an event in one piece, so the last byte usually completes one.
    memrchr2_iter(b'\n', b'\r', piece)
        .find(|place| {
            let (last, first) = (byte(*place, 1), byte(*place, 2));
            match piece[*place] {
                b'\n' => last == b'\n' || (last == b'\r' && matches!(first, b'\n' | b'\r')),
                _ => last == b'\r',
            }
        })
        .map(|place| place + 1)
}

/// Format of an error event in an API's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventDialect {
    /// `data: {"error":…}`.
    OpenAi,
    /// `event: error` and `data: {"type":"error","error":…}`, as Anthropic's messages and OpenAI's responses.
    Named,
}

impl EventDialect {
    pub(crate) fn of(path: &str) -> Self {
        match path {
            // The streams of these APIs name every event.
            "/v1/messages" | "/v1/responses" | "/responses" => Self::Named,
            _ => Self::OpenAi,
        }
    }

    /// Returns the last event of a stream that broke.
    pub(crate) fn error_event(self, problem: &HttpProblem) -> Bytes {
        self.error_event_of(&problem.to_json())
    }

    /// Returns the last event for `body`, which has the error under the key `error`.
    pub(crate) fn error_event_of(self, body: &Value) -> Bytes {
        Bytes::from(match self {
            Self::OpenAi => format!("data: {body}\n\n"),
            Self::Named => {
                let body = json!({ "type": "error", "error": body["error"] });
                format!("event: error\ndata: {body}\n\n")
            }
        })
    }

    /// Returns a comment that keeps a waiting client's connection in use.
    pub(crate) fn heartbeat(path: &str, line: &str) -> Bytes {
        // A line break would end the comment.
        let line = line.replace(|c: char| c.is_control(), " ");
        // Anthropic's streams have an event for this, which its clients know.
        let ping = match path {
            "/v1/messages" => "event: ping\ndata: {\"type\": \"ping\"}\n",
            _ => "",
        };
        Bytes::from(format!(": {line}\n{ping}\n"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(guard: &mut EventGuard, piece: &[u8]) -> Vec<u8> {
        let mut pass = VecDeque::new();
        guard.feed(Bytes::copy_from_slice(piece), &mut pass);
        pass.iter().flat_map(|piece| piece.to_vec()).collect()
    }

    #[test]
    fn whole_events_pass_at_once_and_the_rest_waits() {
        let mut guard = EventGuard::default();
        assert_eq!(passed(&mut guard, b"data: 1\n\n"), b"data: 1\n\n");
        assert_eq!(passed(&mut guard, b"data: 2\n\ndata: 3"), b"data: 2\n\n");
        assert_eq!(passed(&mut guard, b"\n"), b"");
        assert_eq!(passed(&mut guard, b"\n: x"), b"data: 3\n\n");
        assert_eq!(passed(&mut guard, b"\r\n\r"), b"");
        assert_eq!(passed(&mut guard, b"\n"), b": x\r\n\r\n");
        assert_eq!(passed(&mut guard, b"a\r\rb"), b"a\r\r");
    }

    #[test]
    fn an_endless_event_is_let_through_and_cannot_be_ended() {
        let mut guard = EventGuard::default();
        let big = vec![b'x'; MOST_OCCUPIED];
        assert_eq!(passed(&mut guard, &big), b"");
        assert_eq!(passed(&mut guard, b"y").len(), MOST_OCCUPIED + 1);
        assert!(!guard.can_end());
        assert_eq!(passed(&mut guard, b"\n\n"), b"\n\n");
        assert!(guard.can_end());
    }

    #[test]
    fn an_event_that_drips_holds_its_own_bytes_and_little_more() {
        let mut guard = EventGuard::default();
        let mut pass = VecDeque::new();
        for _ in 0..100_000 {
            // A slice of a read buffer, as hyper hands it out.
            guard.feed(Bytes::from(vec![b'x'; 8192]).slice(..1), &mut pass);
            assert!(guard.occupied.capacity() <= guard.occupied.len() * 5 / 4 + 64);
        }
        assert!(pass.is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_what_passed_ends_in_a_blank_line(
            text in proptest::collection::vec(proptest::sample::select(b"ab\n\n\r".to_vec()), 0..60),
            size in 1_usize..12,
        ) {
            let mut guard = EventGuard::default();
            let mut out = Vec::new();
            for piece in text.chunks(size) {
                let part = passed(&mut guard, piece);
                out.extend_from_slice(&part);
                let blank = [&b"\n\n"[..], b"\n\r\n", b"\r\r", b"\r\r\n"];
                let after_start = [b"\n\n", out.as_slice()].concat();
                prop_assert!(part.is_empty() || blank.iter().any(|end| after_start.ends_with(end)));
            }
            let mut rest = VecDeque::new();
            guard.release(&mut rest);
            out.extend(rest.iter().flat_map(|piece| piece.to_vec()));
            prop_assert_eq!(out, text);
        }
    }
}
