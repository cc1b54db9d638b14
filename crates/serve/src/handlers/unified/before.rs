//! Frees host memory before a load, if the machine lacks what the model needs.
//!
//! A load starts even if reclaim freed too little. The daemon never takes a step that needs root.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Advice, Bytes, End, Fact, Hint, Order, Reason, Stage};
use plimsoll_cards::Sysroot;
use plimsoll_config::{ConfiguredModel, ReclaimBeforeLoad};
use plimsoll_host::{Allowance, AllowanceGate, HostSnapshot, ReclaimGoal, StepVerdict, allowance};
use plimsoll_reclaim::{
    NeighbourSelection, ReclaimError, ReclaimOutcome, ReclaimRequest, RootSteps, TakenStep, reclaim,
};
use plimsoll_scheduler::SchedulerEvent;
use serde_json::{Value, json};

use super::Unified;
use plimsoll_route::ModelService;
use plimsoll_runtime::model_files as files;
use plimsoll_runtime::{EngineRun, Runtime, in_a_line};
use plimsoll_task::spawn_blocking;

/// Reclaim of memory for one load.
pub(super) struct ReclaimJob {
    turn: Arc<tokio::sync::Mutex<()>>,
    hands: RootSteps,
    guard: Rc<super::GuardHandler>,
    ask: Duration,
}

impl Unified {
    /// `None` if nothing is to be done before a load.
    pub(super) fn job(&self) -> Option<ReclaimJob> {
        let hands = match self.reclaim {
            ReclaimBeforeLoad::Off => return None,
            ReclaimBeforeLoad::User => RootSteps::None,
            ReclaimBeforeLoad::Sudo => RootSteps::Sudo,
            ReclaimBeforeLoad::Systemd => RootSteps::Systemd,
        };
        Some(ReclaimJob {
            turn: Arc::clone(&self.reclaiming),
            hands,
            guard: Rc::clone(&self.guard),
            ask: self.ask,
        })
    }
}

/// Makes room for the run.
pub(super) async fn reclaim_for(runtime: Rc<Runtime>, run: Rc<EngineRun>, job: ReclaimJob) {
    // DECISION: the need is an upper bound: the new engine's claim (the memory that it may take) plus the
    // claims of engines that are still loading. Loads are prepared one at a time.
    let turn = Arc::clone(&job.turn).lock_owned().await;
    let Some(question) = job.question(&runtime, &run) else {
        return;
    };
    let need = question.need;
    let answered = spawn_blocking(move || {
        // Held until the work is done, even if the run is stopped meanwhile and this task is dropped.
        let _turn = turn;
        question.answer()
    });
    let error = match answered.await {
        Ok(None) => return,
        Ok(Some(Ok(outcome))) => {
            report(&runtime, &run, need, &outcome);
            None
        }
        Ok(Some(Err(error))) => Some(error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(error) = error {
        tracing::warn!("no memory is reclaimed for model {}: {error}", run.entry.name);
    }
    // The load timeout begins now.
    runtime.submit(SchedulerEvent::Progressed { run: run.id, measured: true });
}

/// Input of the reclaim, which runs on another thread.
struct ReclaimQuestion {
    need: Bytes,
    /// Models with page cache that may be dropped.
    models: Vec<ConfiguredModel>,
    /// Models with page cache that stays: their engines run, or load.
    living: Vec<ConfiguredModel>,
    hands: RootSteps,
    whom: NeighbourSelection,
    patience: Duration,
}

impl ReclaimQuestion {
    /// Reclaims memory; `None` if there is enough.
    fn answer(&self) -> Option<Result<ReclaimOutcome, ReclaimError>> {
        let tree = Sysroot::live();
        let snapshot = HostSnapshot::gather(&tree);
        // NVML reports that cards share the host's memory but not by which driver; without one only free
        // memory counts.
        let gate = snapshot.driver().is_none().then_some(AllowanceGate::Free);
        // The usual case; nothing is logged.
        if allowance(&snapshot, gate).is_some_and(|allowance| allowance.now >= self.need) {
            return None;
        }
        let spared = files::identities(&self.living);
        let mut files: Vec<_> = self.models.iter().flat_map(files::of_entry).collect();
        // Models may share files, under different names.
        files.retain(|path| files::identity(path).is_some_and(|file| !spared.contains(&file)));
        files.order();
        files.dedup();
        let request = ReclaimRequest {
            goal: ReclaimGoal { need: self.need, order: None },
            gate,
            files,
            hands: self.hands,
            whom: self.whom.clone(),
            patience: self.patience,
            force: false,
            dry_run: false,
        };
        Some(reclaim(&tree, &request))
    }
}

impl ReclaimJob {
    /// `None` for a run without a card, or of unknown need.
    fn question(&self, runtime: &Runtime, run: &EngineRun) -> Option<ReclaimQuestion> {
        let own = claim(runtime, run).filter(|need| !need.is_zero())?;
        let others = runtime.state.runs().into_iter().filter(|other| other.id != run.id);
        let others: Vec<Rc<EngineRun>> = others.collect();
        // A run without an upstream has not reported ready.
        let loading = others.iter().filter(|other| other.upstream().is_none());
        let theirs: Bytes = loading.filter_map(|other| claim(runtime, other)).sum();
        let idle: Vec<PathBuf> = self.guard.idle_pages(runtime);
        Some(ReclaimQuestion {
            need: own + theirs,
            models: runtime.state.present().iter().map(|(_, entry)| ConfiguredModel::clone(entry)).collect(),
            living: others.iter().map(|other| ConfiguredModel::clone(&other.entry)).collect(),
            hands: self.hands,
            whom: if self.ask.is_zero() {
                NeighbourSelection::Nobody
            } else {
                NeighbourSelection::Except(idle)
            },
            patience: self.ask,
        })
    }
}

/// Memory of its cards that the run may take; `None` if its need is unknown.
fn claim(runtime: &Runtime, run: &EngineRun) -> Option<Bytes> {
    let placement = run.placement();
    let cards = runtime.settings.cards_of(run.placement());
    (!placement.alone).then(|| cards.iter().map(|card| placement.on(&card.id)).sum())
}

fn report(runtime: &Runtime, run: &EngineRun, need: Bytes, outcome: &ReclaimOutcome) {
    let (name, done) = (&run.entry.name, done(need, outcome));
    tracing::info!("host memory reclaimed for {name}: {done}");
    runtime.events().reclaimed(name, &event(need, outcome));
    let mut hints = vec![Hint::new(Advice::Other(format!("before the load, {done}")))];
    if !outcome.last.withheld.is_empty() {
        let text =
            "allow the steps that need root: reclaim-before-load = \"sudo\" or \"systemd\" under [serve]";
        hints.push(Hint::new(Advice::Other(text.to_owned())));
    }
    runtime.show_hints(run.model, hints);
}

/// Adds a hint at the setting to a load that ran out of memory without reclaim.
pub(super) fn hint_at_reclaim(runtime: &Runtime, run: &EngineRun, end: &End) {
    let loading = Stage::Loading;
    let ran_out = matches!(end, End::OutOfMemory { stage, .. } if *stage == loading);
    if ran_out && !runtime.settings.cards_of(run.placement()).is_empty() {
        let text = "drop page cache before a load: reclaim-before-load = \"user\" under [serve], or \
                    --reclaim-before-load user";
        let hint = Hint::new(Advice::Other(text.to_owned()));
        runtime.show_hints(run.model, vec![hint]);
    }
}

/// The steps taken, as one line of text.
fn done(need: Bytes, outcome: &ReclaimOutcome) -> String {
    let mut text = format!("{need} of memory were needed ({})", outcome.before.allowance.reason.text);
    for taken in &outcome.taken {
        let step = taken.planned.step.name();
        text += &match &taken.result {
            Ok(()) => format!("; {step}: {}", gained(taken)),
            Err(error) => format!("; {step} failed: {error}"),
        };
    }
    for step in &outcome.last.withheld {
        text += &format!("; the step {} would free {}, but it needs root", step.step.name(), step.frees);
    }
    if !outcome.taken.is_empty() {
        text += &format!("; after these steps, {} can be allocated", outcome.after.allowance.now);
    }
    // The load goes on all the same; this line explains its likely failure.
    if let StepVerdict::Beyond { .. } = outcome.last.verdict {
        text += "; no permitted step frees enough";
        let limit = last_limit(need, &outcome.after.allowance);
        text.extend(limit.map(|limit| format!(": {}", in_a_line(limit))));
    }
    text
}

/// The limit that no step raises, if it is below the need.
fn last_limit(need: Bytes, allowance: &Allowance) -> Option<&Reason> {
    let bytes = Fact::from(allowance.attainable);
    let mut limits = allowance.reason.because.iter();
    limits.find(|limit| allowance.attainable < need && limit.facts.get("bytes") == Some(&bytes))
}

fn gained(taken: &TakenStep) -> String {
    let size = Bytes::new(u64::try_from(taken.freed.unsigned_abs()).unwrap_or(u64::MAX));
    if taken.freed < 0 {
        format!("{size} less are free, because other processes allocated more meanwhile")
    } else {
        format!("{size} more free")
    }
}

/// The steps taken, as an event for event streams.
fn event(need: Bytes, outcome: &ReclaimOutcome) -> Value {
    let measured = |measure: &plimsoll_reclaim::Measure| json!({ "free": measure.free(), "allowed": measure.allowance.now });
    let taken = outcome.taken.iter().map(|taken| {
        json!({
            "step": taken.planned.step.name(),
            "freed": i64::try_from(taken.freed).ok(),
            "error": taken.result.as_ref().err().map(ToString::to_string),
        })
    });
    let withheld = outcome.last.withheld.iter().map(|planned| planned.step.name());
    json!({
        "need": need,
        "before": measured(&outcome.before),
        "steps": taken.collect::<Vec<_>>(),
        "needs_root": withheld.collect::<Vec<_>>(),
        "after": measured(&outcome.after),
        "enough": outcome.is_enough(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_reclaim::judge;

    use super::*;

    const NEED: Bytes = Bytes::gib(13);

    /// The outcome on a captured machine, for a user without root.
    fn judged(tree: &str) -> ReclaimOutcome {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/sysroot").join(tree);
        let request = ReclaimRequest {
            goal: ReclaimGoal { need: NEED, order: None },
            gate: None,
            files: Vec::new(),
            hands: RootSteps::None,
            whom: NeighbourSelection::Nobody,
            patience: Duration::ZERO,
            force: false,
            dry_run: false,
        };
        judge(&Sysroot::captured(&tree).unwrap(), &request).unwrap()
    }

    #[test]
    fn steps_needing_root_are_named_with_their_gain() {
        let outcome = judged("gb10");
        let stated = done(NEED, &outcome);
        assert!(stated.starts_with("13312 MiB of memory were needed ("), "{stated}");
        assert!(
            stated.contains("; the step drop-page-cache would free 104672 MiB, but it needs root"),
            "{stated}"
        );
        let event = event(NEED, &outcome);
        assert_eq!(event["needs_root"], json!(["drop-page-cache"]));
        assert_eq!((&event["steps"], &event["enough"]), (&json!([]), &json!(false)));
    }

    #[test]
    fn upgrade_is_advised_on_releases_that_cap_allocations() {
        let stated = done(NEED, &judged("orin-nano-r36.4.7"));
        assert!(stated.contains("upgrade to R36.5.0"), "{stated}");
        assert!(
            stated.contains("limited by free memory); no permitted step frees enough: NvMap of R36.4.7"),
            "{stated}"
        );
    }
}
