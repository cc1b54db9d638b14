//! Tests of host leases: a host's registration expires with its lease, even if the store (etcd) granted the
//! lease late.

use std::time::Duration;

use super::relay::Relay;
use super::rig::Fleet;
use crate::daemon::until;
use crate::http;

/// Shorter than a host waits for an answer, and longer than it takes to read the store and to register.
const LATE: Duration = Duration::from_millis(1500);

#[test]
fn a_registration_goes_with_a_lease_that_the_store_grants_late() {
    let fleet = Fleet::start();
    let (relay, member) = (Relay::start(), fleet.store.members[0].address.parse().unwrap());
    relay.lead_to(member);
    relay.delay("POST /v3/lease/grant ", LATE);
    let mut late = fleet.host_of(3, "1GiB", &format!("etcd://{}/test", relay.address));
    until("the host is registered", || fleet.lease_of("h3").is_some());
    let first = fleet.lease_of("h3").unwrap();
    assert_ne!(first, 0, "a registration without a lease outlives its host");
    // The store ends the lease, and the host gets another one late.
    http::post(member, "/v3/lease/revoke", &serde_json::json!({ "ID": first.to_string() }));
    until("the host is registered again", || fleet.lease_of("h3").is_some());
    let second = fleet.lease_of("h3").unwrap();
    assert!(second != 0 && second != first, "{second}");
    // So it ends with its host.
    late.signal("KILL");
    late.wait();
    until("the registration ends", || fleet.lease_of("h3").is_none());
}
