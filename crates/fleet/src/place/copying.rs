//! Chooses a host to copy a model's files to, when no host that has them has room.
//!
//! DECISION: a host without the files is considered only then. A copy takes minutes, and occupies disk space
//! permanently.
//!
//! DECISION: all routers choose the same host, by a hash of model and host. A random draw, as for seats,
//! would copy a file to several hosts at once.

use plimsoll_base::{Bytes, Reason};

use super::{Offering, SeatDemand, SeatPurpose, with_room};
use crate::records::{HostCopies, HostRecord};
use crate::source::mixed;
use crate::view::FleetView;

/// Next action so that a model can be seated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPlan {
    /// This host is to copy the files.
    Begin { host: String, address: String },
    /// This host copies them.
    Running { host: String, from: String, percent: u8 },
}

impl CopyPlan {
    pub(crate) fn reason(&self) -> Reason {
        let reason = |text: &str, host: &str| Reason::new("copies_file", text).fact("host", host.to_owned());
        match self {
            Self::Begin { host, .. } => reason("the host is to copy the model's files", host),
            Self::Running { host, from, percent } => reason("the host copies the model's files", host)
                .fact("from", from.clone())
                .fact("percent", u64::from(*percent)),
        }
    }
}

/// The host that copies the model's files, or is to copy them; `None` without such a host, or without a
/// source.
pub fn copier(view: &FleetView, demand: &SeatDemand<'_>) -> Option<CopyPlan> {
    if demand.only.is_some() || demand.purpose != SeatPurpose::Wanted {
        return None;
    }
    let copies = || view.copies.iter().map(|(name, kept)| (name, &kept.record.body));
    let running = copies().find_map(|(name, copies)| {
        let running = copies.running.as_ref().filter(|running| running.model == demand.model)?;
        let (host, from) = (name.clone(), running.from.clone());
        Some(CopyPlan::Running { host, from, percent: running.percent })
    });
    if running.is_some() {
        return running;
    }
    let need = need(view, demand.model)?;
    let is_taker = |copies: &HostCopies| copies.running.is_none() && copies.lacks.contains(demand.model);
    let takers = copies().filter(|(_, copies)| is_taker(copies)).filter_map(|(name, _)| {
        let host = view.host(name).filter(|host| view.trusts(name, host) && !view.drains(name))?;
        let has_room = |evicts| with_room(view, demand, (name, host), need, evicts).is_ok();
        // One from which nothing has to leave comes first.
        let leaves = [false, true].into_iter().find(|evicts| has_room(*evicts))?;
        Some((leaves, mixed(&format!("{}\n{name}", demand.model)), name, host))
    });
    let (.., name, host) = takers.min_by_key(|(leaves, hash, name, _)| (*leaves, *hash, *name))?;
    Some(CopyPlan::Begin { host: name.clone(), address: host.address.clone() })
}

/// The most memory that the model takes on a host that has its files; `None` if there is no such host.
///
/// Their need on the copying host is known once they are there.
fn need(view: &FleetView, model: &str) -> Option<Bytes> {
    let offering = Offering::of(view, model);
    let of_host = |name: &String, host: &HostRecord| {
        let offer = offering.by(host).filter(|offer| offer.file.is_some())?;
        view.trusts(name, host).then_some(offer.need)
    };
    view.hosts.iter().filter_map(|(name, host)| of_host(name, &host.record.body)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::FleetKey;
    use crate::records::{Drain, FileDigest, ModelOffer, OfferList, Record, RunningCopy};
    use crate::view::StoreChange;

    /// Two hosts that have the file, and two that lack it, each with 8 GiB.
    fn fleet() -> FleetView {
        let mut view = FleetView::default();
        let file = FileDigest { header: "0".to_owned(), size: Bytes::gib(5) };
        let offer = ModelOffer { file: Some(file), need: Bytes::gib(6) };
        let models = [("m".to_owned(), offer)].into_iter().collect();
        enter(&mut view, FleetKey::Offers("has".to_owned()), Record::new(OfferList { models }).write());
        enter(&mut view, FleetKey::Offers("none".to_owned()), Record::new(OfferList::default()).write());
        for (name, offers) in [("h1", "has"), ("h2", "has"), ("h3", "none"), ("h4", "none")] {
            let host = HostRecord {
                incarnation: format!("{name}-1"),
                machine: name.to_owned(),
                address: format!("{name}:1"),
                version: "1".to_owned(),
                capacity: Bytes::gib(8),
                unseated: Bytes::ZERO,
                offers: offers.to_owned(),
            };
            enter(&mut view, FleetKey::Host(name.to_owned()), Record::new(host).write());
        }
        for name in ["h3", "h4"] {
            lacks(&mut view, name, None);
        }
        view
    }

    fn enter(view: &mut FleetView, key: FleetKey, value: Vec<u8>) {
        let change = StoreChange { key, revision: view.revision + 1, value: Some(value) };
        view.apply(&change);
    }

    fn lacks(view: &mut FleetView, host: &str, running: Option<RunningCopy>) {
        let copies = HostCopies { lacks: ["m".to_owned()].into_iter().collect(), running };
        enter(view, FleetKey::Copies(host.to_owned()), Record::new(copies).write());
    }

    fn drain(view: &mut FleetView, host: &str) {
        enter(view, FleetKey::Drain(host.to_owned()), Record::new(Drain { leave: false }).write());
    }

    fn demand() -> SeatDemand<'static> {
        SeatDemand {
            model: "m",
            only: None,
            near: None,
            purpose: SeatPurpose::Wanted,
            occupied: Bytes::ZERO,
            random: 0,
        }
    }

    fn chosen(view: &FleetView) -> Option<String> {
        match copier(view, &demand())? {
            CopyPlan::Begin { host, .. } | CopyPlan::Running { host, .. } => Some(host),
        }
    }

    #[test]
    fn every_router_chooses_the_same_host_and_one_with_room_first() {
        let mut view = fleet();
        let first = chosen(&view).unwrap();
        let other = if first == "h3" { "h4" } else { "h3" };
        for random in 0..50 {
            let plan = copier(&view, &SeatDemand { random, ..demand() }).unwrap();
            assert_eq!(plan, CopyPlan::Begin { host: first.clone(), address: format!("{first}:1") });
        }
        drain(&mut view, &first);
        assert_eq!(chosen(&view).as_deref(), Some(other));
        view.distrusted.insert(other.to_owned(), format!("{other}-1"));
        assert_eq!(chosen(&view), None);
    }

    #[test]
    fn a_copy_that_runs_is_the_only_one_and_a_host_that_copies_another_takes_none() {
        let mut view = fleet();
        let running =
            |model: &str| RunningCopy { model: model.to_owned(), from: "h1".to_owned(), percent: 30 };
        lacks(&mut view, "h3", Some(running("other")));
        assert_eq!(chosen(&view).as_deref(), Some("h4"));
        lacks(&mut view, "h3", Some(running("m")));
        let plan = copier(&view, &demand()).unwrap();
        let expected = CopyPlan::Running { host: "h3".to_owned(), from: "h1".to_owned(), percent: 30 };
        assert_eq!(plan, expected);
        assert_eq!(plan.reason().code, "copies_file");
    }

    #[test]
    fn nothing_is_copied_without_a_source_or_without_room_or_for_a_host_that_is_named() {
        let (mut full, mut gone, view) = (fleet(), fleet(), fleet());
        for host in full.hosts.values_mut() {
            host.record.body.unseated = Bytes::gib(3);
        }
        assert_eq!(chosen(&full), None);
        gone.hosts.retain(|name, _| name != "h1" && name != "h2");
        assert_eq!(chosen(&gone), None);
        assert_eq!(copier(&view, &SeatDemand { only: Some("h3"), ..demand() }), None);
        assert_eq!(copier(&view, &SeatDemand { purpose: SeatPurpose::Further, ..demand() }), None);
        assert_eq!(copier(&view, &SeatDemand { model: "another", ..demand() }), None);
        assert!(chosen(&view).is_some());
    }
}
