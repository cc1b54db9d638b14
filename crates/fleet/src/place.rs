//! Placement over hosts: which host is to take a model that has no seat.
//!
//! DECISION: the host is drawn from the best sixteen. Routers that all choose the best one lose all but one of their
//! transactions when a rack dies; with sixteen they lose a tenth (simulated for 10 000 hosts).
//!
//! DECISION: a host's memory is one sum over its cards. The host itself places the model on its cards and may refuse
//! the seat; a finer figure here would be a second ledger.

use plimsoll_base::{Bytes, Reason};

use super::keys::FleetKey;
use super::records::{FileDigest, HostRecord, SeatCause};
use super::view::FleetView;

/// Number of hosts from which one is drawn.
const BEST: usize = 16;

/// The wish to seat a model.
#[derive(Clone, Copy, Debug)]
pub struct SeatWish<'a> {
    pub model: &'a str,
    /// The only host that is wanted, if an operator named one.
    pub only: Option<&'a str>,
    pub cause: SeatCause,
    /// Memory of the model's own run on that host, which is registered as held without a seat.
    pub held: Bytes,
    /// Any number: it draws one of the best hosts.
    pub random: u64,
}

/// A host that takes a model, and what leaves for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatPlan {
    pub host: String,
    pub incarnation: String,
    pub need: Bytes,
    pub cause: SeatCause,
    /// Models that leave, with the tokens of their seats.
    pub evicts: Vec<(String, u64)>,
}

/// A host that could take the model. Less is better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate<'a> {
    /// Memory of models that leave.
    evicted: Bytes,
    /// Memory that is left: the tightest fit keeps room for larger models.
    left: Bytes,
    host: &'a str,
    evicts: Vec<(String, u64)>,
}

/// Chooses a host, or says of each host why it cannot take the model.
pub fn place(view: &FleetView, wish: &SeatWish<'_>) -> Result<SeatPlan, Reason> {
    if wish.only.is_none() {
        agree(view, wish.model)?;
    }
    let free = view.free();
    let mut candidates = Vec::new();
    let mut refusals = Vec::new();
    for (name, host) in &view.hosts {
        let host = &host.record.body;
        match consider(view, wish, name, host, free.get(name.as_str()).copied().unwrap_or_default()) {
            Ok(candidate) => candidates.push(candidate),
            Err(reason) => refusals.push(reason.fact("host", name.clone())),
        }
    }
    candidates.sort();
    // A host that would evict is not drawn while another needs not.
    let best = candidates.first().map(|best| best.evicted.is_zero());
    let equal = candidates.iter().take_while(|it| Some(it.evicted.is_zero()) == best).count();
    let draws = u64::try_from(equal.min(BEST)).unwrap_or(1).max(1);
    let drawn = usize::try_from(wish.random % draws).unwrap_or_default();
    let chosen = candidates.into_iter().nth(drawn);
    let host = chosen.as_ref().and_then(|chosen| view.host(chosen.host));
    let (Some(chosen), Some(host)) = (chosen, host) else {
        let text = format!("no host can take model '{}'", wish.model);
        return Err(Reason::new("no_host", text).because_all(refusals));
    };
    let need = view.offer(host, wish.model).map(|offer| offer.need).unwrap_or_default();
    let (name, incarnation) = (chosen.host.to_owned(), host.incarnation.clone());
    Ok(SeatPlan { host: name, incarnation, need, cause: wish.cause, evicts: chosen.evicts })
}

/// Refuses a name under which hosts have different files: the answer would depend on the host.
fn agree(view: &FleetView, model: &str) -> Result<(), Reason> {
    let offers = view.hosts.iter().filter_map(|(name, host)| {
        let file = view.offer(&host.record.body, model)?.file.as_ref()?;
        Some((name, file))
    });
    let offers: Vec<_> = offers.collect();
    let Some((_, first)) = offers.first() else { return Ok(()) };
    if offers.iter().all(|(_, file)| file == first) {
        return Ok(());
    }
    let of_host = |(name, file): &(&String, &FileDigest)| {
        let text = format!("its file has {} and the header {}", file.size, file.header);
        Reason::new("model_file", text).fact("host", (*name).clone())
    };
    let text = format!("hosts have different files for model '{model}'");
    Err(Reason::new("ambiguous_model", text).because_all(offers.iter().map(of_host)))
}

fn consider<'a>(
    view: &FleetView,
    wish: &SeatWish<'_>,
    name: &'a str,
    host: &'a HostRecord,
    free: Bytes,
) -> Result<Candidate<'a>, Reason> {
    if wish.only.is_some_and(|only| only != name) {
        return Err(Reason::new("other_host", "another host is named"));
    }
    if view.drains.contains_key(name) || view.unreadable.contains_key(&FleetKey::Drain(name.to_owned())) {
        return Err(Reason::new("host_drains", "the host takes no more models"));
    }
    let offer = view.offer(host, wish.model);
    let offer = offer.ok_or_else(|| Reason::new("not_offered", "the host does not offer the model"))?;
    let (free, unseated) = (free + wish.held, host.unseated.saturating_sub(wish.held));
    if offer.need > host.capacity.saturating_sub(unseated) {
        let text = "the model is larger than the host's memory";
        return Err(Reason::new("too_large", text).fact("need", offer.need).fact("capacity", host.capacity));
    }
    let (evicts, evicted) = match offer.need <= free {
        true => (Vec::new(), Bytes::ZERO),
        false => {
            evictions(view, wish.model, name, host, offer.need.saturating_sub(free)).ok_or_else(|| {
                let text = "the host's models are busy";
                Reason::new("host_full", text).fact("need", offer.need).fact("free", free)
            })?
        }
    };
    let left = (free + evicted).saturating_sub(offer.need);
    Ok(Candidate { evicted, left, host: name, evicts })
}

/// Idle models of the host that together free `missing`; `None` if there are too few.
fn evictions(
    view: &FleetView,
    model: &str,
    name: &str,
    host: &HostRecord,
    missing: Bytes,
) -> Option<(Vec<(String, u64)>, Bytes)> {
    let runs = view.states.get(name).map(|state| &state.record.body.runs)?;
    let is_idle = |other: &str| runs.get(other).is_some_and(|run| run.idle);
    let seats = view.seats_on(name, &host.incarnation);
    let mut idle: Vec<_> = seats.filter(|(other, ..)| *other != model && is_idle(other)).collect();
    // The largest first, so that few models leave; the token makes the order the same in every daemon.
    idle.sort_by_key(|(_, token, seat)| (std::cmp::Reverse(seat.need), *token));
    let (mut evicts, mut freed) = (Vec::new(), Bytes::ZERO);
    for (other, token, seat) in idle {
        if freed >= missing {
            break;
        }
        freed += seat.need;
        evicts.push((other.to_owned(), token));
    }
    (freed >= missing).then_some((evicts, freed))
}
