//! Draws random pauses, so that the hosts of a fleet do not access the store at the same time.
//!
//! Each host draws its own pauses, so that the hosts of a fleet do not all access the store at the same time.

use std::time::Duration;

use super::FleetNode;
use crate::source::{NewsSource, readers, source};
use crate::view::FleetView;

/// Time that each host of the fleet adds to the spread of pauses, and the most that all add.
const A_HOST: Duration = Duration::from_millis(5);
const MOST_SPREAD: Duration = Duration::from_secs(60);
/// Time that each host adds to a whole reading of the store, for four processors of its members. One of 1 000
/// hosts with ten models each takes 0.19 s of one processor (`crates/etcd/tests/real/loads.rs`).
const A_READING: Duration = Duration::from_micros(50);

impl FleetNode {
    /// A pause of this host's own, from half of `pause` to one and a half of it. In a large fleet it is
    /// longer, so that a thousand returning hosts do not ask the store together.
    pub fn share(&mut self, pause: Duration) -> Duration {
        let hosts = u32::try_from(self.view.hosts.len()).unwrap_or(u32::MAX);
        pause / 2 + self.drawn_of(pause + A_HOST.saturating_mul(hosts).min(MOST_SPREAD))
    }

    /// A pause before the store is read whole, as long as such readings keep four processors of its members
    /// busy.
    pub fn share_of_reading(&mut self, pause: Duration) -> Duration {
        let hosts = self.view.hosts.len();
        let readings = hosts.saturating_mul(readers(hosts, self.settings.watchers));
        let readings = u32::try_from(readings).unwrap_or(u32::MAX);
        pause / 2 + self.drawn_of(pause + A_READING.saturating_mul(readings).min(MOST_SPREAD))
    }

    /// The source of this daemon's news, after so many attempts that failed.
    pub fn source(&mut self, now: Duration, failed: u32) -> NewsSource {
        let random = self.draw();
        let source = source(&self.view, &self.settings.name, self.settings.watchers, failed, random);
        self.trust.or_store(now, source)
    }

    /// The same for a daemon that has read only which hosts there are.
    pub fn source_among(&mut self, hosts: &FleetView, failed: u32) -> NewsSource {
        let random = self.draw();
        source(hosts, &self.settings.name, self.settings.watchers, failed, random)
    }

    /// A pseudo-random part of a time.
    fn drawn_of(&mut self, time: Duration) -> Duration {
        let drawn = u32::try_from(self.draw() % 1024).unwrap_or_default();
        time.saturating_mul(drawn) / 1024
    }

    /// A pseudo-random number: xorshift64, by Marsaglia.
    pub(super) fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
