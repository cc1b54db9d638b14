//! Prints the memory summary at the end of `plimsoll run`: one line for each card, or JSON.

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use plimsoll_base::{Bytes, CardNames, masked};
use plimsoll_probe::guard::{CardRecord, GuardRefusal, Record};
use plimsoll_verb::child::ChildEnd;
use plimsoll_wire::page::Refusal;
use serde_json::{Value, json};

use super::cards::named;
use crate::terminal;

const SCHEMA: &str = "plimsoll.run/1";
const REASONS: [Refusal; 4] = [Refusal::Budget, Refusal::Driver, Refusal::Spill, Refusal::Context];

pub(super) struct RunSummary<'a> {
    pub(super) command: &'a [OsString],
    /// Cards of the machine, for their names.
    pub(super) cards: Vec<CardNames>,
    pub(super) record: Record,
    pub(super) trace: Option<PathBuf>,
    pub(super) end: ChildEnd,
    /// True if it could spill, but its demand could not be planned.
    pub(super) unplanned: bool,
}

impl RunSummary<'_> {
    pub(super) fn print(&self) {
        self.lines().iter().for_each(|line| say(line));
    }

    fn lines(&self) -> Vec<String> {
        let cards = self.record.cards();
        let mut lines: Vec<String> = self.hint(&cards).into_iter().collect();
        lines.extend(cards.iter().map(|card| self.line(card)));
        if cards.is_empty() {
            lines.push("the program allocated no GPU memory".to_owned());
        }
        let pinned = self.record.pinned();
        if !pinned.is_zero() {
            lines.push(format!("host memory: at most {pinned} were pinned"));
        }
        match self.record.disarmed() {
            0 => {}
            // Their allocations are missing in every figure, so this must not go unmentioned.
            1 => lines.push("guard switched itself off in one process, which then ran unguarded".to_owned()),
            n => lines.push(format!("guard switched itself off in {n} processes, which then ran unguarded")),
        }
        lines
    }

    /// Hint for the next run, if the first allocations should have overflowed instead of the last.
    fn hint(&self, cards: &[CardRecord]) -> Option<String> {
        let spilled = cards.iter().filter(|card| !card.spilled.is_zero());
        let most = spilled.map(|card| card.requested).max().filter(|_| self.unplanned)?;
        // Rounded up: a need that is a byte too small would let the last allocation overflow again.
        let most = most.get().div_ceil(1 << 20);
        Some(format!(
            "hint: --need {most}MiB puts the first allocations (usually weights) into host memory, instead of \
            the last (usually the KV cache)"
        ))
    }

    fn line(&self, card: &CardRecord) -> String {
        let mut line = format!("{}: peak {}", self.label(card), card.peak);
        // Writing to a string cannot fail.
        if let Some(budget) = card.budget {
            let _ = write!(line, " of a budget of {budget}");
        }
        let _ = write!(line, ", reserved {}, spilled {}", card.reserved, card.spilled);
        // One process is the usual case; the number matters because they share one budget.
        if card.processes > 1 {
            let _ = write!(line, ", in {} processes", card.processes);
        }
        let _ = match card.refusals {
            0 => write!(line, ", no refusal"),
            n => write!(line, ", {n} refused{}", reasons(card)),
        };
        line
    }

    /// Name of the card, with its number if other cards share the name.
    fn label(&self, card: &CardRecord) -> String {
        match named(&self.cards, &card.uuid.to_string()) {
            Some((number, found)) => {
                // Machines with eight equal cards are common, and the name alone would not tell them apart.
                let namesakes = self.cards.iter().filter(|other| other.name == found.name);
                match namesakes.count() {
                    1 => found.name.clone(),
                    _ => format!("{} {number}", found.name),
                }
            }
            None => card.uuid.to_string(),
        }
    }

    pub(super) fn json(&self) -> Value {
        let command: Vec<_> = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        json!({
            "schema": SCHEMA,
            "command": masked(&command),
            "exit": self.end,
            "processes": self.record.armed(),
            "disarmed": self.record.disarmed(),
            "pools": self.record.pools(),
            "pinned": self.record.pinned(),
            "trace": self.trace.as_ref().map(|path| format!("{}.PID", path.display())),
            "cards": self.record.cards().iter().map(|card| self.card_json(card)).collect::<Vec<_>>(),
        })
    }

    fn card_json(&self, card: &CardRecord) -> Value {
        let uuid = card.uuid.to_string();
        json!({
            "uuid": uuid,
            "name": named(&self.cards, &uuid).map(|(_, card)| card.name.clone()),
            "total": card.total,
            "budget": card.budget,
            "peak": card.peak,
            "reserved": card.reserved,
            "spilled": card.spilled,
            "allocations": card.allocations,
            "processes": card.processes,
            "refusals": card.refusals,
            "refused": card.refused.iter().map(refused_json).collect::<Vec<_>>(),
        })
    }
}

/// Prints one line on stderr; a closed stderr is ignored.
pub(super) fn say(line: &str) {
    use io::Write;
    // The prefix separates our lines from those of the program, which shares stderr.
    let _ = writeln!(terminal::stderr(), "plimsoll run: {line}");
}

fn refused_json(refused: &GuardRefusal) -> Value {
    json!({
        "pid": refused.pid,
        "reason": word(refused.why),
        "asked": refused.requested,
        "allocated": refused.allocated,
        "budget": refused.budget,
        "free": refused.free,
    })
}

/// Formats the refusals of a card: ` (2 by the budget, 1 by the driver; the largest requested 512 MiB)`.
fn reasons(card: &CardRecord) -> String {
    let counts = REASONS.iter().filter_map(|why| match card.refused_for(*why) {
        0 => None,
        n => Some(format!("{n} by the {}", word(*why))),
    });
    let counts: Vec<String> = counts.collect();
    let largest: Option<Bytes> = card.refused.iter().map(|refused| refused.requested).max();
    largest.map_or_else(String::new, |largest| {
        format!(" ({}; the largest requested {largest})", counts.join(", "))
    })
}

fn word(why: Refusal) -> &'static str {
    match why {
        Refusal::Budget => "budget",
        Refusal::Driver => "driver",
        Refusal::Spill => "spill",
        Refusal::Context => "plan",
    }
}
