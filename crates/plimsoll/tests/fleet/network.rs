//! Network of a test fleet: one namespace for each machine on a common bridge, with links that can be cut one
//! by one.
//!
//! A cut gives each side a wrong hardware address of the other. Packets then vanish silently, as with a
//! pulled cable, and open connections stay open. Three hosts and three store members need root and `ip`.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

/// Machines are numbered from here on the bridge's network, which nothing else uses: 198.18.0.0/15 is kept
/// for tests.
const FIRST: u8 = 10;
const NOT_THERE: &str = "02:00:00:00:00:01";
const PREFIX: &str = "plm";

pub(crate) struct Network {
    machines: usize,
    pid: u32,
}

/// Runs `ip` with these words; false if it fails.
fn ip(words: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Network {
    /// The network; `None` where the machine does not let one be made.
    pub(crate) fn build(machines: usize) -> Option<Self> {
        sweep();
        let network = Self { machines, pid: std::process::id() };
        let (bridge, gateway) = (network.bridge(), format!("{}/24", network.on(254)));
        let mut works = ip(&["link", "add", &bridge, "type", "bridge"])
            && ip(&["link", "set", &bridge, "up"])
            && ip(&["addr", "add", &gateway, "dev", &bridge]);
        for machine in 0..machines {
            works = works && network.join(machine);
        }
        works.then_some(network)
    }

    fn join(&self, machine: usize) -> bool {
        let (name, bridge) = (self.namespace(machine), self.bridge());
        let address = format!("{}/24", self.address(machine));
        ip(&["netns", "add", &name])
            && ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &name])
            && ip(&["link", "set", &name, "master", &bridge, "up"])
            && ip(&["-n", &name, "link", "set", "lo", "up"])
            && ip(&["-n", &name, "addr", "add", &address, "dev", "eth0"])
            && ip(&["-n", &name, "link", "set", "eth0", "up"])
    }

    fn bridge(&self) -> String {
        format!("{PREFIX}{}br", self.pid)
    }

    pub(crate) fn namespace(&self, machine: usize) -> String {
        format!("{PREFIX}{}n{machine}", self.pid)
    }

    pub(crate) fn address(&self, machine: usize) -> Ipv4Addr {
        self.on(FIRST + u8::try_from(machine).unwrap())
    }

    fn on(&self, last: u8) -> Ipv4Addr {
        let [.., high, low] = self.pid.to_be_bytes();
        Ipv4Addr::new(198, 18 + (high & 1), low, last)
    }

    /// Cuts the link between two machines, or mends it.
    pub(crate) fn cut(&self, one: usize, other: usize, is_cut: bool) {
        for (from, to) in [(one, other), (other, one)] {
            let (name, to) = (self.namespace(from), self.address(to).to_string());
            match is_cut {
                true => ip(&[
                    "-n",
                    &name,
                    "neigh",
                    "replace",
                    &to,
                    "lladdr",
                    NOT_THERE,
                    "nud",
                    "permanent",
                    "dev",
                    "eth0",
                ]),
                // Absent if the same link was mended already.
                false => ip(&["-n", &name, "neigh", "del", &to, "dev", "eth0"]),
            };
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in 0..self.machines {
            ip(&["netns", "del", &self.namespace(machine)]);
        }
        ip(&["link", "del", &self.bridge()]);
    }
}

/// Removes what tests have left that were killed.
fn sweep() {
    let listed = Command::new("ip").args(["-o", "link"]).output();
    let listed =
        listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    for name in listed.lines().filter_map(|line| line.split(": ").nth(1)) {
        let name = name.split('@').next().unwrap_or(name);
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let is_left = rest[..digits].parse().is_ok_and(|pid: u32| !crate::daemon::alive(pid));
        if is_left {
            ip(&["netns", "del", name]);
            ip(&["link", "del", name]);
        }
    }
}
