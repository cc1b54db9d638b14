//! Prints the result of `plimsoll reclaim`: memory before, each step, memory after, and whether it is enough.

use std::fmt::Write;
use std::time::Duration;

use plimsoll_base::{Bytes, one_line};
use plimsoll_host::{BuddyInfo, PlannedStep, StepVerdict, Unseen};
use plimsoll_reclaim::{
    FileCache, Measure, Neighbour, ReclaimOutcome, ReclaimRequest, RequestedNeighbour, RootSteps, TakenStep,
};

/// The whole text.
pub(super) fn reported(request: &ReclaimRequest, outcome: &ReclaimOutcome) -> String {
    let mut text = format!("need    {}\n", need(request));
    text += &measure("before", request, &outcome.before);
    let _ = writeln!(text, "{}", indented(&outcome.before.allowance.reason.to_string()));
    for file in &outcome.before.files {
        text += &cached(file);
    }
    if request.dry_run {
        for planned in &outcome.course.steps {
            text += &would(planned);
        }
    }
    for taken in &outcome.taken {
        text += &done(request, taken);
    }
    // Without a step nothing has changed, and a second measurement would only show noise.
    if !outcome.taken.is_empty() {
        text += &measure("after", request, &outcome.after);
        text += &orders(&outcome.before, &outcome.after);
    }
    text += &verdict(request, outcome);
    text += &not_done(request, outcome);
    text
}

fn need(request: &ReclaimRequest) -> String {
    match request.goal.order {
        None => request.goal.need.to_string(),
        Some(order) => format!("{} in blocks of order {order} or larger", request.goal.need),
    }
}

fn measure(name: &str, request: &ReclaimRequest, measure: &Measure) -> String {
    let allowance = &measure.allowance;
    let mut text = format!(
        "{name:<7} {} free, {} can be allocated now, {} after reclaiming",
        measure.free(),
        allowance.now,
        allowance.attainable
    );
    // Large blocks matter only for a contiguous need; otherwise the figure would distract.
    if request.goal.order.is_some() {
        let _ = write!(text, "; {} are in blocks of the needed size", measure.whole());
    }
    text + "\n"
}

fn cached(file: &FileCache) -> String {
    let stated = match file.cached {
        Some(cached) => format!("about {cached} of {} are in the page cache", file.length),
        None => {
            format!("the file system does not report how much of its {} is in the page cache", file.length)
        }
    };
    format!("file    {}: {stated}\n", file.path.display())
}

fn would(planned: &PlannedStep) -> String {
    let root = if planned.step.needs_root() { " (needs root)" } else { "" };
    format!(
        "would   {}{root}: {}\n        {}\n",
        planned.step.name(),
        predicted(planned),
        planned.reason.text
    )
}

fn predicted(planned: &PlannedStep) -> String {
    match (planned.frees.is_zero(), planned.joins.is_zero()) {
        (false, true) => format!("predicted to free {}", planned.frees),
        (true, false) => format!("predicted to add at most {} in blocks of that size", planned.joins),
        _ => format!("predicted to free {}, at most {} in blocks of that size", planned.frees, planned.joins),
    }
}

fn done(request: &ReclaimRequest, taken: &TakenStep) -> String {
    let name = taken.planned.step.name();
    let mut text =
        format!("step    {name}: {}\n        {}\n", predicted(&taken.planned), taken.planned.reason.text);
    text.extend(taken.requested.iter().map(requested));
    match &taken.result {
        Ok(()) => {
            let _ = write!(text, "        took {}: {} free memory", seconds(taken.took), signed(taken.freed));
            if request.goal.order.is_some() {
                let _ = write!(text, ", {} in blocks of the needed size", signed(taken.joined));
            }
            text.push('\n');
        }
        Err(error) => {
            let _ = writeln!(text, "        failed: {error}");
        }
    }
    text
}

/// Free blocks of each order, before and after.
fn orders(before: &Measure, after: &Measure) -> String {
    let (Some(before), Some(after)) = (&before.snapshot.blocks, &after.snapshot.blocks) else {
        return String::new();
    };
    // Eleven orders of eight characters fit a line of 100.
    let row = |name: &str, cell: &dyn Fn(usize) -> String| {
        let cells: String =
            (0..before.orders().max(after.orders())).map(|order| format!("{:>8}", cell(order))).collect();
        format!("  {name:<7}{cells}\n")
    };
    let count = |blocks: &BuddyInfo, order| blocks.blocks(order).to_string();
    format!(
        "free blocks by order\n{orders}{before}{after}",
        orders = row("order", &|order| order.to_string()),
        before = row("before", &|order| count(before, order)),
        after = row("after", &|order| count(after, order))
    )
}

fn verdict(request: &ReclaimRequest, outcome: &ReclaimOutcome) -> String {
    let text = match outcome.last.verdict {
        StepVerdict::Enough if outcome.taken.is_empty() => "enough memory is free: nothing to do".to_owned(),
        StepVerdict::Enough => "enough".to_owned(),
        StepVerdict::Reachable if request.dry_run => {
            "not enough now; predicted to be enough after these steps".to_owned()
        }
        StepVerdict::Reachable => "not enough: the steps that would free enough were not taken".to_owned(),
        StepVerdict::Beyond { short } => {
            format!(
                "not enough: {short} more are needed, even after all permitted steps{}",
                holders(&outcome.after)
            )
        }
    };
    text + "\n"
}

/// Users of the memory that no step can free.
fn holders(measure: &Measure) -> String {
    let memory = &measure.snapshot.memory;
    let named = [
        ("programs' own memory", memory.anonymous),
        ("shared memory", memory.shmem),
        // Mapped pages are in use by a program, so drop_caches leaves them.
        ("page cache that processes have mapped", memory.mapped),
        // Only dentries and inodes can be dropped; this part stays until its owner frees it.
        ("the kernel's unreclaimable slab", memory.slab_unreclaimable),
        ("NvMap", memory.nvmap_used),
    ];
    let stated: Vec<String> = named
        .into_iter()
        .filter_map(|(name, bytes)| {
            Some(format!(
                "{name} {}",
                // Every machine has a few KiB in each class; only a MiB or more explains a shortage.
                bytes.filter(|bytes| *bytes >= Bytes::mib(1))?
            ))
        })
        .collect();
    if stated.is_empty() {
        return String::new();
    }
    format!("\n        held by {}", stated.join(", "))
}

/// Withheld steps, unreadable files, and idle memory of other processes.
fn not_done(request: &ReclaimRequest, outcome: &ReclaimOutcome) -> String {
    let mut text = String::new();
    for planned in &outcome.last.withheld {
        let _ = writeln!(
            text,
            "withheld {step}: {effect}; this step requires root\n        {reason}\nhint: {command}",
            step = planned.step.name(),
            effect = predicted(planned),
            reason = planned.reason.text,
            command = RootSteps::None.command(planned.step).join(" ")
        );
    }
    if !outcome.last.withheld.is_empty() {
        text += "hint: run `plimsoll reclaim` as root, or with --with sudo, or install the unit of --print-unit and use --with systemd\n";
    }
    let hidden = outcome
        .after
        .snapshot
        .unseen
        .iter()
        // A file that does not exist on this kernel is no reason to run as root.
        .filter(|(_, why)| *why == Unseen::Forbidden);
    let hidden: Vec<String> = hidden.map(|(path, _)| format!("/{path}")).collect();
    if !hidden.is_empty() && !outcome.is_enough() {
        let _ = writeln!(text, "note: not counted, because only root may read it: {}", hidden.join(", "));
    }
    if !outcome.is_enough() || request.dry_run {
        text.extend(outcome.idle().map(holds));
    }
    text
}

/// Text for a guarded process that can be requested to release memory.
pub(super) fn holds(neighbour: &Neighbour) -> String {
    format!(
        "note: {} holds {}, of which {} are idle in pools that guard manages for it\n",
        who(neighbour),
        neighbour.occupied.allocated,
        neighbour.occupied.idle
    )
}

/// Text for a guarded process that was requested to release memory, with its answer.
pub(super) fn requested(requested: &RequestedNeighbour) -> String {
    let (before, after) = (&requested.neighbour.occupied, &requested.after);
    let stated = if requested.answered {
        format!("the process gave back {}", requested.gave)
    } else {
        "the process did not answer, because it made no driver call while plimsoll waited".to_owned()
    };
    format!(
        "asked   {}: {stated}\n        before {} allocated, {} reserved, {} idle; after {} allocated, {} reserved, {} idle\n",
        who(&requested.neighbour),
        before.allocated,
        before.reserved,
        before.idle,
        after.allocated,
        after.reserved,
        after.idle
    )
}

fn who(neighbour: &Neighbour) -> String {
    let name = neighbour.name.as_deref().unwrap_or("a process");
    format!("{} (pid {})", one_line(name), neighbour.pid)
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("        {line}")).collect();
    lines.join("\n")
}

fn seconds(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

fn signed(difference: i128) -> String {
    // `Bytes` is unsigned, so the sign is printed separately.
    let size = Bytes::new(u64::try_from(difference.unsigned_abs()).unwrap_or(u64::MAX));
    format!("{}{size}", if difference < 0 { '-' } else { '+' })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_cards::Sysroot;
    use plimsoll_host::ReclaimGoal;
    use plimsoll_reclaim::{NeighbourSelection, judge};

    use super::*;

    #[test]
    fn an_ordinary_user_hears_what_was_not_done_and_the_command_that_does_it() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/sysroot/gb10");
        let request = ReclaimRequest {
            goal: ReclaimGoal { need: Bytes::gib(13), order: None },
            gate: None,
            files: Vec::new(),
            hands: RootSteps::None,
            whom: NeighbourSelection::Everybody,
            patience: std::time::Duration::from_secs(2),
            force: false,
            dry_run: false,
        };
        let stated = reported(&request, &judge(&Sysroot::captured(&tree).unwrap(), &request).unwrap());
        for part in [
            "not enough: the steps that would free enough were not taken\n",
            "withheld drop-page-cache: predicted to free 104672 MiB; this step requires root\n",
            "reclaim-step drop-page-cache\n",
            "--with sudo",
        ] {
            assert!(stated.contains(part), "{part}\n{stated}");
        }
        assert!(!stated.contains("step    "), "{stated}");
    }

    #[test]
    fn a_difference_has_a_sign() {
        assert_eq!(signed(3 << 20), "+3 MiB");
        assert_eq!(signed(-(3 << 20)), "-3 MiB");
        assert_eq!(signed(i128::MIN), format!("-{}", Bytes::MAX));
    }
}
