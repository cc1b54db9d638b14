//! Finds the process that listens on a port, and checks whether it is the engine started for that port.

use std::fmt;
use std::net::Ipv4Addr;

use procfs::process::Process;

use crate::descendants::{all_processes, mark_of, sockets_of, started};
use crate::port_owner::{ListenerOwner, listener_on, socket_inodes};

/// Programs that listen for others and may be older than the engine: container services that forward a port,
/// and the service manager, which passes sockets on. A process's name has 15 bytes.
const FORWARDERS: [&str; 9] = [
    "dockerd",
    "docker-proxy",
    "containerd",
    "podman",
    "conmon",
    "rootlesskit",
    "rootlessport",
    "slirp4netns",
    "systemd",
];

/// A process that listens on a port of the loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder {
    /// `None` if the descriptors of its user's processes are not visible.
    pub process: Option<(i32, String)>,
    pub uid: u32,
    /// The process group of the engine that it belongs to, of this daemon or of another.
    pub engine: Option<u32>,
    inode: u64,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some((pid, name)) => write!(f, "process {pid} ({name})"),
            None => write!(f, "a process of user {}", self.uid),
        }
    }
}

/// Returns the process that accepts connections to `port` of 127.0.0.1. It reads the descriptors of all
/// processes, which takes milliseconds.
pub fn port_holder(port: u16) -> Option<PortHolder> {
    // Without netlink (some sandboxes) nothing can be said.
    let listener = listener_on(Ipv4Addr::LOCALHOST.into(), port).ok()??;
    Some(holder(listener))
}

fn holder(listener: ListenerOwner) -> PortHolder {
    let holds = |pid: &i32| Process::new(*pid).is_ok_and(|one| socket_inodes(&one).contains(&listener.inode));
    // A child may have inherited the socket; the oldest process has opened it.
    let pid = all_processes().into_iter().filter(holds).min_by_key(|pid| (started(*pid), *pid));
    let process = pid.map(|pid| (pid, name(pid)));
    PortHolder { process, uid: listener.uid, engine: pid.and_then(mark_of), inode: listener.inode }
}

fn name(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim().to_owned()
}

/// Relation of the listener on an engine's port to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// It belongs to the engine, or nothing can be said.
    Own,
    /// It is no process of the engine, and may listen on its behalf. The number is the socket's.
    Unclear(u64),
    /// It listens for itself.
    Foreign(PortHolder),
}

// DECISION: a listener of another process tree is common. A container's port belongs to a proxy of the
// container service, and a service manager's unit is no child of ours. The port was free before the start, so
// that a listener that is younger than the engine may be its own. An older one is not, unless its program
// forwards ports for others. Time settles open cases: an engine that cannot bind ends, most at once.
/// Tells whose the listener on `port` is. It may read the descriptors of all processes.
pub fn kind(port: u16, group: u32) -> ListenerKind {
    // Through a container's NAT rule an engine is reached without a listener on this host.
    let Some(listener) = listener_on(Ipv4Addr::LOCALHOST.into(), port).ok().flatten() else {
        return ListenerKind::Own;
    };
    if sockets_of(group).contains(&listener.inode) {
        return ListenerKind::Own;
    }
    let holder = holder(listener);
    let Some((pid, name)) = &holder.process else { return ListenerKind::Unclear(holder.inode) };
    if holder.engine.is_some_and(|engine| engine != group) {
        return ListenerKind::Foreign(holder);
    }
    let engine = i32::try_from(group).ok().and_then(started);
    let is_older = started(*pid).zip(engine).is_some_and(|(holder, engine)| holder < engine);
    if is_older && !FORWARDERS.contains(&name.as_str()) {
        ListenerKind::Foreign(holder)
    } else {
        ListenerKind::Unclear(holder.inode)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    fn listening() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn a_listener_is_recognised_by_its_process_and_a_free_port_has_none() {
        let (listener, port) = listening();
        let found = port_holder(port).unwrap();
        let (pid, _) = found.process.clone().unwrap();
        assert_eq!(pid.unsigned_abs(), std::process::id());
        assert!(found.to_string().starts_with(&format!("process {pid} (")), "{found}");
        drop(listener);
        assert_eq!(port_holder(port), None);
    }

    #[test]
    fn a_process_older_than_the_engine_is_foreign_and_the_engine_itself_is_not() {
        let (_listener, port) = listening();
        // As if this process were the engine.
        assert_eq!(kind(port, std::process::id()), ListenerKind::Own);
        // Starts are counted in hundredths of a second.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let mut engine = Command::new("sleep").arg("97").stdout(Stdio::null()).spawn().unwrap();
        let found = kind(port, engine.id());
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert!(matches!(&found, ListenerKind::Foreign(_)), "{found:?}");
    }
}
