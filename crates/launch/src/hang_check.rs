//! Health check of an engine whose log looks like an abort.
//!
//! Such an engine may hang instead of exiting (llama.cpp #13281).

use std::time::Duration;

use plimsoll_wire::env::LLAMA_API_KEY;
use procfs::process::Process;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::address::EngineAddress;
use super::descendants;
use super::health::{self, answer_of};
use super::http_client::collect_body;
use super::spawn::{ChildSpec, Readiness};

/// An abort that ends the process does so in this time; the check starts afterwards.
const ABORTS_WITHIN: Duration = Duration::from_secs(1);
/// A serving child that answers no request for this long after such a line is stuck.
const ANSWERS_WITHIN: Duration = Duration::from_secs(7);
/// The last part of it, in which the process must use processor time. What was in flight has reached the
/// engine before.
const WORKS_WITHIN: Duration = Duration::from_secs(4);
/// Clock ticks that threads without work may use in this time: timers, and questions about its health.
const IDLE_TICKS: u64 = 10;
const SLOTS: &str = "/slots";
/// Each slot prints its sampling settings, of some KiB.
const LONGEST_ANSWER: usize = 4 << 20;

/// An engine that is checked.
#[derive(Debug)]
pub(super) struct HangCheck {
    address: EngineAddress,
    readiness: Readiness,
    key: Option<String>,
    group: u32,
}

impl HangCheck {
    pub(super) fn new(spec: &ChildSpec, group: u32) -> Self {
        let key = spec.environment.get(LLAMA_API_KEY).and_then(|key| key.to_str());
        Self {
            address: spec.address.clone(),
            readiness: spec.readiness.clone(),
            key: key.map(str::to_owned),
            group,
        }
    }

    /// Returns whether the engine answers, and computes where it has to.
    pub(super) async fn passes(self) -> bool {
        // DECISION: the engine is asked for `/health` and for `/slots`. After `ggml.c: ggml_abort`, the
        // computing thread may hang while `/health` answers. `/slots` then gets no answer (b10605), or one in
        // which a slot is processing (0.5.0); either counts only if the process uses no processor time.
        sleep(ABORTS_WITHIN).await;
        let healthy = health::answers_within(&self.readiness, &self.address, ANSWERS_WITHIN);
        let (healthy, works) = tokio::join!(healthy, self.works());
        healthy && works
    }

    async fn works(&self) -> bool {
        let answered = timeout(ANSWERS_WITHIN, self.slots());
        let used = async {
            sleep(ANSWERS_WITHIN - WORKS_WITHIN).await;
            // Where the process cannot be seen (a container), nothing is concluded.
            let server = self.server().await?;
            let before = ticks(server)?;
            sleep(WORKS_WITHIN).await;
            Some(ticks(server)?.saturating_sub(before))
        };
        let mut used = std::pin::pin!(used);
        tokio::select! {
            biased;
            Ok(()) = answered => true,
            used = &mut used => used.is_none_or(|ticks| ticks > IDLE_TICKS),
        }
    }

    /// Returns when the engine has answered, with any status (other engines do not know the path), and has no
    /// request to compute.
    async fn slots(&self) {
        loop {
            let answer = answer_of(&self.address, SLOTS, self.key.as_deref()).await;
            let body = match answer {
                Some(answer) => collect_body(answer, LONGEST_ANSWER).await.ok(),
                None => None,
            };
            if body.is_some_and(|body| !is_processing(&body)) {
                return;
            }
            sleep(health::LONGEST_PAUSE).await;
        }
    }

    /// The process that listens at the address.
    async fn server(&self) -> Option<i32> {
        match &self.address {
            EngineAddress::Port(port) => {
                let (port, group) = (*port, self.group);
                // It reads descriptors of all processes, which takes milliseconds.
                tokio::task::spawn_blocking(move || descendants::listener_of(group, port)).await.ok()?
            }
            EngineAddress::Socket { path, .. } => {
                tokio::net::UnixStream::connect(path).await.ok()?.peer_cred().ok()?.pid()
            }
        }
    }
}

/// True for an answer of llama-server in which a slot has a request.
fn is_processing(slots: &[u8]) -> bool {
    let slots: Vec<Value> = serde_json::from_slice(slots).unwrap_or_default();
    slots.iter().any(|slot| slot["is_processing"] == true)
}

/// Processor time of a process in clock ticks; `None` if it waits for a disk, which is work as well.
fn ticks(pid: i32) -> Option<u64> {
    let process = Process::new(pid).ok()?;
    let mut threads = process.tasks().ok()?.flatten().filter_map(|task| task.stat().ok());
    if threads.any(|thread| thread.state == 'D') {
        return None;
    }
    let stat = process.stat().ok()?;
    Some(stat.utime + stat.stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_with_a_request_is_told_from_idle_ones_and_from_other_answers() {
        assert!(is_processing(br#"[{"id":0,"is_processing":false},{"id":1,"is_processing":true}]"#));
        for other in [
            &br#"[{"id":0,"is_processing":false}]"#[..],
            b"[]",
            b"[1,null]",
            b"{\"error\":501}",
            b"",
            b"\xff",
        ] {
            assert!(!is_processing(other), "{other:?}");
        }
    }
}
