//! Asking the daemon to make room.
//!
//! A plea is a number on the page that grows by one, with what is needed beside it; the daemon writes the number back once it
//! has tried, whatever came of it. Two threads that plead at once ask for the later one's bytes and are both answered by it. A
//! daemon that did not answer once is not waited for again, until it answers.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use plimsoll_wire::env;

use crate::account::{CardIndex, page};
use crate::arm;
use crate::say::say;
use crate::text::Size;

/// How long a daemon may take where the program is not to wait longer anyway.
const ANSWER: Duration = Duration::from_secs(2);
/// How long one may take that was silent before.
const SILENT: Duration = Duration::from_millis(20);

static WAS_SILENT: AtomicBool = AtomicBool::new(false);

/// One plea.
#[derive(Debug)]
pub(super) struct Plea {
    number: u64,
}

/// Whether anybody can see the page.
pub(super) fn is_heard() -> bool {
    arm::variable(env::GUARD_PAGES).is_some()
}

pub(super) fn make(card: CardIndex, bytes: u64) -> Plea {
    let page = page();
    page.plea_bytes.store(bytes, Relaxed);
    page.plea_card.store(card.number().into(), Relaxed);
    let number = page.plea.fetch_add(1, Release) + 1;
    if number == 1 {
        say!(
            "card {}: asking the daemon to make room for {}",
            card.number(),
            Size(bytes)
        );
    }
    Plea { number }
}

impl Plea {
    pub(super) fn is_answered(&self) -> bool {
        page().plea_answered.load(Acquire) >= self.number
    }

    /// How long to wait in all.
    pub(super) fn patience(&self, wait: Duration) -> Duration {
        let answer = match (is_heard(), WAS_SILENT.load(Relaxed)) {
            (false, _) => Duration::ZERO,
            (true, true) => SILENT,
            (true, false) => ANSWER,
        };
        wait.max(answer)
    }
}

impl Drop for Plea {
    fn drop(&mut self) {
        WAS_SILENT.store(!self.is_answered(), Relaxed);
    }
}

/// Sleeps; a signal may end it sooner.
pub(super) fn sleep(nap: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(nap.as_secs()).unwrap_or(0),
        tv_nsec: libc::c_long::from(i32::try_from(nap.subsec_nanos()).unwrap_or(0)),
    };
    // SAFETY: the time is ours; the rest of an interrupted sleep is not wanted.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) };
}
