//! Prints the result of `plimsoll measure sweep`: memory and speed by prompt length, as a table or JSON.

mod picture;

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_report::written;
use serde_json::{Value, json};

use crate::load::{Sweep, SweepDepth, is_own, slope};

/// Planned memory from the server's own flags, summed over its cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SweepPlan {
    pub(crate) loaded: Bytes,
    pub(crate) peak: Bytes,
    /// Context in tokens.
    pub(crate) context: u64,
    /// Bytes of cache per token of context, reserved at loading.
    pub(crate) cache_per_token: Bytes,
    /// Bytes of run-time pool per token of depth.
    pub(crate) pool_per_token: Bytes,
    /// Build of llama.cpp, if it is known.
    pub(crate) build: Option<u32>,
}

impl SweepPlan {
    /// Planned memory after a prompt of this depth: the peak minus the pool for deeper prompts.
    fn at(&self, tokens: u64) -> Bytes {
        // The plan's peak is at full context; each token below it saves its share of the pool.
        let deeper = self.context.saturating_sub(tokens);
        let added = self.pool_per_token.get().saturating_mul(deeper);
        self.peak.saturating_sub(Bytes::new(added)).max(self.loaded)
    }
}

/// Report of a finished sweep.
#[derive(Debug)]
pub(crate) struct SweepReport<'a> {
    pub(crate) target: String,
    pub(crate) model: &'a str,
    pub(crate) sweep: &'a Sweep,
    pub(crate) planned: Option<SweepPlan>,
    /// Reason for a missing plan.
    pub(crate) unplanned: Option<String>,
}

/// Head of the table; `sweep_row` formats each row as it arrives.
pub(crate) fn sweep_head() -> String {
    format!(
        "{:>9} {:>12} {:>12} {:>12} {:>10}  memory\n",
        "tokens", "prompt t/s", "answer t/s", "first token", "planned"
    )
}

pub(crate) fn sweep_row(depth: &SweepDepth, planned: Option<SweepPlan>) -> String {
    let speed = |speed: Option<f64>| speed.map_or_else(|| "-".to_owned(), |speed| format!("{speed:.1}"));
    let occupied: Vec<String> =
        depth.occupied.iter().map(|(name, occupied)| format!("{name} {occupied}")).collect();
    match &depth.outcome {
        Ok(speeds) => format!(
            "{:>9} {:>12} {:>12} {:>9.1} ms {:>10}  {}{}\n",
            depth.tokens,
            speed(speeds.prompt),
            speed(speeds.answer),
            speeds.first_token.as_secs_f64() * 1000.0,
            planned.map_or_else(|| "-".to_owned(), |planned| planned.at(depth.tokens).to_string()),
            occupied.join(", "),
            if depth.disturbed { "  disturbed" } else { "" }
        ),
        // `asked`, because the number of tokens is only known from an answer.
        Err(failure) => format!("{:>9} failed: {failure}\n", depth.requested),
    }
}

impl SweepReport<'_> {
    /// Advice on depths during which the model was stopped, if there are any.
    pub(crate) fn stopped(&self) -> Option<String> {
        let of = self.sweep.depths.len();
        let disturbed = self.sweep.depths.iter().filter(|depth| depth.disturbed).count();
        let are = if disturbed == 1 { "is" } else { "are" };
        (disturbed > 0).then(|| {
            format!(
                "{disturbed} of {of} rows {are} disturbed: the model was stopped meanwhile, for other clients or by itself, so times \
                may include a load, and memory is that of another process; no verdict\nhint: keep other clients away, or pin the model \
                (`plimsoll pin {}`), and sweep again",
                self.model
            )
        })
    }

    pub(crate) fn summary(&self) -> String {
        written(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        if let Some(stopped) = self.stopped() {
            writeln!(out, "{stopped}")?;
        }
        for (name, curve) in self.sweep.curves() {
            // A slope needs two depths; with a single one there is no growth to print.
            if let (Some(slope), Some(first), Some(last)) = (slope(&curve), curve.first(), curve.last()) {
                writeln!(
                    out,
                    "{name}: {slope:.0} B more for each token of depth (median of all pairs of depths); {} at the start, {} at \
                        {} tokens",
                    first.1, last.1, last.0
                )?;
            }
        }
        if let Some(learned) = self.sweep.learned {
            writeln!(out, "plimsoll serve itself measured {learned} B per token")?;
        }
        match self.planned {
            Some(planned) => self.write_planned(&planned, out),
            None => {
                let why = self.unplanned.as_deref().unwrap_or("the server's process is not known");
                writeln!(out, "there is no plan to compare with: {why}")
            }
        }
    }

    fn write_planned(&self, planned: &SweepPlan, out: &mut String) -> fmt::Result {
        let build = planned
            .build
            .map_or_else(|| "the newest known build".to_owned(), |build| format!("build {build}"));
        writeln!(
            out,
            "plan for the server's flags and llama.cpp, {build}: {} when loaded, {} at the full context of {} tokens; \
                per token, {} B of KV cache and {} B of run-time pool",
            planned.loaded,
            planned.peak,
            planned.context,
            planned.cache_per_token.get(),
            planned.pool_per_token.get(),
        )?;
        let Some((tokens, occupied)) = self.deepest_on_cards() else {
            return Ok(());
        };
        // Signed and wide: the server can have less than planned, and both are unsigned sizes.
        let off = i128::from(occupied.get()) - i128::from(planned.at(tokens).get());
        writeln!(
            out,
            "at {tokens} tokens the server holds {occupied} on the cards, which is {} MiB {} than planned",
            off.unsigned_abs() >> 20,
            if off < 0 { "less" } else { "more" }
        )
    }

    /// Memory of the server on all cards after its deepest prompt, if the driver reports it.
    fn deepest_on_cards(&self) -> Option<(u64, Bytes)> {
        let mut answered = self.sweep.depths.iter().filter(|depth| depth.outcome.is_ok() && !depth.disturbed);
        let deepest = answered.next_back()?;
        // Other figures count the same bytes again, for the card as a whole.
        let own = deepest.occupied.iter().filter(|(name, _)| is_own(name));
        let sum: Bytes = own.map(|(_, occupied)| *occupied).sum();
        (!sum.is_zero()).then_some((deepest.tokens, sum))
    }

    /// `plimsoll.sweep/1`.
    pub(crate) fn json(&self) -> Value {
        let depths = self.sweep.depths.iter().map(|depth| {
            let speeds = depth.outcome.as_ref().ok();
            json!({
                "asked": depth.requested,
                "tokens": depth.tokens,
                "failure": depth.outcome.as_ref().err().map(ToString::to_string),
                "prompt_per_second": speeds.and_then(|speeds| speeds.prompt),
                "answer_per_second": speeds.and_then(|speeds| speeds.answer),
                "first_token_ms": speeds.map(|speeds| speeds.first_token.as_secs_f64() * 1000.0),
                "planned": self.planned.map(|planned| planned.at(depth.tokens)),
                "held": occupied(&depth.occupied),
                "disturbed": depth.disturbed,
            })
        });
        let growth = self
            .sweep
            .curves()
            .into_iter()
            .map(|(name, curve)| json!({ "figure": name, "bytes_per_token": slope(&curve) }));
        json!({
            "schema": "plimsoll.sweep/1",
            "target": self.target,
            "model": self.model,
            "before": occupied(&self.sweep.before),
            "depths": depths.collect::<Vec<_>>(),
            "growth": growth.collect::<Vec<_>>(),
            "learned_bytes_per_token": self.sweep.learned,
            "planned": self.planned.map(|planned| json!({
                "build": planned.build,
                "loaded": planned.loaded,
                "peak": planned.peak,
                "context": planned.context,
                "cache_bytes_per_token": planned.cache_per_token,
                "pool_bytes_per_token": planned.pool_per_token,
            })),
        })
    }
}

fn occupied(occupied: &[(String, Bytes)]) -> Value {
    occupied.iter().map(|(name, occupied)| json!({ "figure": name, "bytes": occupied })).collect()
}
