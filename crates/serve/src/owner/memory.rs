//! What the driver says about memory, on its way to the scheduler.
//!
//! Cards are read by the sampler's thread; here its readings become events. A run's own memory is told apart
//! from strangers' by process group, as every child leads one of its own, and by the pages that guard keeps. Host memory is measured only for runs
//! whose need nobody knew, because resident pages of a shared library are not what a plan predicts.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId, CardKind, Share};
use plimsoll_probe::{Holder, Reading, resident};
use plimsoll_scheduler::{Event, RunId};
use rustix::process::{Pid, getpgid};

use super::Owner;
use super::run::Run;

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);
/// Of what a run took, how much has to be back: drivers keep a little, and others take some meanwhile.
const BACK: (u64, u64) = (3, 4);

/// Reads the cards for as long as the daemon lives.
pub(super) async fn watch(owner: Rc<Owner>) {
    loop {
        look(&owner).await;
        tokio::time::sleep(PERIOD).await;
    }
}

/// Reads the cards once.
pub(super) async fn look(owner: &Owner) {
    let reading = owner.sampler.read().await;
    for (run, used) in owner.measured(&reading) {
        owner.submit(Event::Measured { run, used });
    }
    owner.submit(Event::CardsRead(reading.free.clone()));
    owner.reading.replace(reading);
}

/// Answers the scheduler's AwaitMemory: most of what a run took has to be free on top of what was free.
pub(super) async fn await_return(owner: Rc<Owner>, run: RunId, taken: Vec<Share>) {
    let expected = owner.expected_back(&taken);
    if !expected.is_empty() {
        let reading = owner.sampler.returned(&expected).await;
        owner.submit(Event::CardsRead(reading.free.clone()));
        owner.reading.replace(reading);
    }
    owner.submit(Event::MemoryReturned { run });
}

impl Owner {
    fn expected_back(&self, taken: &[Share]) -> Vec<(CardId, Bytes)> {
        let reading = self.reading.borrow();
        let expected = taken.iter().filter_map(|share| {
            let card = self.terms.cards().find(|card| card.id == share.card)?;
            // The host has the pages back with the process.
            if card.kind == CardKind::Host {
                return None;
            }
            let back = reading.free_on(&share.card)? + share.bytes.scaled(BACK.0, BACK.1);
            Some((share.card.clone(), back.min(card.total)))
        });
        expected.collect()
    }

    fn measured(&self, reading: &Reading) -> Vec<(RunId, Vec<(CardId, Bytes)>)> {
        let state = self.state.borrow();
        let used = state
            .runs
            .values()
            .map(|run| (run.id, self.used_by(run, reading)));
        used.filter(|(_, used)| !used.is_empty()).collect()
    }

    fn used_by(&self, run: &Run, reading: &Reading) -> Vec<(CardId, Bytes)> {
        let Some(group) = run.pid() else { return Vec::new() };
        let own = reading
            .holders
            .iter()
            .filter(|holder| group_of(holder) == Some(group));
        let by_driver = own.filter_map(|holder| Some((holder.card.clone(), holder.used?)));
        let mut used = self.held_by_pages(run);
        for (card, bytes) in summed(by_driver) {
            match used.iter_mut().find(|(other, _)| *other == card) {
                Some((_, most)) => *most = bytes.max(*most),
                None => used.push((card, bytes)),
            }
        }
        used.extend(self.host_use(run, group));
        used
    }

    fn host_use(&self, run: &Run, group: u32) -> Option<(CardId, Bytes)> {
        let placement = run.placement();
        if !placement.alone {
            return None;
        }
        let host = self
            .terms
            .cards()
            .filter(|card| card.kind == CardKind::Host)
            .find(|card| placement.cards().any(|id| *id == card.id))?;
        Some((host.id.clone(), resident(group)?))
    }
}

/// A run of several processes holds a card in several pieces.
fn summed(pieces: impl Iterator<Item = (CardId, Bytes)>) -> BTreeMap<CardId, Bytes> {
    let mut sums = BTreeMap::new();
    for (card, bytes) in pieces {
        *sums.entry(card).or_insert(Bytes::ZERO) += bytes;
    }
    sums
}

fn group_of(holder: &Holder) -> Option<u32> {
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw)?;
    let group = getpgid(Some(pid)).ok()?;
    u32::try_from(group.as_raw_nonzero().get()).ok()
}
