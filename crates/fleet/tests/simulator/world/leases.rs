//! Simulates the leases of hosts in the fleet's store: granted at once, granted late, or granted with an
//! answer that is lost.

use super::{Happening, TTL, World, ms};

impl World {
    /// Renews the lease of a host, or asks for one. An answer to that is late now and then, or lost, and so
    /// is the lease.
    pub(super) fn renew(&mut self, daemon: usize, life: u32) {
        self.after(ms(1000), Happening::Renew { daemon, life });
        if self.is_cut(daemon) {
            return;
        }
        let (lease, end) = (self.daemons[daemon].lease, self.now + TTL);
        if self.store.keep_alive(lease, end) {
            return;
        }
        // It knows from this answer that it has none.
        self.daemons[daemon].lease = 0;
        let lease = self.store.grant(end);
        let (way, late) = (self.draw(20), ms(self.draw(900)));
        match (self.settings.faults, way) {
            (true, 0) => {}
            (true, 1..=4) => self.after(late, Happening::Granted { daemon, life, lease }),
            _ => self.happen(Happening::Granted { daemon, life, lease }),
        }
    }

    /// No host is registered without a lease: nothing would end its registration.
    pub(super) fn check_leases(&mut self) {
        if self.store.hosts_without_lease() > 0 {
            self.faults.count("a host registered without a lease");
        }
    }
}
