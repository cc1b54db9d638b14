//! Detects whether an engine that sends nothing is at work, from its slots, its counters and its processor
//! time.
//!
//! DECISION: an engine may compute for minutes before the first byte of an answer, and then a request of our
//! own waits too. So silence counts only with a look at its work, some seconds apart. The engine's own count
//! of tokens comes first. Only where it says nothing, its processor time decides. An engine that spins
//! without an end is not found, because a long prompt looks the same.

use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_engine::EngineWork;
use serde_json::Value;

use super::run::EngineRun;
use plimsoll_route::Upstream;

/// Time for an answer. An engine that computes a long batch answers after it.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);
/// A list of slots shows the parameters of each last request.
const LONGEST: usize = 16 << 20;

/// Work of an engine up to one time.
#[derive(Debug, Default)]
pub(super) struct WorkSample {
    slots: Option<Vec<SlotWork>>,
    counters: Option<Vec<String>>,
    process: Option<EngineWork>,
}

/// Tokens that a slot has computed for its present task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotWork {
    task: Option<i64>,
    tokens: u64,
}

impl WorkSample {
    pub(super) async fn take(run: &EngineRun, upstream: &Upstream) -> Self {
        let process = async {
            let group = run.pid()?;
            EngineWork::now(upstream.address(), group).await
        };
        let (slots, counters, process) =
            tokio::join!(page(upstream, "/slots"), page(upstream, "/metrics"), process);
        Self {
            slots: slots.and_then(|page| slot_work(&page)),
            counters: counters.map(|page| token_lines(&page)),
            process,
        }
    }

    /// True if the engine did nothing until `later`; false where that is not certain.
    pub(super) fn rests_until(&self, later: &Self) -> bool {
        if let (Some(before), Some(after)) = (&self.slots, &later.slots) {
            return !before.iter().zip(after).any(|(before, after)| after.has_worked_since(before));
        }
        match (&self.counters, &later.counters) {
            (Some(before), Some(after)) if !after.is_empty() => return before == after,
            _ => {}
        }
        match (&self.process, &later.process) {
            (Some(before), Some(after)) => before.rests_until(after),
            _ => false,
        }
    }
}

impl SlotWork {
    fn has_worked_since(&self, before: &Self) -> bool {
        let done = if self.task == before.task { before.tokens } else { 0 };
        self.tokens > done
    }
}

async fn page(upstream: &Upstream, path: &str) -> Option<Vec<u8>> {
    let requested = upstream.crowd_in(upstream.ask(Method::GET, path, None, LONGEST));
    let (status, page) = tokio::time::timeout(ANSWER_WITHIN, requested).await.ok().flatten()?;
    (status == StatusCode::OK).then_some(page)
}

/// The work of each slot of a llama-server; `None` of one that does not count the tokens of prompts.
fn slot_work(page: &[u8]) -> Option<Vec<SlotWork>> {
    let slots: Vec<Value> = serde_json::from_slice(page).ok()?;
    let work = |slot: &Value| {
        let Some(prompt) = slot.get("n_prompt_tokens_processed") else {
            // One that never had a task has no counts.
            let unused = slot["is_processing"] == false && slot.get("id_task").is_none();
            return unused.then_some(SlotWork { task: None, tokens: 0 });
        };
        let next = &slot["next_token"];
        let answer = next.get(0).unwrap_or(next)["n_decoded"].as_u64().unwrap_or_default();
        let tokens = prompt.as_u64()?.saturating_add(answer);
        Some(SlotWork { task: slot["id_task"].as_i64(), tokens })
    };
    let slots: Vec<SlotWork> = slots.iter().map(work).collect::<Option<_>>()?;
    (!slots.is_empty()).then_some(slots)
}

/// The lines of a page of metrics that count tokens.
fn token_lines(page: &[u8]) -> Vec<String> {
    let page = String::from_utf8_lossy(page);
    let lines = page.lines().filter(|line| !line.starts_with('#') && line.contains("token"));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slot(task: i64, prompt: u64, answer: u64) -> Value {
        json!({ "id": 0, "is_processing": true, "id_task": task, "n_prompt_tokens_processed": prompt,
            "next_token": [{ "n_decoded": answer }] })
    }

    fn sample(slots: &[Value]) -> WorkSample {
        let slots = slot_work(Value::from(slots).to_string().as_bytes());
        WorkSample { slots, ..WorkSample::default() }
    }

    #[test]
    fn tokens_of_a_prompt_and_of_an_answer_are_work_and_a_new_task_alone_is_none() {
        let before = sample(&[slot(7, 512, 0), slot(8, 9, 3)]);
        for (later, rests) in [
            ([slot(7, 512, 0), slot(8, 9, 3)], true),
            ([slot(7, 1024, 0), slot(8, 9, 3)], false),
            ([slot(7, 512, 0), slot(8, 9, 4)], false),
            ([slot(9, 0, 0), slot(8, 9, 3)], true),
            ([slot(9, 5, 0), slot(8, 9, 3)], false),
        ] {
            assert_eq!(before.rests_until(&sample(&later)), rests, "{later:?}");
        }
    }

    #[test]
    fn slots_that_do_not_count_prompts_prove_nothing() {
        let old = json!({ "id": 0, "is_processing": true, "id_task": 1, "next_token": { "n_decoded": 0 } });
        for page in [old.to_string(), Value::from(vec![old]).to_string(), "[]".to_owned(), "x".to_owned()] {
            assert_eq!(slot_work(page.as_bytes()), None, "{page}");
        }
        let unused = json!([{ "id": 0, "is_processing": false }]).to_string();
        assert_eq!(slot_work(unused.as_bytes()), Some(vec![SlotWork { task: None, tokens: 0 }]));
        assert!(!WorkSample::default().rests_until(&WorkSample::default()), "nothing is known");
    }

    #[test]
    fn counters_of_tokens_decide_where_there_are_no_slots() {
        let sample = |tokens: u64| {
            let page = format!(
                "# HELP tokens\nvllm:generation_tokens_total {tokens}\nprocess_cpu_seconds_total 9.{tokens}\n"
            );
            WorkSample { counters: Some(token_lines(page.as_bytes())), ..WorkSample::default() }
        };
        assert!(sample(5).rests_until(&sample(5)));
        assert!(!sample(5).rests_until(&sample(6)));
        let none = WorkSample { counters: Some(Vec::new()), ..WorkSample::default() };
        assert!(!none.rests_until(&none), "it counts no tokens");
    }
}
