//! One child from its start to its end: a state machine with a single owner.
//!
//! The owner is a task ([`supervisor`]); what others hold is [`Child`], which gives orders, and a stream of
//! [`ChildEvent`]s that exactly one `Ended` closes. Dropping [`Child`] kills the group.

use std::time::Duration;

use plimsoll_doctor::Exit;
use serde_json::Value;
use tokio::sync::mpsc;

use super::end::EndCause;
use super::log_ring::Log;

mod supervisor;

pub(super) use self::supervisor::supervise;

/// A change in a child's life.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildEvent {
    /// It loads; the payload is llama-server's `{"stages", "current", "value"}`, null where all we know is
    /// that it still writes lines. May be skipped under load.
    Progress(Value),
    /// It takes requests; the payload is its own entry of `/v1/models`, null where it has none.
    Ready(Value),
    /// It gave its model back and wakes on the next request.
    Sleeping(Value),
    /// It is gone, with everything it started.
    Ended(Ended),
}

/// All that is known of a child's end.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub exit: Exit,
    pub cause: EndCause,
    /// True if it had ever taken requests.
    pub was_ready: bool,
    pub ran: Duration,
    /// The kernel killed some process for want of memory while this one ran.
    pub kernel_oom_kill: bool,
    /// Of the stage in which it died: those since it was ready, if it ever was.
    pub last_lines: Vec<String>,
}

/// A running child. Dropping it kills the child and all it started.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    port: u16,
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

    pub fn port(&self) -> u16 {
        self.port
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
