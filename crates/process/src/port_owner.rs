//! Checks that the process listening on an engine's port belongs to a trusted user.
//!
//! Another user could bind the port first and receive prompts and the engine's key. So a listener must belong
//! to this user, to root, or to the engine's process group.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use procfs::process::FDTarget;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::process::getuid;

use crate::descendants;

/// A socket that listens on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerOwner {
    pub uid: u32,
    pub inode: u64,
    /// It takes connections to every address of this machine.
    pub is_open: bool,
}

/// Port of an engine, and the process group that may listen on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOwner {
    port: u16,
    group: u32,
}

impl PortOwner {
    pub fn new(port: u16, group: u32) -> Self {
        Self { port, group }
    }

    /// Returns the user whose process listens on the port instead of the engine; `None` if there is no such
    /// user.
    pub fn stranger(&self) -> Option<u32> {
        // If an engine is reached through a container's NAT rule, no process of this host listens, and the
        // check passes.

        // Without netlink (some sandboxes) nothing can be said, and nothing was said before either.
        let listener = listener_on(Ipv4Addr::LOCALHOST.into(), self.port).ok()??;
        let trusted = [getuid().as_raw(), 0].contains(&listener.uid);
        // Descriptors are read only in the rare case: an engine that runs as another user (sudo, setpriv).
        let is_engine = trusted || descendants::sockets_of(self.group).contains(&listener.inode);
        (!is_engine).then_some(listener.uid)
    }
}

/// Returns the socket that accepts connections to `port` of `address`, an address of this machine.
///
/// DECISION: the kernel is queried for one socket (`inet_diag.c: inet_diag_find_one_icsk`), which it looks up
/// as for a connection. Reading `/proc/net/tcp` instead would walk the table of all connections, which takes
/// milliseconds on the thread that serves requests.
pub fn listener_on(address: IpAddr, port: u16) -> io::Result<Option<ListenerOwner>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&socket, &question(address, port), SendFlags::empty())?;
    let mut answer = [0; 1024];
    // The kernel answers before `send` returns, so there is nothing to wait for.
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    Ok(listener_in(answer.get(..length).unwrap_or_default()))
}

/// True if the listener on a port of the loopback takes connections to this machine's other addresses too.
pub fn is_open(port: u16) -> bool {
    matches!(listener_on(Ipv4Addr::LOCALHOST.into(), port), Ok(Some(listener)) if listener.is_open)
}

/// True if a process listens on `port` of `address`; false also if its descriptors are not visible.
pub fn listens_on(pid: i32, address: IpAddr, port: u16) -> bool {
    let listener = listener_on(address, port).ok().flatten();
    let process = procfs::process::Process::new(pid).ok();
    listener.zip(process).is_some_and(|(listener, of)| socket_inodes(&of).contains(&listener.inode))
}

/// `SOCK_DIAG_BY_FAMILY` (`linux/sock_diag.h`), the type of the question and of its answer.
const BY_FAMILY: u16 = 20;

/// A `nlmsghdr` and an `inet_diag_req_v2` for the socket with this local address and no remote one.
fn question(address: IpAddr, port: u16) -> Vec<u8> {
    const LENGTH: u32 = 72;
    const NLM_F_REQUEST: u16 = 1;
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let [family, _] = family.as_raw().to_ne_bytes();
    let mut question = LENGTH.to_ne_bytes().to_vec();
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender; there is one question on this socket.
    question.extend([0; 8]);
    question.extend([family, TCP, 0, 0]);
    // Every state.
    question.extend([0xFF; 4]);
    question.extend(port.to_be_bytes());
    question.extend([0; 2]);
    question.extend(&octets);
    // The rest of the local address, the remote one and the interface.
    question.resize(64, 0);
    // INET_DIAG_NOCOOKIE: the socket is not known from before.
    question.extend([0xFF; 8]);
    question
}

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// Parses the kernel's reply: a `nlmsghdr` and an `inet_diag_msg`. An error (ENOENT) means that no socket
/// listens.
pub(super) fn listener_in(answer: &[u8]) -> Option<ListenerOwner> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    // Behind the header: four bytes, the addresses (48), and the timer and queues (12).
    let is_open = answer.get(24..40)?.iter().all(|byte| *byte == 0);
    (kind == BY_FAMILY).then_some(ListenerOwner { uid: word(80)?, inode: word(84)?.into(), is_open })
}

/// Returns the inodes of the sockets that `pid` has open; empty if they are not visible.
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
    use std::net::{Ipv6Addr, TcpListener};

    use super::*;

    #[test]
    fn this_users_listener_is_found_by_its_port_and_is_no_stranger() {
        for (bound, requested) in [
            ("127.0.0.1:0", IpAddr::from(Ipv4Addr::LOCALHOST)),
            ("0.0.0.0:0", Ipv4Addr::LOCALHOST.into()),
            ("[::]:0", Ipv4Addr::LOCALHOST.into()),
            ("[::1]:0", Ipv6Addr::LOCALHOST.into()),
        ] {
            let listener = TcpListener::bind(bound).unwrap();
            let port = listener.local_addr().unwrap().port();
            let found = listener_on(requested, port).unwrap().unwrap();
            assert_eq!(found.uid, getuid().as_raw(), "{bound}");
            assert_eq!(found.is_open, bound.contains("0.0.0.0") || bound.contains("[::]"), "{bound}");
            let own = procfs::process::Process::myself().unwrap();
            assert!(socket_inodes(&own).contains(&found.inode), "{bound}");
            assert_eq!(PortOwner::new(port, 1).stranger(), None);
            assert!(listens_on(own.pid, requested, port) && !listens_on(1, requested, port));
            assert!(!listens_on(-1, requested, port) && !listens_on(i32::MAX, requested, port));
            drop(listener);
            assert_eq!(listener_on(requested, port).unwrap(), None, "{bound}");
        }
    }

    #[test]
    fn an_answer_cut_short_names_no_listener() {
        for length in 0..88 {
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&BY_FAMILY.to_ne_bytes());
            }
            assert_eq!(listener_in(&answer), None);
        }
    }
}
