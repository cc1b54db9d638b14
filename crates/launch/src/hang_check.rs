//! Health check of a serving engine whose log looks like an abort.
//!
//! DECISION: the engine is asked for `/health` and for `/slots`, which only the computing thread answers
//! (`server-context.cpp: get_slots @ b10605`). After `ggml.c: ggml_abort`, that thread may hang while
//! `/health` answers (llama.cpp #13281). A missing answer counts only if the process uses no processor time.

use std::time::Duration;

use http::StatusCode;
use plimsoll_wire::env::LLAMA_API_KEY;
use procfs::process::Process;
use tokio::time::{sleep, timeout};

use super::address::EngineAddress;
use super::descendants;
use super::health::{self, status_of};
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

    /// Returns when the engine has answered, with any status: other engines do not know the path.
    async fn slots(&self) {
        let asked = |status: Option<StatusCode>| status.is_some();
        while !asked(status_of(&self.address, SLOTS, self.key.as_deref()).await) {
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
