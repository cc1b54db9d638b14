//! Waits in `plimsoll measure calibrate` until the engine is ready, and then until its card is free.

use std::time::Duration;

use plimsoll_doctor::CauseSign;
use plimsoll_engine::{ChildEnded, ChildEvent};
use plimsoll_log::Log;
use plimsoll_runtime::post_mortem;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::MeasureError;

/// Time for the engine to load. Without persistence mode the driver initialises the card first, which takes
/// many seconds.
const READY_WITHIN: Duration = Duration::from_secs(60);
// llama-server names the cause of a failed start within its last few lines.
const LAST_LINES: usize = 5;

pub(super) async fn ready(events: &mut Receiver<ChildEvent>, log: &Log) -> Result<(), MeasureError> {
    let until_ready = async {
        loop {
            match events.recv().await {
                Some(ChildEvent::Ready(_)) => return Ok(()),
                Some(ChildEvent::Ended(ended)) => return Err(why(ended)),
                // The launcher has dropped the channel: no end event will follow, so no log lines are known.
                None => return Err(MeasureError::Ended(String::new())),
                Some(_) => {}
            }
        }
    };
    let lines = || log.tail(LAST_LINES).iter().map(|line| line.text.clone()).collect();
    timeout(READY_WITHIN, until_ready)
        .await
        .unwrap_or_else(|_| Err(MeasureError::Late { seconds: READY_WITHIN.as_secs(), last: tail(lines()) }))
}

fn why(ended: ChildEnded) -> MeasureError {
    // Another process can bind the port between `free_port` and the engine's bind; only that failure is
    // retried.
    match post_mortem("the engine", &ended, None).sign {
        Some(CauseSign::PortTaken) => MeasureError::PortTaken,
        _ => MeasureError::Ended(tail(ended.last_lines)),
    }
}

/// Waits until the engine has ended and its card is free for the next measurement.
pub(super) async fn ended(events: &mut Receiver<ChildEvent>) {
    while let Some(event) = events.recv().await {
        if matches!(event, ChildEvent::Ended(_)) {
            return;
        }
    }
}

fn tail(lines: Vec<String>) -> String {
    let skipped = lines.len().saturating_sub(LAST_LINES);
    lines[skipped..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_many_are_reported() {
        let lines: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        assert_eq!(tail(lines), "4\n5\n6\n7\n8");
        assert_eq!(tail(vec!["a".to_owned()]), "a");
    }
}
