//! Chooses a host to load a model on, if the model is loaded nowhere or only on busy hosts.
//!
//! DECISION: the host that was asked takes the model if it has the file and room, because a request that is
//! passed on waits for another machine and fails with it. Callers spread their requests over addresses
//! freely.
//!
//! DECISION: otherwise the host is drawn at random from the best sixteen. If all routers chose the best one,
//! all but one of their transactions would fail when a rack dies. With sixteen, a tenth fails (simulated for
//! 10 000 hosts).
//!
//! DECISION: a host's memory is one sum over its cards. The host itself places the model on its cards, and
//! may refuse the seat. A finer figure here would be a second ledger.

mod copying;

use plimsoll_base::{Bytes, Order, Reason};

use super::records::{FileDigest, HostRecord, ModelOffer, SeatCause};
use super::view::FleetView;

pub use copying::{CopyPlan, copier};

/// Number of hosts from which one is drawn.
const BEST: usize = 16;

/// Purpose of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatPurpose {
    /// No living host has a seat of the model.
    Wanted,
    /// The hosts that have the model are busy. No other model leaves for it.
    Further,
    /// An operator moves the first seat.
    Moved,
}

/// The request to seat a model.
#[derive(Clone, Copy, Debug)]
pub struct SeatDemand<'a> {
    pub model: &'a str,
    /// The only host that is wanted, if an operator named one.
    pub only: Option<&'a str>,
    /// The host that was asked, which comes first if no other model has to leave it.
    pub near: Option<&'a str>,
    pub purpose: SeatPurpose,
    /// Memory of the model's own run on that host, which is registered as held without a seat.
    pub occupied: Bytes,
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
    /// Number of the seat.
    pub number: u32,
    /// Seats of models that leave.
    pub evicts: Vec<EvictedSeat>,
}

/// Seat of an idle model that leaves for another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictedSeat {
    pub model: String,
    pub number: u32,
    pub token: u64,
}

/// A host that could take the model. Less is better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate<'a> {
    /// Memory of models that leave.
    evicted: Bytes,
    /// Memory that is left: the tightest fit keeps room for larger models.
    left: Bytes,
    host: &'a str,
    incarnation: &'a str,
    need: Bytes,
    evicts: Vec<EvictedSeat>,
}

/// Chooses a host, or says of each host why it cannot take the model.
///
/// Reasons and evictions are worked out only where no host has room as it is: among ten thousand hosts most
/// have none.
pub fn place(view: &FleetView, demand: &SeatDemand<'_>) -> Result<SeatPlan, Reason> {
    let offering = Offering::of(view, demand.model);
    if demand.only.is_none() {
        offering.agree(view, demand.model)?;
    }
    let among = |evicts| {
        let offering = &offering;
        let hosts = view.hosts.iter().filter(|(name, _)| demand.only.is_none_or(|only| only == **name));
        let hosts = hosts.map(|(name, host)| (name, &host.record.body));
        hosts.filter_map(move |(name, host)| consider(view, offering, demand, name, host, evicts).ok())
    };
    let mut candidates: Vec<Candidate<'_>> = among(false).collect();
    let near = candidates.iter().position(|candidate| demand.near == Some(candidate.host));
    if let Some(near) = near {
        candidates = vec![candidates.swap_remove(near)];
    }
    // A host that would evict is not drawn while another needs not.
    if candidates.is_empty() && demand.purpose != SeatPurpose::Further {
        candidates = among(true).collect();
    }
    let Some(chosen) = draw(candidates, demand.random) else { return Err(refusal(view, &offering, demand)) };
    let Candidate { host, incarnation, need, evicts, .. } = chosen;
    let (host, incarnation) = (host.to_owned(), incarnation.to_owned());
    let (number, cause) = numbered(view, demand);
    Ok(SeatPlan { host, number, incarnation, need, cause, evicts })
}

/// Number of the seat, and why it is made.
fn numbered(view: &FleetView, demand: &SeatDemand<'_>) -> (u32, SeatCause) {
    if demand.purpose == SeatPurpose::Moved {
        return (0, SeatCause::Moved);
    }
    let number = view.vacant(demand.model);
    let former = view.seats.get(&(demand.model.to_owned(), number));
    // Its host is registered, though it is not trusted, and is to know that the model was taken from it.
    let is_taken = former.is_some_and(|seat| view.is_registered(&seat.record.body));
    (number, if is_taken { SeatCause::Moved } else { SeatCause::Wanted })
}

/// Offers of one model, by the digest of the list that has it. Hosts with the same lists are looked up once.
struct Offering<'a> {
    lists: Vec<(&'a str, &'a ModelOffer)>,
    /// Hosts that have a seat of the model.
    holders: Vec<&'a str>,
}

impl<'a> Offering<'a> {
    fn of(view: &'a FleetView, model: &'a str) -> Self {
        let lists = view.offers.iter();
        let having =
            lists.filter_map(|(digest, list)| Some((&**digest, list.record.body.models.get(model)?)));
        let holders = view.living_seats(model).map(|(_, seat)| &*seat.record.body.host);
        Self { lists: having.collect(), holders: holders.collect() }
    }

    fn by(&self, host: &HostRecord) -> Option<&'a ModelOffer> {
        let at = self.lists.binary_search_by_key(&&*host.offers, |(digest, _)| digest).ok()?;
        self.lists.get(at).map(|(_, offer)| *offer)
    }

    /// Refuses a name under which hosts have different files: the answer would depend on the host.
    fn agree(&self, view: &FleetView, model: &str) -> Result<(), Reason> {
        let mut files = self.lists.iter().filter_map(|(_, offer)| offer.file.as_ref());
        let first = files.next();
        if files.all(|file| Some(file) == first) {
            return Ok(());
        }
        // A list may have outlived its hosts.
        let hosts = view.hosts.iter();
        let of_hosts =
            hosts.filter_map(|(name, host)| Some((name, self.by(&host.record.body)?.file.as_ref()?)));
        let mut files = of_hosts.clone().map(|(_, file)| file);
        let first = files.next();
        if files.all(|file| Some(file) == first) {
            return Ok(());
        }
        let of_host = |(name, file): (&String, &FileDigest)| {
            let text = format!("its file has {} and a header with the digest {}", file.size, file.header);
            Reason::new("model_file", text).fact("host", name.clone())
        };
        let text = format!("hosts have different files for model '{model}'");
        Err(Reason::new("ambiguous_model", text).because_all(of_hosts.map(of_host)))
    }
}

/// Draws one of the best candidates.
fn draw(mut candidates: Vec<Candidate<'_>>, random: u64) -> Option<Candidate<'_>> {
    if candidates.len() > BEST {
        candidates.select_nth_unstable(BEST);
        candidates.truncate(BEST);
    }
    // In an order of their own, so that one number draws the same host in every run.
    candidates.sort_unstable();
    let draws = u64::try_from(candidates.len()).unwrap_or(1).max(1);
    let drawn = usize::try_from(random % draws).unwrap_or_default();
    (drawn < candidates.len()).then(|| candidates.swap_remove(drawn))
}

/// The reason of each host, for a person.
fn refusal(view: &FleetView, offering: &Offering<'_>, demand: &SeatDemand<'_>) -> Reason {
    let requested = view.hosts.iter().filter(|(name, _)| demand.only.is_none_or(|only| only == **name));
    let hosts = requested.filter_map(|(name, host)| {
        let reason = consider(view, offering, demand, name, &host.record.body, true).err()?;
        Some(reason.reason(name).fact("host", name.clone()))
    });
    let who = demand.only.map_or_else(|| "no host can".to_owned(), |only| format!("host '{only}' cannot"));
    Reason::new("no_host", format!("{who} take model '{}'", demand.model)).because_all(hosts)
}

/// Why a host cannot take a model.
enum Refusal {
    Distrusted,
    HasOne,
    Drains,
    NotOffered,
    TooLarge { need: Bytes, capacity: Bytes },
    Full { need: Bytes, free: Bytes },
}

impl Refusal {
    fn reason(&self, host: &str) -> Reason {
        match *self {
            Self::Distrusted => Reason::new(
                "host_distrusted",
                format!("the server at the address of '{host}' has not proved that it is '{host}'"),
            ),
            Self::HasOne => Reason::new(
                "has_seat",
                format!("'{host}' has this model already, so it gets no second engine for it"),
            ),
            Self::Drains => Reason::new(
                "host_drains",
                format!("'{host}' is drained or cordoned, and accepts no more models"),
            ),
            Self::NotOffered => Reason::new(
                "not_offered",
                format!(
                    "'{host}' does not offer the model: its configuration does not name it, its file is not there, or no card of \
                     it is large enough"
                ),
            ),
            Self::TooLarge { need, capacity } => {
                let text = format!("the model takes {need}, more than the {capacity} of '{host}'");
                Reason::new("too_large", text).fact("need", need).fact("capacity", capacity)
            }
            Self::Full { need, free } => {
                let text = format!(
                    "the models of '{host}' are busy: {free} of its memory is free, but the model \
                        takes {need}"
                );
                Reason::new("host_full", text).fact("need", need).fact("free", free)
            }
        }
    }
}

/// Looks at one host, and at models that could leave it if `evicts`.
fn consider<'a>(
    view: &FleetView,
    offering: &Offering<'_>,
    demand: &SeatDemand<'_>,
    name: &'a str,
    host: &'a HostRecord,
    evicts: bool,
) -> Result<Candidate<'a>, Refusal> {
    if !view.trusts(name, host) {
        return Err(Refusal::Distrusted);
    }
    if offering.holders.contains(&name) {
        return Err(Refusal::HasOne);
    }
    if view.drains(name) {
        return Err(Refusal::Drains);
    }
    let need = offering.by(host).ok_or(Refusal::NotOffered)?.need;
    with_room(view, demand, (name, host), need, evicts)
}

/// The host as a candidate, if it has room for so much.
fn with_room<'a>(
    view: &FleetView,
    demand: &SeatDemand<'_>,
    (name, host): (&'a str, &'a HostRecord),
    need: Bytes,
    evicts: bool,
) -> Result<Candidate<'a>, Refusal> {
    let (free, unseated) =
        (view.free(name, host) + demand.occupied, host.unseated.saturating_sub(demand.occupied));
    if need > host.capacity.saturating_sub(unseated) {
        return Err(Refusal::TooLarge { need, capacity: host.capacity });
    }
    let missing = need.saturating_sub(free);
    let idle = if missing.is_zero() {
        Some((Vec::new(), Bytes::ZERO))
    } else if evicts {
        evictions(view, demand.model, name, host, missing)
    } else {
        None
    };
    let (evicts, evicted) = idle.ok_or(Refusal::Full { need, free })?;
    let left = (free + evicted).saturating_sub(need);
    Ok(Candidate { evicted, left, host: name, incarnation: &host.incarnation, need, evicts })
}

/// Idle models of the host that together free `missing`; `None` if there are too few.
fn evictions(
    view: &FleetView,
    model: &str,
    name: &str,
    host: &HostRecord,
    missing: Bytes,
) -> Option<(Vec<EvictedSeat>, Bytes)> {
    let runs = view.states.get(name).map(|state| &state.record.body.runs)?;
    let is_idle = |other: &str| runs.get(other).is_some_and(|run| run.idle);
    let seats = view.numbered_seats_on(name, &host.incarnation);
    let mut idle: Vec<_> = seats.filter(|(other, ..)| *other != model && is_idle(other)).collect();
    // The largest first, so that few models leave; the token makes the order the same in every daemon.
    idle.order_by_key(|(_, _, seat)| (std::cmp::Reverse(seat.record.body.need), seat.revision));
    let (mut evicts, mut freed) = (Vec::new(), Bytes::ZERO);
    for (other, number, seat) in idle {
        if freed >= missing {
            break;
        }
        freed += seat.record.body.need;
        evicts.push(EvictedSeat { model: other.to_owned(), number, token: seat.revision });
    }
    (freed >= missing).then_some((evicts, freed))
}
