//! Indexes loaded models by host, and sums the memory promised on each host since its last start.
//!
//! DECISION: the index is updated with each change. A search through all seats for each host would make one
//! placement among a thousand hosts a scan of ten million records.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::Bytes;

use crate::records::Seat;

/// Model and number of a seat.
type SeatName = (String, u32);

#[derive(Clone, Debug, Default)]
pub(super) struct Seating {
    hosts: BTreeMap<String, HostSeats>,
}

#[derive(Clone, Debug, Default)]
struct HostSeats {
    seats: BTreeSet<SeatName>,
    /// Bytes by the life of the host. Seats of a former life stay until they are taken. The sum is wider than
    /// any record's figure, so that one absurd record leaves no trace in it when it goes.
    promised: BTreeMap<String, u128>,
}

impl Seating {
    /// Takes the change of a seat from one record to another.
    pub(super) fn exchange(&mut self, name: &SeatName, before: Option<&Seat>, after: Option<&Seat>) {
        if let Some(before) = before {
            self.remove(name, before);
        }
        if let Some(after) = after {
            let host = self.hosts.entry(after.host.clone()).or_default();
            host.seats.insert(name.clone());
            *host.promised.entry(after.incarnation.clone()).or_default() += u128::from(after.need.get());
        }
    }

    fn remove(&mut self, name: &SeatName, seat: &Seat) {
        let Some(host) = self.hosts.get_mut(&seat.host) else { return };
        host.seats.remove(name);
        if let Some(promised) = host.promised.get_mut(&seat.incarnation) {
            *promised = promised.saturating_sub(u128::from(seat.need.get()));
            if *promised == 0 {
                host.promised.remove(&seat.incarnation);
            }
        }
        if host.seats.is_empty() {
            self.hosts.remove(&seat.host);
        }
    }

    /// Seats on any life of the host.
    pub(super) fn on(&self, host: &str) -> impl Iterator<Item = &SeatName> {
        self.hosts.get(host).into_iter().flat_map(|host| &host.seats)
    }

    pub(super) fn promised(&self, host: &str, incarnation: &str) -> Bytes {
        let promised = self.hosts.get(host).and_then(|host| host.promised.get(incarnation));
        Bytes::new(u64::try_from(promised.copied().unwrap_or_default()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::SeatCause;

    fn seat(host: &str, incarnation: &str, need: u64) -> Seat {
        let text = str::to_owned;
        let (need, evicts) = (Bytes::new(need), Vec::new());
        Seat {
            host: text(host),
            incarnation: text(incarnation),
            need,
            nonce: text("n"),
            cause: SeatCause::Wanted,
            evicts,
        }
    }

    #[test]
    fn a_seat_counts_for_the_life_that_it_was_given_to() {
        let (mut seating, name) = (Seating::default(), ("a".to_owned(), 0));
        let (first, second, elsewhere) = (seat("h", "1", 5), seat("h", "2", 7), seat("g", "1", 7));
        seating.exchange(&name, None, Some(&first));
        seating.exchange(&("b".to_owned(), 0), None, Some(&seat("h", "1", 3)));
        assert_eq!((seating.promised("h", "1"), seating.promised("h", "2")), (Bytes::new(8), Bytes::ZERO));
        seating.exchange(&name, Some(&first), Some(&second));
        assert_eq!((seating.promised("h", "1"), seating.promised("h", "2")), (Bytes::new(3), Bytes::new(7)));
        seating.exchange(&name, Some(&second), Some(&elsewhere));
        assert_eq!((seating.on("h").count(), seating.on("g").count()), (1, 1));
        seating.exchange(&name, Some(&elsewhere), None);
        assert_eq!((seating.promised("g", "1"), seating.hosts.len()), (Bytes::ZERO, 1));
    }

    #[test]
    fn an_absurd_need_leaves_no_trace_when_it_goes() {
        let mut seating = Seating::default();
        let (absurd, true_need) = (seat("h", "1", u64::MAX), seat("h", "1", 9));
        seating.exchange(&("a".to_owned(), 0), None, Some(&absurd));
        seating.exchange(&("b".to_owned(), 0), None, Some(&true_need));
        assert_eq!(seating.promised("h", "1"), Bytes::MAX);
        seating.exchange(&("a".to_owned(), 0), Some(&absurd), None);
        assert_eq!(seating.promised("h", "1"), Bytes::new(9));
    }
}
