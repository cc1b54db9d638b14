//! Checks that the port which a command fixes is free before the engine starts.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use plimsoll_base::Reason;
use plimsoll_process::{
    port_holder::{PortHolder, port_holder},
    port_owner::listener_on,
};

use super::launch::Starter;
use super::state::SchedulerState;
use plimsoll_task::spawn_blocking;

/// A container's port is closed a moment after the container's end.
const FREES_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

// DECISION: only a port that is taken before the start is refused. Afterwards a listener that is no process
// of the engine may be a container's proxy (`plimsoll_process::port_holder`).
impl Starter<'_> {
    /// Refuses a start on a port that somebody listens on: the answers would be of that program.
    pub(super) async fn is_free(&self) -> Result<(), Reason> {
        let Some(port) = self.run.entry.fixed_port() else { return Ok(()) };
        let begun = Instant::now();
        while is_taken(port) {
            if begun.elapsed() < FREES_WITHIN {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let Ok(Some(holder)) = spawn_blocking(move || port_holder(port)).await else { continue };
            return Err(self.taken(port, &holder));
        }
        Ok(())
    }

    fn taken(&self, port: u16, holder: &PortHolder) -> Reason {
        let name = &self.run.entry.name;
        let runs = self.runtime.state.runs();
        let own = runs.iter().find(|run| run.pid().is_some() && run.pid() == holder.engine);
        let by = match own {
            Some(run) => format!("the engine of {}, {holder}", run.entry.name),
            None => holder.to_string(),
        };
        let text = format!(
            "port {port}, on which its command listens, is taken by {by}; end that process, or write `${{PORT}}` in `cmd` \
             instead of the number and leave `proxy` out"
        );
        let mut cause = Reason::new("port_taken", text).fact("port", u64::from(port));
        if let Some((pid, _)) = &holder.process {
            cause = cause.fact("pid", u64::from(pid.unsigned_abs()));
        }
        Reason::new("unstartable", format!("{name} could not be started")).because(cause)
    }
}

fn is_taken(port: u16) -> bool {
    // Without netlink (some sandboxes) nothing can be said.
    listener_on(Ipv4Addr::LOCALHOST.into(), port).is_ok_and(|listener| listener.is_some())
}

impl SchedulerState {
    /// Ports that an engine may not be given: those of engines that may not listen yet, and those that
    /// commands name.
    pub(super) fn promised_ports(&self) -> Vec<u16> {
        let mut promised: Vec<u16> = self.runs().iter().filter_map(|run| run.port.get()).collect();
        promised.extend(self.present().iter().filter_map(|(_, entry)| entry.fixed_port()));
        promised
    }
}
