//! Limits an engine's host memory, so that the kernel kills this engine instead of another program.

use plimsoll_base::{Bytes, Placement, Share};
use plimsoll_cards::HOST_CARD;
use plimsoll_process::Launcher;

use super::RuntimeSettings;
use super::run::EngineRun;

/// Margin above the claim: what no plan counts, such as libraries, log lines and prompts in flight.
const MARGIN: (u64, u64) = (1, 4);
const LEAST_MARGIN: Bytes = Bytes::gib(1);

/// The bound of a run when it starts; `None` where the host's memory is not among the cards.
pub(super) fn host_bound(settings: &RuntimeSettings, placement: &Placement, files: Bytes) -> Option<Bytes> {
    let host = settings.cards().find(|card| card.id.as_str() == HOST_CARD)?;
    bound(placement.on(&host.id), files)
}

// DECISION: a bound is there for an engine that runs away, and must never end one that keeps to its claim.
// The kernel counts the page cache of the files that an engine reads, so their size is added. Otherwise a
// load would evict its own pages, and the next load would read the disk again.
fn bound(claim: Bytes, files: Bytes) -> Option<Bytes> {
    let margin = claim.scaled(MARGIN.0, MARGIN.1).max(LEAST_MARGIN);
    (!claim.is_zero()).then(|| claim + margin + files)
}

/// Lets the bound of a run's host memory follow its claim.
pub(super) fn follow_host_claim(launcher: &Launcher, run: &EngineRun, share: &Share) {
    if share.card.as_str() == HOST_CARD
        && let (Some(pid), Some(memory)) = (run.pid(), bound(share.bytes, run.file_bytes.get()))
    {
        launcher.bound_memory(pid, memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_has_room_for_the_claim_the_files_and_a_margin() {
        let gib = Bytes::gib;
        for (claim, files, expected) in [
            (Bytes::ZERO, gib(30), None),
            (Bytes::mib(1), Bytes::ZERO, Some(Bytes::mib(1025))),
            (gib(2), gib(10), Some(gib(13))),
            (gib(40), gib(40), Some(gib(90))),
        ] {
            assert_eq!(bound(claim, files), expected);
        }
        assert!(bound(Bytes::MAX, Bytes::MAX).is_some(), "no figure overflows");
    }
}
