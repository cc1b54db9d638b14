//! Writes the table of results of `pool-replay`, which replays an allocation trace under several allocator
//! policies.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_report::{aligned, written};

use super::report::{Replay, Replayed};

const COLUMNS: [&str; 6] = ["policy", "reserved", "of live", "driver calls", "completes", "smallest budget"];

/// Renders one line for each policy, then the failures of policies that stopped.
pub(crate) fn replay(replay: &Replay) -> String {
    written(|out| write(replay, out))
}

fn write(replay: &Replay, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "{} blocks, {} requests, peak of live memory {} ({} B)",
        replay.blocks,
        replay.steps,
        replay.peak_live,
        replay.peak_live.get()
    )?;
    match replay.budget {
        Some(budget) => {
            writeln!(out, "budget {budget}; at least {} are needed", replay.peak_live_in_granules)?
        }
        None => writeln!(out, "no budget is set; at least {} are needed", replay.peak_live_in_granules)?,
    }
    // A refused request left no block behind, so replaying it would change every later step.
    if replay.refused > 0 {
        writeln!(out, "{} requests that were refused during recording are not replayed", replay.refused)?;
    }
    writeln!(out)?;
    let rows: Vec<Vec<String>> = std::iter::once(COLUMNS.map(str::to_owned).to_vec())
        .chain(replay.policies.iter().map(|policy| row(policy, replay.peak_live).to_vec()))
        .collect();
    out.write_str(&aligned(&rows))?;
    // Below the table, because one long sentence would widen a column for all rows.
    for policy in &replay.policies {
        if let Some(failure) = &policy.failure {
            writeln!(out, "{} stops at {failure}", policy.policy)?;
        }
    }
    Ok(())
}

fn row(policy: &Replayed, live: Bytes) -> [String; 6] {
    let budget = policy.smallest_budget.map(|budget| {
        // In tenths of a percent, as integers: `Bytes` has no floating-point form.
        let percent = budget.scaled(1000, live.get().max(1)).get();
        format!("{budget} ({}.{}%)", percent / 10, percent % 10)
    });
    [
        policy.policy.to_string(),
        policy.peak_reserved.to_string(),
        format!("{:.2}x", policy.ratio),
        policy.driver_allocs.to_string(),
        if policy.completed { "yes" } else { "no" }.to_owned(),
        budget.unwrap_or_else(|| "none".to_owned()),
    ]
}
