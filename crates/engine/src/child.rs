//! Controls a child process (an engine) from its start to its end.
//!
//! A [`Child`] sends commands to the task that owns the process, and receives [`ChildEvent`]s. Dropping it
//! kills the process group.

use std::time::Duration;

use plimsoll_base::Exit;
use serde_json::Value;
use tokio::sync::mpsc;

use super::address::EngineAddress;
use super::end::EndCause;
use plimsoll_log::Log;

mod supervisor;

pub(super) use self::supervisor::supervise;

/// Change in the state of a child process.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildEvent {
    /// The child is loading. The payload is llama-server's `{"stages", "current", "value"}`, or null if only
    /// log output shows that the child makes progress. May be skipped under load.
    Progress(Value),
    /// The child takes requests. The payload is its entry of `/v1/models`, null if it has none.
    Ready(Value),
    /// The child unloaded its model and loads it again at the next request.
    Sleeping(Value),
    /// The child has ended, with all processes that it started.
    Ended(ChildEnded),
}

/// Everything known about a child's end.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildEnded {
    pub exit: Exit,
    pub cause: EndCause,
    /// True if it was ready for requests at any time.
    pub was_ready: bool,
    pub ran: Duration,
    /// The kernel's out-of-memory killer killed some process while this one ran.
    pub kernel_oom_kill: bool,
    /// Last log lines of the stage in which the child died: those since it was ready, if it ever was.
    pub last_lines: Vec<String>,
}

/// Handle of a running child. Dropping it kills the child and all processes that it started.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    address: EngineAddress,
    log: Log,
    orders: mpsc::UnboundedSender<StopOrder>,
}

#[derive(Debug)]
enum StopOrder {
    Stop { within: Duration },
    Kill,
}

impl Child {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn address(&self) -> &EngineAddress {
        &self.address
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Asks it to finish; it is killed if it has not left `within` this time. `Ended` follows in either case.
    pub fn stop(&self, within: Duration) {
        // An error means that the supervisor is gone, and it goes only after the child.
        let _ = self.orders.send(StopOrder::Stop { within });
    }

    /// Kills it and all it started. `Ended` follows.
    pub fn kill(&self) {
        let _ = self.orders.send(StopOrder::Kill);
    }
}
