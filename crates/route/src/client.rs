//! Identifies a client by its API key, or else by its address.
//!
//! DECISION: it is made here alone, once for all that goes by clients: turns in a queue, what counts against
//! an engine, shares of connections and of the memory for bodies. Without a key, all of this machine is one
//! client: the port of a connection says nothing about who is behind it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use plimsoll_scheduler::ClientId;

use super::access_key::KeyDigest;

/// One client of all addresses that this machine has for itself.
const LOOPBACK: ClientId = ClientId(0);

/// DECISION: a key is one client, wherever its requests come from, so that a program with many connections
/// gets one client's share. A key with a name stays the same client when its text changes.
pub(super) fn with_key(name: &str, digest: &KeyDigest) -> ClientId {
    match name {
        "" => hashed(("digest", digest)),
        name => hashed(("key", name)),
    }
}

/// A client without a key. In IPv6 a network of 64 bits is one client, because each of its machines has all
/// addresses in it at will.
pub(super) fn at_address(address: IpAddr) -> ClientId {
    match address.to_canonical() {
        address if address.is_loopback() => LOOPBACK,
        IpAddr::V4(address) => hashed(address),
        IpAddr::V6(address) => hashed(("network", address.to_bits() >> 64)),
    }
}

/// Another host of the fleet, by the name in its certificate.
pub(super) fn host(name: &str) -> ClientId {
    hashed(("host", name))
}

fn hashed(identity: impl Hash) -> ClientId {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    ClientId(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> ClientId {
        at_address(address.parse().unwrap())
    }

    #[test]
    fn a_client_is_its_key_or_its_address_and_all_of_this_machine_is_one() {
        assert_eq!(at("127.0.0.1"), at("127.9.9.9"));
        assert_eq!(at("127.0.0.1"), at("::1"));
        assert_eq!(at("::ffff:127.0.0.1"), at("::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(with_key("a", &[1; 32]), with_key("a", &[2; 32]));
        assert_ne!(with_key("", &[1; 32]), with_key("", &[2; 32]));
        assert_ne!(with_key("a", &[1; 32]), host("a"));
    }
}
