//! Copy of a model's files to a host that lacks them: which host gets them when no host that has them has room.
//!
//! DECISION: a host without the files counts only then. A copy takes minutes, and disk space for good.
//!
//! DECISION: all routers choose the same host, by a hash of model and host. A draw, as for seats, would copy a file to
//! several hosts at once.

use plimsoll_base::{Bytes, Reason};

use super::{Offering, SeatPurpose, SeatWish, with_room};
use crate::records::{HostCopies, HostRecord};
use crate::source::mixed;
use crate::view::FleetView;

/// What is to be done so that a model can be seated.
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

/// The host that copies the model's files, or is to copy them; `None` if there is none, or no host to copy from.
pub fn copier(view: &FleetView, wish: &SeatWish<'_>) -> Option<CopyPlan> {
    if wish.only.is_some() || wish.purpose != SeatPurpose::Wanted {
        return None;
    }
    let copies = || view.copies.iter().map(|(name, kept)| (name, &kept.record.body));
    let running = copies().find_map(|(name, copies)| {
        let running = copies.running.as_ref().filter(|running| running.model == wish.model)?;
        let (host, from) = (name.clone(), running.from.clone());
        Some(CopyPlan::Running { host, from, percent: running.percent })
    });
    if running.is_some() {
        return running;
    }
    let need = need(view, wish.model)?;
    let is_taker = |copies: &HostCopies| copies.running.is_none() && copies.lacks.contains(wish.model);
    let takers = copies().filter(|(_, copies)| is_taker(copies)).filter_map(|(name, _)| {
        let host = view.host(name).filter(|host| view.trusts(name, host) && !view.drains(name))?;
        let has_room = |evicts| with_room(view, wish, (name, host), need, evicts).is_ok();
        // One from which nothing has to leave comes first.
        let leaves = [false, true].into_iter().find(|evicts| has_room(*evicts))?;
        Some((leaves, mixed(&format!("{}\n{name}", wish.model)), name, host))
    });
    let (.., name, host) = takers.min_by_key(|(leaves, hash, name, _)| (*leaves, *hash, *name))?;
    Some(CopyPlan::Begin { host: name.clone(), address: host.address.clone() })
}

/// The most memory that the model takes on a host that has its files; `None` if there is no such host.
///
/// What it takes on the host that copies them is known when they are there.
fn need(view: &FleetView, model: &str) -> Option<Bytes> {
    let offering = Offering::of(view, model);
    let of_host = |name: &String, host: &HostRecord| {
        let offer = offering.by(host).filter(|offer| offer.file.is_some())?;
        view.trusts(name, host).then_some(offer.need)
    };
    view.hosts.iter().filter_map(|(name, host)| of_host(name, &host.record.body)).max()
}
