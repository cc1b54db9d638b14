//! Chooses the host that copies a model's files from another host, and tracks the copies that this host
//! makes.
//!
//! A copy is ordered for requests whose model no host can take.

use std::time::Duration;

use plimsoll_base::Reason;

use super::{FleetEffect, FleetNode};
use crate::claim::Write;
use crate::keys::FleetKey;
use crate::place::{CopyPlan, SeatDemand, copier};
use crate::records::{HostCopies, Record};

/// Time for which all hosts with the file have to be busy before it is copied to another: most are busy for
/// less.
const BUSY: Duration = Duration::from_secs(10);
/// Time between two orders of one copy: the host tells the store that it has begun within that.
const AGAIN: Duration = Duration::from_secs(5);

/// Copy that requests for one model wait for.
#[derive(Debug, Default)]
pub(super) struct WantedCopy {
    /// Since when no host with the file has room.
    since: Option<Duration>,
    ordered: Option<Duration>,
}

impl FleetNode {
    /// Orders a copy of the model's files where that helps. Gives the reason of the refusal, with the
    /// progress of the copy.
    pub(super) fn copy_instead(
        &self,
        now: Duration,
        demand: &SeatDemand<'_>,
        wanted: &mut WantedCopy,
        reason: Reason,
        effects: &mut Vec<FleetEffect>,
    ) -> Reason {
        // Hosts that disagree about the file have none to copy.
        if reason.code != "no_host" {
            return reason;
        }
        let since = *wanted.since.get_or_insert(now);
        let is_busy = reason.because.iter().any(|host| host.code == "host_full");
        if is_busy && now < since + BUSY {
            return reason;
        }
        let Some(plan) = copier(&self.view, demand) else { return reason };
        if let CopyPlan::Begin { host, address } = &plan
            && wanted.ordered.is_none_or(|ordered| now >= ordered + AGAIN)
        {
            wanted.ordered = Some(now);
            let (model, host, address) = (demand.model.to_owned(), host.clone(), address.clone());
            effects.push(FleetEffect::Copy { model, host, address });
        }
        reason.because(plan.reason())
    }

    /// Takes what this host lacks and copies.
    pub(super) fn copies_changed(&mut self, copies: HostCopies) {
        if self.copies.as_ref() != Some(&copies) {
            self.copies = Some(copies);
            self.registration.state_changed();
        }
    }

    /// The record of this host's copies, which goes with that of its state; `None` for a host that has never
    /// lacked a file.
    pub(super) fn copies_record(&self) -> Option<Write> {
        let value = Record::new(self.copies.clone()?).write();
        Some(Write::put(FleetKey::Copies(self.settings.name.clone()), value).leased())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;

    use super::*;
    use crate::node::{Affinity, FleetEvent, NodeSettings, TransactionOutcome};
    use crate::records::{
        Drain, FileDigest, HostRecord, ModelOffer, OfferList, RunningCopy, Seat, SeatCause,
    };
    use crate::view::StoreChange;

    const SECOND: Duration = Duration::from_secs(1);

    fn host(name: &str, offers: &str) -> HostRecord {
        HostRecord {
            incarnation: format!("{name}-1"),
            machine: name.to_owned(),
            address: format!("{name}:1"),
            version: "1".to_owned(),
            capacity: Bytes::gib(8),
            unseated: Bytes::ZERO,
            offers: offers.to_owned(),
        }
    }

    fn change(key: FleetKey, value: Vec<u8>) -> StoreChange {
        StoreChange { key, revision: 1, value: Some(value) }
    }

    /// A store in which h1 has the file, and h2 lacks it. On h1 another model takes so much of 8 GiB.
    fn records(taken: u64) -> Vec<StoreChange> {
        let file = Some(FileDigest { header: "0".to_owned(), size: Bytes::gib(1) });
        let models = [("m".to_owned(), ModelOffer { file, need: Bytes::gib(6) })].into_iter().collect();
        let copies = HostCopies { lacks: ["m".to_owned()].into_iter().collect(), running: None };
        let named = |name: &str, offers: &str| {
            change(FleetKey::Host(name.to_owned()), Record::new(host(name, offers)).write())
        };
        let (host, incarnation, nonce) = ("h1".to_owned(), "h1-1".to_owned(), String::new());
        let (need, cause, evicts) = (Bytes::gib(taken), SeatCause::Wanted, Vec::new());
        let seat = Seat { host, incarnation, need, nonce, cause, evicts };
        vec![
            change(FleetKey::Seat { model: "other".to_owned(), number: 0 }, Record::new(seat).write()),
            change(FleetKey::Offers("o".to_owned()), Record::new(OfferList { models }).write()),
            named("h1", "o"),
            named("h2", "n"),
            change(FleetKey::Copies("h2".to_owned()), Record::new(copies).write()),
        ]
    }

    fn node(records: Vec<StoreChange>) -> FleetNode {
        let mut node = FleetNode::new(NodeSettings {
            name: "router".to_owned(),
            life: "r".to_owned(),
            machine: "r".to_owned(),
            address: "router:1".to_owned(),
            version: "1".to_owned(),
            capacity: Bytes::ZERO,
            seed: 1,
            wait: 60 * SECOND,
            watchers: 300,
        });
        node.on_event(Duration::ZERO, FleetEvent::Read { revision: 1, records }, &mut Vec::new());
        node
    }

    /// Times of the orders to copy within so many seconds after a request, and reasons of refusals.
    fn orders(node: &mut FleetNode, seconds: u32) -> (Vec<u64>, Vec<Reason>) {
        let (mut orders, mut refusals) = (Vec::new(), Vec::new());
        let wanted = FleetEvent::Wanted { request: 1, model: "m".to_owned(), affinity: Affinity::default() };
        let mut event = Some(wanted);
        for half in 0..=seconds * 2 {
            let (now, mut effects) = (SECOND / 2 * half, Vec::new());
            node.on_event(now, event.take().unwrap_or(FleetEvent::Tick), &mut effects);
            for effect in effects {
                match effect {
                    FleetEffect::Copy { model, host, address } => {
                        assert_eq!((&*model, &*host, &*address), ("m", "h2", "h2:1"));
                        orders.push(now.as_secs());
                    }
                    FleetEffect::Refuse { reason, .. } => refusals.push(reason),
                    _ => {}
                }
            }
        }
        (orders, refusals)
    }

    #[test]
    fn a_file_is_copied_when_its_hosts_were_busy_for_ten_seconds_and_a_request_waits_for_that() {
        let (orders, refusals) = orders(&mut node(records(4)), 30);
        assert_eq!(orders, [10, 15, 20, 25, 30], "h1 has 4 GiB free of 6");
        assert!(refusals.is_empty(), "{refusals:?}");
    }

    #[test]
    fn a_file_of_hosts_that_drain_is_copied_at_once_and_the_refusal_says_how_far_it_is() {
        let mut records = records(0);
        let drain = Record::new(Drain { leave: false }).write();
        records.push(change(FleetKey::Drain("h1".to_owned()), drain));
        let mut node = node(records);
        assert_eq!(orders(&mut node, 3).0, [0]);
        let running = RunningCopy { model: "m".to_owned(), from: "h1".to_owned(), percent: 40 };
        let copies = HostCopies { running: Some(running), ..HostCopies::default() };
        let reported = change(FleetKey::Copies("h2".to_owned()), Record::new(copies).write());
        node.on_event(
            4 * SECOND,
            FleetEvent::Changed(vec![StoreChange { revision: 2, ..reported }]),
            &mut Vec::new(),
        );
        let mut effects = Vec::new();
        node.on_event(61 * SECOND, FleetEvent::Tick, &mut effects);
        let refused = effects.iter().find_map(|effect| match effect {
            FleetEffect::Refuse { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        let reasons = refused.expect("the wait is over").because;
        let copies = reasons.iter().find(|reason| reason.code == "copies_file");
        assert!(format!("{copies:?}").contains("40"), "{reasons:?}");
    }

    #[test]
    fn a_file_is_not_copied_while_its_host_has_room() {
        let (orders, refusals) = orders(&mut node(records(0)), 5);
        assert!(orders.is_empty() && refusals.is_empty());
    }

    #[test]
    fn missing_copies_of_a_host_are_published_and_cleared_in_the_store() {
        let mut node = node(records(0));
        let lacks = HostCopies { lacks: ["m".to_owned()].into_iter().collect(), running: None };
        let mut reported = Vec::new();
        for (at, event) in [
            FleetEvent::Offers { digest: "d".to_owned(), list: OfferList::default() },
            FleetEvent::Copies(lacks.clone()),
            FleetEvent::Tick,
            FleetEvent::Copies(HostCopies::default()),
            FleetEvent::Tick,
            FleetEvent::Tick,
        ]
        .into_iter()
        .enumerate()
        {
            let now = SECOND * u32::try_from(at).unwrap();
            let mut events = vec![event];
            while let Some(event) = events.pop() {
                let mut effects = Vec::new();
                node.on_event(now, event, &mut effects);
                for effect in effects {
                    let FleetEffect::Transact { operation, transaction } = effect else { continue };
                    let copies = |write: &Write| write.key == FleetKey::Copies("router".to_owned());
                    let values = transaction.writes.iter().filter(|write| copies(write));
                    reported.extend(
                        values.map(|write| Record::<HostCopies>::read(write.value.as_ref().unwrap())),
                    );
                    let outcome = TransactionOutcome::Applied(10 + operation);
                    events.push(FleetEvent::Transacted { operation, outcome });
                }
            }
        }
        let reported: Vec<HostCopies> = reported.into_iter().map(|record| record.unwrap().body).collect();
        assert_eq!(reported, [lacks, HostCopies::default()]);
    }
}
