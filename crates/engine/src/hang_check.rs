//! Checks whether a serving engine hangs, after its log has shown an abort.
//!
//! DECISION: the check requests both `/health` and `/slots`. After `ggml.c: ggml_abort`, the computing thread
//! may hang while `/health` answers (llama.cpp #13281). `/slots` then gets no answer (b10605), or an answer
//! in which a slot is processing (0.5.0). Either counts as a hang only if the process uses no processor time.
//!
//! An engine that waits for a card or another machine looks the same. So a process with an open device or a
//! connection of its own needs further evidence. It counts as hung only if it has started a process since the
//! log line: `ggml_print_backtrace` starts a debugger and waits for it (`ggml.c @ b10605`).

use std::time::Duration;

use plimsoll_wire::env::LLAMA_API_KEY;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::address::EngineAddress;
use super::health::{self, answer_of};
use super::spec::{ChildSpec, Readiness};
use super::work::{reach_of, server_of, ticks};
use plimsoll_http::collect_body;
use plimsoll_process::descendants;

/// An abort that ends the process does so in this time; the check starts afterwards.
const ABORTS_WITHIN: Duration = Duration::from_secs(1);
/// A serving child that answers no request for this long after such a line is stuck.
const ANSWERS_WITHIN: Duration = Duration::from_secs(7);
/// The last part of it, in which the process must use processor time. Requests in flight have reached the
/// engine before.
const WORKS_WITHIN: Duration = Duration::from_secs(4);
/// Clock ticks that threads without work may use in this time: timers, and questions about its health.
const IDLE_TICKS: u64 = 10;
/// Time in which a line of the log is read.
const LINE_DELAY: Duration = Duration::from_secs(2);
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
    /// The moment of the line, in clock ticks since the machine started.
    since: u64,
}

impl HangCheck {
    pub(super) fn new(spec: &ChildSpec, group: u32) -> Self {
        let key = spec.environment.get(LLAMA_API_KEY).and_then(|key| key.to_str());
        Self {
            address: spec.address.clone(),
            readiness: spec.readiness.clone(),
            key: key.map(str::to_owned),
            group,
            since: clock_ticks().saturating_sub(LINE_DELAY.as_secs() * procfs::ticks_per_second()),
        }
    }

    /// Returns whether the engine answers, and computes where it has to.
    pub(super) async fn passes(self) -> bool {
        sleep(ABORTS_WITHIN).await;
        let healthy = health::answers_within(&self.readiness, &self.address, ANSWERS_WITHIN);
        let or_failed = |passes: bool| passes.then_some(()).ok_or(());
        // The first failure decides.
        let both =
            tokio::try_join!(async { or_failed(healthy.await) }, async { or_failed(self.works().await) });
        both.is_ok()
    }

    async fn works(&self) -> bool {
        let answered = timeout(ANSWERS_WITHIN, self.slots());
        let works = async {
            sleep(ANSWERS_WITHIN - WORKS_WITHIN).await;
            // Where the process cannot be seen (a container), nothing is concluded.
            let server = server_of(&self.address, self.group).await?;
            let before = ticks(server)?;
            let (waits, ()) = tokio::join!(self.waits(server), sleep(WORKS_WITHIN));
            let used = ticks(server)?.saturating_sub(before);
            Some(used > IDLE_TICKS || waits?)
        };
        let mut works = std::pin::pin!(works);
        tokio::select! {
            biased;
            Ok(()) = answered => true,
            works = &mut works => works.unwrap_or(true),
        }
    }

    /// True if the process may wait for a card or another machine, and has started no debugger.
    async fn waits(&self, server: i32) -> Option<bool> {
        let since = self.since;
        let waits = move || Some(!descendants::has_child_since(server, since) && reach_of(server)?.is_any());
        // It reads descriptors of processes, which takes milliseconds.
        tokio::task::spawn_blocking(waits).await.ok()?
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
}

/// True for an answer of llama-server in which a slot has a request.
fn is_processing(slots: &[u8]) -> bool {
    let slots: Vec<Value> = serde_json::from_slice(slots).unwrap_or_default();
    slots.iter().any(|slot| slot["is_processing"] == true)
}

/// Time since the machine started, as start times of processes are counted.
fn clock_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    let ticks = procfs::ticks_per_second();
    part(now.tv_sec) * ticks + part(now.tv_nsec) * ticks / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_with_a_request_is_distinguished_from_idle_ones_and_from_other_answers() {
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
