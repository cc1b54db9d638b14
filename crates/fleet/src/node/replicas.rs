//! Chooses among several hosts that serve one model: a warm prompt cache first, then the least busy host.
//!
//! If all of them are busy, one more host loads the model.
//!
//! DECISION: the router claims a seat on a further host when each host already has [`CROWDED`] requests from
//! this router. Counts of other routers would have to be written to the store with each request.
//!
//! DECISION: requests with the same beginning of the prompt go to the same host, by rendezvous hashing. The
//! exception is a host that is much busier than the least busy one. When a host joins or leaves, only its
//! share of the prompts moves.

use std::time::Duration;

use super::router::PendingClaim;
use super::{Affinity, FleetNode, SeatToken};
use crate::records::RunPhase;

/// Requests of this router with which a host is crowded.
const CROWDED: u32 = 4;
/// A host with warm slots may have so many more requests than the least busy one.
const WARM: u32 = 2;
/// A host that still loads the model counts as this much busier.
const COLD: u32 = 4;
/// Most seats of one model.
const MOST: u32 = 64;

/// Where a seat can be asked.
#[derive(Debug)]
pub(super) enum Place {
    Here { token: u64 },
    There { host: String, address: String, token: SeatToken },
}

#[derive(Debug)]
struct Replica {
    place: Place,
    /// Requests that this router has there, and more if the model is not ready.
    busy: u32,
    is_ready: bool,
    /// Hash of the host and the prompt.
    warmth: u64,
}

impl FleetNode {
    /// Hosts that may serve the model at a time.
    pub(super) fn most_replicas(&self, model: &str) -> u32 {
        self.replicas.get(model).copied().unwrap_or(1).clamp(1, MOST)
    }

    /// True for a model that several hosts may serve.
    pub fn has_replicas(&self, model: &str) -> bool {
        self.most_replicas(model) > 1
    }

    /// The seat that a request is to be sent to; `None` if none can be asked.
    pub(super) fn replica(
        &mut self,
        now: Duration,
        model: &str,
        affinity: &Affinity,
        except: Option<&str>,
    ) -> Option<Place> {
        let seats = self.view.seats_of(model);
        let mut replicas: Vec<Replica> = seats
            .filter(|(_, seat)| Some(&*seat.record.body.host) != except)
            .filter_map(|(_, seat)| {
                let body = &seat.record.body;
                let place = if self.is_mine(body) {
                    Place::Here { token: seat.revision }
                } else {
                    let (host, address, token) = self.address(now, seat)?;
                    Place::There { host, address, token }
                };
                Some(Replica { busy: 0, is_ready: true, warmth: hash(affinity.prompt, &body.host), place })
            })
            .collect();
        let most = self.most_replicas(model);
        if most > 1 || replicas.len() > 1 {
            for replica in &mut replicas {
                (replica.busy, replica.is_ready) = self.busy(model, &replica.place, affinity);
            }
            self.want_more(now, model, most, &replicas);
        }
        choose(replicas, affinity.prompt.is_some()).map(|replica| replica.place)
    }

    /// Requests that this router has there, and whether the model is ready there.
    fn busy(&self, model: &str, place: &Place, affinity: &Affinity) -> (u32, bool) {
        let host = match place {
            Place::Here { .. } => &self.settings.name,
            Place::There { host, .. } => host,
        };
        let runs = self.view.states.get(host).map(|state| &state.record.body.runs);
        let run = runs.and_then(|runs| runs.get(model));
        let is_ready = run.is_some_and(|run| run.phase == RunPhase::Ready);
        let cold = if is_ready { 0 } else { COLD };
        let passed_on = self.passed_on.values().filter(|(name, to)| name == model && to == host).count();
        let own = if matches!(place, Place::Here { .. }) { affinity.here } else { 0 };
        let passed_on = u32::try_from(passed_on).unwrap_or(u32::MAX);
        (cold.saturating_add(own).saturating_add(passed_on), is_ready)
    }

    /// Claims one more seat if each is crowded. Loads in progress are awaited.
    fn want_more(&mut self, now: Duration, model: &str, most: u32, replicas: &[Replica]) {
        let present = u32::try_from(replicas.len()).unwrap_or(u32::MAX);
        let is_crowded = replicas.iter().all(|replica| replica.is_ready && replica.busy >= CROWDED);
        if self.silent.is_none() && (1..most).contains(&present) && is_crowded {
            let fresh = || PendingClaim::more(now);
            self.claims.entry(model.to_owned()).or_insert_with(fresh);
        }
    }

    /// Notes a request of a model that several hosts may serve.
    pub(super) fn note_passed_on(&mut self, request: u64, model: &str, host: &str) {
        if self.most_replicas(model) > 1 {
            self.passed_on.insert(request, (model.to_owned(), host.to_owned()));
        }
    }
}

fn choose(mut replicas: Vec<Replica>, is_drawn: bool) -> Option<Replica> {
    let least = replicas.iter().map(|replica| replica.busy).min()?;
    let warm = |replica: &Replica| is_drawn && replica.busy <= least.saturating_add(WARM);
    // The least busy; among equals and warm ones, the one that the prompt draws.
    let order = |replica: &Replica| {
        if warm(replica) {
            (0, u64::MAX - replica.warmth)
        } else {
            (replica.busy.saturating_add(1), u64::MAX - replica.warmth)
        }
    };
    let best = (0..replicas.len()).min_by_key(|at| replicas.get(*at).map(order))?;
    Some(replicas.swap_remove(best))
}

/// FNV-1a of a host's name, begun with the prompt's digest.
fn hash(prompt: Option<u64>, host: &str) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325 ^ prompt.unwrap_or_default().rotate_left(17);
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    // Mixed once more: names that differ in the last letter alone have to draw different prompts.
    let hash = host.bytes().fold(begin, step);
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(token: u64, busy: u32, prompt: Option<u64>) -> Replica {
        Replica {
            place: Place::Here { token },
            busy,
            is_ready: true,
            warmth: hash(prompt, &format!("h{token}")),
        }
    }

    fn chosen(busy: &[u32], prompt: Option<u64>) -> u64 {
        let replicas = (1..).zip(busy).map(|(token, busy)| replica(token, *busy, prompt)).collect();
        match choose(replicas, prompt.is_some()).map(|replica| replica.place) {
            Some(Place::Here { token }) => token,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_prompt_the_least_busy_host_is_chosen() {
        assert_eq!(chosen(&[3, 1, 2], None), 2);
        assert!(choose(Vec::new(), true).is_none());
    }

    #[test]
    fn a_prompt_stays_with_its_host_until_that_is_much_busier() {
        for prompt in 0..50 {
            let own = chosen(&[0, 0, 0], Some(prompt));
            let at = usize::try_from(own).unwrap() - 1;
            let mut busy = [0; 3];
            busy[at] = WARM;
            assert_eq!(chosen(&busy, Some(prompt)), own, "its slots are warm");
            busy[at] = WARM + 1;
            assert_ne!(chosen(&busy, Some(prompt)), own, "others wait for nothing");
        }
    }

    #[test]
    fn prompts_are_shared_out_evenly() {
        let mut shares = [0_u32; 3];
        (0..3000)
            .for_each(|prompt| shares[usize::try_from(chosen(&[0, 0, 0], Some(prompt))).unwrap() - 1] += 1);
        assert!(shares.iter().all(|share| (800..1200).contains(share)), "{shares:?}");
    }
}
