//! Prints the result of `plimsoll reclaim` as JSON (`plimsoll.reclaim/1`).

use plimsoll_host::{PlannedStep, StepVerdict};
use plimsoll_reclaim::{
    Measure, Neighbour, ProcessMemory, ReclaimOutcome, ReclaimRequest, RequestedNeighbour, RootSteps,
    TakenStep,
};
use serde_json::{Value, json};

pub(super) fn answer(request: &ReclaimRequest, outcome: &ReclaimOutcome) -> Value {
    json!({
        "schema": "plimsoll.reclaim/1",
        "need": request.goal.need,
        "order": request.goal.order,
        "dry_run": request.dry_run,
        "verdict": verdict(outcome),
        "short": short(outcome),
        "before": measure(&outcome.before),
        "planned": outcome.course.steps.iter().map(planned).collect::<Vec<_>>(),
        "taken": outcome.taken.iter().map(taken).collect::<Vec<_>>(),
        "withheld": outcome.last.withheld.iter().map(withheld).collect::<Vec<_>>(),
        "after": measure(&outcome.after),
        // Files that could not be read make the prediction weaker; a script can decide to run with sudo.
        "unseen": outcome.after.snapshot.unseen.iter().map(|(path, _)| path).collect::<Vec<_>>(),
        "idle_under_guard": outcome.idle().map(neighbour).collect::<Vec<_>>(),
    })
}

fn verdict(outcome: &ReclaimOutcome) -> &'static str {
    match outcome.last.verdict {
        StepVerdict::Enough => "enough",
        StepVerdict::Reachable => "reachable",
        StepVerdict::Beyond { .. } => "beyond",
    }
}

fn short(outcome: &ReclaimOutcome) -> Value {
    match outcome.last.verdict {
        StepVerdict::Beyond { short } => json!(short),
        StepVerdict::Enough | StepVerdict::Reachable => Value::Null,
    }
}

fn measure(measure: &Measure) -> Value {
    let blocks = measure.snapshot.blocks.as_ref();
    json!({
        "free": measure.snapshot.memory.free,
        "now": measure.allowance.now,
        "attainable": measure.allowance.attainable,
        "whole": measure.ground.pieces.map(|pieces| pieces.whole),
        "blocks": blocks.map(|blocks| (0..blocks.orders()).map(|order| blocks.blocks(order)).collect::<Vec<_>>()),
        "files": measure.files.iter().map(|file| json!({
            // JSON has no bytes that are not UTF-8; a lossy path is better than a failed report.
            "path": file.path.to_string_lossy(),
            "length": file.length,
            "cached": file.cached,
        })).collect::<Vec<_>>(),
        "reason": measure.allowance.reason,
    })
}

fn planned(planned: &PlannedStep) -> Value {
    json!({
        "step": planned.step.name(),
        "needs_root": planned.step.needs_root(),
        "frees": planned.frees,
        "joins_at_most": planned.joins,
        "reason": planned.reason,
    })
}

fn taken(taken: &TakenStep) -> Value {
    let mut value = planned(&taken.planned);
    value["seconds"] = json!(taken.took.as_secs_f64());
    // Signed: free memory can fall during a step, because other processes go on allocating.
    value["freed"] = json!(i64::try_from(taken.freed).ok());
    value["joined"] = json!(i64::try_from(taken.joined).ok());
    if !taken.requested.is_empty() {
        value["asked"] = taken.requested.iter().map(requested).collect();
    }
    value["error"] = json!(taken.result.as_ref().err().map(ToString::to_string));
    value
}

pub(super) fn neighbour(neighbour: &Neighbour) -> Value {
    json!({
        "pid": neighbour.pid,
        "name": neighbour.name,
        "idle": neighbour.occupied.idle,
    })
}

pub(super) fn requested(requested: &RequestedNeighbour) -> Value {
    json!({
        "pid": requested.neighbour.pid,
        "name": requested.neighbour.name,
        "answered": requested.answered,
        "gave": requested.gave,
        "before": occupied(&requested.neighbour.occupied),
        "after": occupied(&requested.after),
    })
}

fn occupied(occupied: &ProcessMemory) -> Value {
    json!({
        "allocated": occupied.allocated,
        "reserved": occupied.reserved,
        "idle": occupied.idle,
    })
}

fn withheld(step: &PlannedStep) -> Value {
    let mut value = planned(step);
    // With `RootSteps::None` this is the command that the user must run as root by hand.
    value["command"] = json!(RootSteps::None.command(step.step));
    value
}
