//! One request for memory: claim, call of the driver, and the words about a refusal.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll_wire::page::{Refusal, UNLIMITED};
use plimsoll_wire::size::ByteSize;

use crate::cards::CardIndex;
use crate::driver::{self, CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::say::say;
use crate::{captures, pools, settings};

/// Pause between two attempts of a request that waits.
const PAUSE: Duration = Duration::from_millis(20);

/// Requests `size` bytes from the driver through `ask`, within the budget. A refused request is tried again
/// after idle memory of pools is freed, and until `wait` is over, where the options say so.
pub(crate) fn ask(card: CardIndex, size: u64, ask: &mut dyn FnMut() -> CuResult) -> CuResult {
    let mut refusal = match attempt(card, size, ask) {
        Ok(code) => return code,
        Err(refusal) => refusal,
    };
    // Freeing and waiting would invalidate a capture.
    if let Some(options) = settings::options().filter(|_| !captures::capturing()) {
        let end = Instant::now() + Duration::from_secs(options.wait.into());
        if options.reuse && pools::trim(card) > 0 {
            match attempt(card, size, ask) {
                Ok(code) => return code,
                Err(again) => refusal = again,
            }
        }
        // No neighbour can make room for more than the whole.
        while size <= card.budget() && Instant::now() < end {
            std::thread::sleep(PAUSE);
            match attempt(card, size, ask) {
                Ok(code) => return code,
                Err(again) => refusal = again,
            }
        }
    }
    record(card, size, refusal);
    OUT_OF_MEMORY
}

/// One attempt; the error says which limit refused.
pub(crate) fn attempt(
    card: CardIndex,
    size: u64,
    ask: &mut dyn FnMut() -> CuResult,
) -> Result<CuResult, Refusal> {
    if !card.claim(size) {
        return Err(Refusal::Budget);
    }
    match ask() {
        SUCCESS => {
            card.confirm(size);
            Ok(SUCCESS)
        }
        code => {
            card.take_back(size);
            if code == OUT_OF_MEMORY { Err(Refusal::Driver) } else { Ok(code) }
        }
    }
}

/// Records a refusal on the page, and the first one of the process on stderr.
fn record(card: CardIndex, size: u64, refusal: Refusal) {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    card.refuse(refusal, size, driver::free_memory().unwrap_or(0));
    if TIMES.fetch_add(1, Relaxed) > 0 {
        return;
    }
    let why = match refusal {
        Refusal::Driver => "the driver refused the request",
        _ => "the request exceeds the budget",
    };
    let (number, requested) = (card.number(), ByteSize(size));
    let allocated = ByteSize(card.occupied());
    let budget = match card.budget() {
        UNLIMITED => String::new(),
        budget => format!(" of a budget of {}", ByteSize(budget)),
    };
    say!(
        "card {number}: a request for {requested} was refused because {why}; {allocated}{budget} allocated; \
            further refusals are counted"
    );
}
