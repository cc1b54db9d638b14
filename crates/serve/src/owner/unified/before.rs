//! Before a load: what `plimsoll reclaim --need` does, where the machine does not allow now what the model needs.
//!
//! DECISION: what is needed is the run's claim and the claims of those that are still loading, since what these have yet to take looks
//! free; so that is at most too much. One load at a time is looked after, in the order in which they start. The load
//! begins whatever came of it: a plan is a prediction, and the engine has the last word. What was done is then said beside the
//! failure. The daemon takes no step of root's by itself, even if it is root.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Advice, Bytes, End, Fact, Hint, Reason, Stage};
use plimsoll_config::{Entry, ReclaimBeforeLoad};
use plimsoll_host::{Allowance, Gate, Goal, Snapshot, Verdict, allowance};
use plimsoll_probe::sysroot::Sysroot;
use plimsoll_reclaim::{Hands, Outcome, ReclaimError, Taken, Whom, Wish, reclaim};
use plimsoll_scheduler::{Event, Stopping};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;

use super::files;
use crate::owner::Owner;
use crate::owner::run::Run;
use crate::owner::talk::in_a_line;

/// Makes room for the run, if that is asked for; breaks off if it is told to stop meanwhile.
pub(in crate::owner) async fn make_way(
    owner: &Owner,
    run: &Run,
    orders: &mut UnboundedReceiver<Stopping>,
) -> ControlFlow<()> {
    let Some(hands) = owner.hands() else {
        return ControlFlow::Continue(());
    };
    tokio::select! {
        () = reclaim_for(owner, run, hands) => ControlFlow::Continue(()),
        Some(_) = orders.recv() => ControlFlow::Break(()),
    }
}

async fn reclaim_for(owner: &Owner, run: &Run, hands: Hands) {
    let turn = Arc::clone(&owner.reclaiming).lock_owned().await;
    let Some(question) = owner.question(run, hands) else {
        return;
    };
    let need = question.need;
    let answered = spawn_blocking(move || {
        // Kept until it is done, whether or not somebody still waits for it.
        let _turn = turn;
        question.answer()
    });
    match answered.await {
        Ok(None) => return,
        Ok(Some(Ok(outcome))) => owner.tell_reclaimed(run, need, &outcome),
        Ok(Some(Err(error))) => tracing::warn!("nothing is reclaimed for {}: {error}", run.entry.name),
        Err(error) => tracing::warn!("nothing is reclaimed for {}: {error}", run.entry.name),
    }
    // The time that a load may take begins now.
    owner.submit(Event::Progressed { run: run.id });
}

/// All that the work needs to know, so that it can be done on another thread.
struct Question {
    need: Bytes,
    /// Whose page cache may go.
    models: Vec<Entry>,
    /// Whose may not: their engines run, or load.
    living: Vec<Entry>,
    hands: Hands,
    whom: Whom,
    patience: Duration,
}

impl Question {
    /// `None` where there is enough.
    fn answer(&self) -> Option<Result<Outcome, ReclaimError>> {
        let tree = Sysroot::live();
        let snapshot = Snapshot::gather(&tree);
        // NVML says that cards take the host's memory, and nothing which driver that is: only what is free counts then.
        let gate = snapshot.driver().is_none().then_some(Gate::Free);
        if allowance(&snapshot, gate).is_some_and(|allowance| allowance.now >= self.need) {
            return None;
        }
        let spared = files::identities(&self.living);
        let mut files: Vec<_> = self.models.iter().flat_map(files::of_entry).collect();
        files.retain(|path| files::identity(path).is_some_and(|file| !spared.contains(&file)));
        files.sort();
        files.dedup();
        let wish = Wish {
            goal: Goal {
                need: self.need,
                order: None,
            },
            gate,
            files,
            hands: self.hands,
            whom: self.whom.clone(),
            patience: self.patience,
            force: false,
            dry_run: false,
        };
        Some(reclaim(&tree, &wish))
    }
}

impl Owner {
    /// Who takes root's steps, where anything is to be done at all.
    fn hands(&self) -> Option<Hands> {
        match self.terms.reclaim_before_load {
            _ if !self.terms.unified => None,
            ReclaimBeforeLoad::Off => None,
            ReclaimBeforeLoad::User => Some(Hands::None),
            ReclaimBeforeLoad::Sudo => Some(Hands::Sudo),
            ReclaimBeforeLoad::Systemd => Some(Hands::Systemd),
        }
    }

    /// `None` for a run that takes no card, or nobody knows how much of it.
    fn question(&self, run: &Run, hands: Hands) -> Option<Question> {
        let own = self.takes(run).filter(|need| !need.is_zero())?;
        let state = self.state.borrow();
        let others: Vec<&Rc<Run>> = state.runs.values().filter(|other| other.id != run.id).collect();
        let loading = others.iter().filter(|other| other.upstream().is_none());
        let theirs: Bytes = loading.filter_map(|other| self.takes(other)).sum();
        Some(Question {
            need: own + theirs,
            models: state
                .roll
                .present()
                .map(|(_, entry)| Entry::clone(entry))
                .collect(),
            living: others.iter().map(|other| Entry::clone(&other.entry)).collect(),
            hands,
            whom: match self.terms.ask.is_zero() {
                true => Whom::Nobody,
                false => Whom::Except(self.resting()),
            },
            patience: self.terms.ask,
        })
    }

    fn takes(&self, run: &Run) -> Option<Bytes> {
        let placement = run.placement();
        let cards = self.cards_of(run);
        (!placement.alone).then(|| cards.iter().map(|card| placement.on(&card.id)).sum())
    }

    fn tell_reclaimed(&self, run: &Run, need: Bytes, outcome: &Outcome) {
        let (name, done) = (&run.entry.name, done(need, outcome));
        tracing::info!("reclaim for {name}: {done}");
        self.events.reclaimed(name, &event(need, outcome));
        let mut hints = vec![Hint::new(Advice::Other(format!("before the load, {done}")))];
        if !outcome.last.withheld.is_empty() {
            let text = "let others take the steps that need root: reclaim-before-load = \"sudo\" or \"systemd\" under [serve]";
            hints.push(Hint::new(Advice::Other(text.to_owned())));
        }
        self.notes.with(run.model, |note| note.hints = hints);
    }

    /// A load that ran out of memory where nothing was done for it is told what could be.
    pub(in crate::owner) fn hint_at_reclaim(&self, run: &Run, end: &End) {
        let loading = Stage::Loading;
        let ran_out = matches!(end, End::OutOfMemory { stage, .. } if *stage == loading);
        let off = self.terms.unified && self.terms.reclaim_before_load == ReclaimBeforeLoad::Off;
        if ran_out && off && !self.cards_of(run).is_empty() {
            let text = "let page cache be given back before a load: reclaim-before-load = \"user\" under [serve], or \
                        --reclaim-before-load user";
            let hint = Hint::new(Advice::Other(text.to_owned()));
            self.notes.with(run.model, |note| note.hints = vec![hint]);
        }
    }
}

/// What was done, in a line.
fn done(need: Bytes, outcome: &Outcome) -> String {
    let mut text = format!("{need} were needed ({})", outcome.before.allowance.reason.text);
    for taken in &outcome.taken {
        let step = taken.planned.step.name();
        text += &match &taken.result {
            Ok(()) => format!("; {step}: {}", gained(taken)),
            Err(error) => format!("; {step} failed: {error}"),
        };
    }
    for step in &outcome.last.withheld {
        text += &format!("; {} would free {} and needs root", step.step.name(), step.frees);
    }
    if !outcome.taken.is_empty() {
        text += &format!("; {} were allowed after it", outcome.after.allowance.now);
    }
    if let Verdict::Beyond { .. } = outcome.last.verdict {
        text += "; no step that may be taken makes that enough";
        let limit = last_limit(need, &outcome.after.allowance);
        text.extend(limit.map(|limit| format!(": {}", in_a_line(limit))));
    }
    text
}

/// What no step moves, where that is less than the need.
fn last_limit(need: Bytes, allowance: &Allowance) -> Option<&Reason> {
    let bytes = Fact::from(allowance.attainable);
    let mut limits = allowance.reason.because.iter();
    limits.find(|limit| allowance.attainable < need && limit.facts.get("bytes") == Some(&bytes))
}

fn gained(taken: &Taken) -> String {
    let size = Bytes::new(u64::try_from(taken.freed.unsigned_abs()).unwrap_or(u64::MAX));
    match taken.freed < 0 {
        true => format!("{size} less free, others took more meanwhile"),
        false => format!("{size} more free"),
    }
}

/// The same for programs.
fn event(need: Bytes, outcome: &Outcome) -> Value {
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

    /// What would be said on a captured machine, whose user is not root.
    fn judged(tree: &str) -> Outcome {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../data/sysroot")
            .join(tree);
        let wish = Wish {
            goal: Goal {
                need: NEED,
                order: None,
            },
            gate: None,
            files: Vec::new(),
            hands: Hands::None,
            whom: Whom::Nobody,
            patience: Duration::ZERO,
            force: false,
            dry_run: false,
        };
        judge(&Sysroot::captured(&tree).unwrap(), &wish).unwrap()
    }

    #[test]
    fn what_needs_root_is_named_with_what_it_would_bring() {
        let outcome = judged("gb10");
        let said = done(NEED, &outcome);
        assert!(said.starts_with("13312 MiB were needed ("), "{said}");
        assert!(
            said.contains("; drop-page-cache would free 104672 MiB and needs root"),
            "{said}"
        );
        let event = event(NEED, &outcome);
        assert_eq!(event["needs_root"], json!(["drop-page-cache"]));
        assert_eq!((&event["steps"], &event["enough"]), (&json!([]), &json!(false)));
    }

    #[test]
    fn where_a_release_caps_allocations_the_upgrade_is_named_and_no_step() {
        let said = done(NEED, &judged("orin-nano-r36.4.7"));
        assert!(said.contains("the remedy is an upgrade to R36.5.0"), "{said}");
        assert!(
            said.contains(
                "free memory decides); no step that may be taken makes that enough: NvMap of R36.4.7"
            ),
            "{said}"
        );
    }
}
