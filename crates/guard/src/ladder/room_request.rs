//! Asks the daemon to make room on a card, through this process's shared-memory file.
//!
//! Guard writes the needed bytes and a request number to the page. The daemon writes the number back after
//! its attempt.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use plimsoll_wire::env;
use plimsoll_wire::size::ByteSize;

use crate::process;
use crate::say::say;
use crate::state::{CardIndex, page};

/// Time for a daemon's answer where `wait` is shorter.
const ANSWER: Duration = Duration::from_secs(2);
/// Time for a daemon that did not answer before.
const SILENT: Duration = Duration::from_millis(20);

static WAS_SILENT: AtomicBool = AtomicBool::new(false);

/// A request to the daemon that is not answered yet.
#[derive(Debug)]
pub(super) struct RoomRequest {
    number: u64,
}

/// True if the page is a file that a daemon can read.
pub(super) fn is_heard() -> bool {
    process::variable(env::GUARD_PAGES).is_some()
}

/// Asks for so many bytes on a card.
pub(super) fn make(card: CardIndex, bytes: u64) -> RoomRequest {
    let page = page();
    page.room_request_bytes.store(bytes, Relaxed);
    page.room_request_card.store(card.number().into(), Relaxed);
    // Release: a daemon that sees the number sees the bytes and the card.
    let number = page.room_request.fetch_add(1, Release) + 1;
    if number == 1 {
        say!("card {}: plimsoll serve was asked to make room for {}", card.number(), ByteSize(bytes));
    }
    RoomRequest { number }
}

impl RoomRequest {
    pub(super) fn is_answered(&self) -> bool {
        page().room_request_answered.load(Acquire) >= self.number
    }

    /// Time to wait in all.
    pub(super) fn patience(&self, wait: Duration) -> Duration {
        let answer = match (is_heard(), WAS_SILENT.load(Relaxed)) {
            (false, _) => Duration::ZERO,
            (true, true) => SILENT,
            (true, false) => ANSWER,
        };
        wait.max(answer)
    }
}

impl Drop for RoomRequest {
    fn drop(&mut self) {
        WAS_SILENT.store(!self.is_answered(), Relaxed);
    }
}
