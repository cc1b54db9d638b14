//! Owners of the sockets that listen on an engine's port.
//!
//! DECISION: a port number is public (`/proc/PID/cmdline`, `/proc/net/tcp`) and free until the engine binds it, so another user
//! of the machine may bind it first and would be sent prompts and the engine's key. A listener is trusted if it
//! belongs to this user or to root (root reads our memory anyway, and docker's userland proxy runs as root), or if a
//! process of the engine's group holds it. An engine behind a NAT rule of a container has no listener here.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;

use procfs::process::FDTarget;
use rustix::process::getuid;

use crate::descendants;

/// State of a listening socket in `/proc/net/tcp` (`TCP_LISTEN` in the kernel's `tcp_states.h`).
const LISTEN: &str = "0A";
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// A socket that listens on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    pub uid: u32,
    pub inode: u64,
}

/// An engine's port and the process group that may listen on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOwner {
    port: u16,
    group: u32,
}

impl PortOwner {
    pub fn new(port: u16, group: u32) -> Self {
        Self { port, group }
    }

    /// Returns the user whose process listens on the port in the engine's stead; `None` if no other user's does.
    pub fn stranger(&self) -> Option<u32> {
        let own = getuid().as_raw();
        let listeners = listeners_on(self.port);
        let suspects = listeners
            .iter()
            .filter(|listener| ![own, 0].contains(&listener.uid));
        let strangers: Vec<&Listener> = suspects.collect();
        // Descriptors are read only in the rare case: an engine that runs as another user (sudo, setpriv).
        let first = strangers.first()?;
        let held = descendants::sockets_of(self.group);
        let foreign = strangers.iter().find(|listener| !held.contains(&listener.inode));
        foreign.map(|_| first.uid)
    }
}

/// Returns the sockets that take connections to `port` of 127.0.0.1.
pub fn listeners_on(port: u16) -> Vec<Listener> {
    let tables = TABLES.into_iter().filter_map(|path| File::open(path).ok());
    tables
        .flat_map(|table| listeners_in(BufReader::new(table), port))
        .collect()
}

/// DECISION: the table is read by hand and not with `procfs::net::tcp`: the kernel prints the listening sockets first
/// (`tcp_ipv4.c: tcp_get_idx`), so that reading stops before the thousands of connections of a busy server.
fn listeners_in(table: impl BufRead, port: u16) -> Vec<Listener> {
    let lines = table.lines().map_while(Result::ok).skip(1);
    let listening = lines.take_while(|line| line.split_ascii_whitespace().nth(3) == Some(LISTEN));
    listening.filter_map(|line| listener(&line, port)).collect()
}

fn listener(line: &str, port: u16) -> Option<Listener> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (address, local_port) = fields.next()?.rsplit_once(':')?;
    // The kernel prints addresses as words of the machine's own byte order.
    let loopback = format!("{:08X}", u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()));
    let takes = address.ends_with(&loopback) || address.bytes().all(|digit| digit == b'0');
    if !takes || u16::from_str_radix(local_port, 16).ok()? != port {
        return None;
    }
    // Between them: the remote address, the state, the queues, the timer and the retransmits.
    let uid = fields.nth(5)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(Listener { uid, inode })
}

/// Returns the inodes of the sockets among the descriptors of `pid`; none where they may not be seen.
pub(super) fn socket_inodes(process: &procfs::process::Process) -> Vec<u64> {
    let descriptors = process.fd().into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| match descriptor.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_read_with_its_user_and_connections_are_not() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 4711 1 0 100 0 0 10 0\n\
   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100 0 0 10 0\n\
   2: 0200000A:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0 100 0 0 10 0\n\
   3: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1001        0 4714 1 0 100 0 0 10 0\n";
        let found = listeners_in(table.as_bytes(), 8080);
        let wanted = [(65534, 4711), (1000, 4712)];
        assert_eq!(found, wanted.map(|(uid, inode)| Listener { uid, inode }));
        assert!(listeners_in(table.as_bytes(), 8081).is_empty());
    }

    #[test]
    fn this_users_listener_is_no_stranger_and_is_held_by_this_group() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(PortOwner::new(port, 1).stranger(), None);
        let [found] = listeners_on(port)[..] else {
            panic!("one listener")
        };
        let own = procfs::process::Process::myself().unwrap();
        assert!(socket_inodes(&own).contains(&found.inode));
    }
}
