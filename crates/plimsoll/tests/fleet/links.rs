//! Network links of a test fleet: real ones between network namespaces, or TCP relays where namespaces are
//! not permitted.

use std::net::SocketAddr;

use super::network::Network;
use super::relay::Relay;
use super::server::{Cluster, Place};
use crate::daemon::{Daemon, Setup};

const PORT: u16 = 8080;

/// A link, by what it joins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// A host and all members.
    HostStore(usize),
    /// A host and all other hosts.
    HostHosts(usize),
    /// A member and all other members.
    MemberMembers(usize),
}

pub(crate) enum Links {
    Namespaces { network: Network, hosts: usize },
    Relays { peers: Vec<Relay>, members: Vec<Vec<Relay>> },
}

impl Links {
    /// Starts a store of as many members as there are hosts, and the links to it.
    pub(crate) fn start(hosts: usize) -> (Self, Cluster) {
        let Some(network) = Network::build(2 * hosts) else { return Self::relays(hosts) };
        let place = |machine| Place {
            host: network.address(machine).to_string(),
            namespace: Some(network.namespace(machine)),
        };
        let store = Cluster::placed((hosts..2 * hosts).map(place).collect());
        (Self::Namespaces { network, hosts }, store)
    }

    fn relays(hosts: usize) -> (Self, Cluster) {
        let store = Cluster::start(hosts);
        let peers = (0..hosts).map(|_| Relay::start()).collect();
        let to_members = || {
            let relays: Vec<Relay> = store.members.iter().map(|_| Relay::start()).collect();
            relays.iter().zip(&store.members).for_each(|(relay, member)| {
                relay.lead_to(member.address.parse().unwrap());
            });
            relays
        };
        let members = (0..hosts).map(|_| to_members()).collect();
        (Self::Relays { peers, members }, store)
    }

    pub(crate) fn are_real(&self) -> bool {
        matches!(self, Self::Namespaces { .. })
    }

    /// Addresses of the members, as a host reaches them.
    pub(crate) fn members(&self, host: usize, store: &Cluster) -> String {
        let members: Vec<String> = match self {
            Self::Namespaces { .. } => store.members.iter().map(|member| member.address.clone()).collect(),
            Self::Relays { members, .. } => members[host].iter().map(|it| it.address.to_string()).collect(),
        };
        members.join(",")
    }

    /// The address by which other hosts reach a host.
    pub(crate) fn peer(&self, host: usize) -> SocketAddr {
        match self {
            Self::Namespaces { network, .. } => (network.address(host), PORT).into(),
            Self::Relays { peers, .. } => peers[host].address,
        }
    }

    fn place(&self, host: usize, setup: Setup) -> Setup {
        match self {
            Self::Namespaces { network, .. } => {
                let enter =
                    format!("exec nsenter --net=/run/netns/{} \"$0\" \"$@\"", network.namespace(host));
                let listen = self.peer(host).to_string();
                setup.after(&enter).argument("--listen").argument(&listen).argument("--open")
            }
            Self::Relays { .. } => setup,
        }
    }

    /// Starts a daemon where its host is, and tells its address, by which clients reach it.
    pub(crate) fn start_daemon(&self, host: usize, setup: Setup) -> Daemon {
        let mut daemon = self.place(host, setup).start();
        match self {
            // It says the loopback address of its namespace.
            Self::Namespaces { .. } => daemon.address = self.peer(host),
            Self::Relays { peers, .. } => peers[host].lead_to(daemon.address),
        }
        daemon
    }

    /// Cuts a link, or mends it; false if there is no such link here.
    pub(crate) fn cut(&self, link: Link, is_cut: bool) -> bool {
        match (self, link) {
            (Self::Namespaces { network, hosts }, link) => {
                let hosts = *hosts;
                let (one, others) = match link {
                    Link::HostStore(host) => (host, hosts..2 * hosts),
                    Link::HostHosts(host) => (host, 0..hosts),
                    Link::MemberMembers(member) => (hosts + member, hosts..2 * hosts),
                };
                others.filter(|other| *other != one).for_each(|other| network.cut(one, other, is_cut));
            }
            (Self::Relays { members, .. }, Link::HostStore(host)) => {
                members[host].iter().for_each(|relay| relay.cut(is_cut));
            }
            (Self::Relays { peers, .. }, Link::HostHosts(host)) => peers[host].cut(is_cut),
            (Self::Relays { .. }, Link::MemberMembers(_)) => return false,
        }
        true
    }
}
