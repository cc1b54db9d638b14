//! Who failed beside whom, and why.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::load::Encounter;

pub(crate) fn beside(command: &str, encounters: &[Encounter]) -> String {
    let mut out = String::new();
    // writing to a string cannot fail
    let _ = write(command, encounters, &mut out);
    out
}

fn write(command: &str, encounters: &[Encounter], out: &mut String) -> fmt::Result {
    writeln!(out, "beside `{command}`")?;
    for encounter in encounters {
        let tally = &encounter.tally;
        writeln!(out, "{}: {}", encounter.order.words(), who_failed(encounter))?;
        writeln!(
            out,
            "  server: {} answered, {} failed",
            tally.answered,
            tally.failures()
        )?;
        for (kind, (count, texts)) in &tally.failed {
            writeln!(
                out,
                "    {count} × {kind}: {}",
                texts.first().map_or("", String::as_str)
            )?;
        }
        if encounter.server_died {
            writeln!(out, "    its process ended")?;
        }
        let program = encounter.program.as_deref().unwrap_or("did its work");
        writeln!(out, "  program: {}", program.replace('\n', "\n    "))?;
        for note in &encounter.notes {
            writeln!(out, "  note: {note}")?;
        }
    }
    Ok(())
}

fn who_failed(encounter: &Encounter) -> &'static str {
    match (encounter.server_failed(), encounter.program.is_some()) {
        (false, false) => "both got on",
        (true, false) => "the server failed",
        (false, true) => "the program failed",
        (true, true) => "both failed",
    }
}

/// `plimsoll.beside/1`.
pub(crate) fn beside_json(command: &str, encounters: &[Encounter]) -> Value {
    let each = encounters.iter().map(|encounter| {
        let failures = encounter
            .tally
            .failed
            .iter()
            .map(|(kind, (count, texts))| json!({ "kind": kind, "count": count, "texts": texts }));
        json!({
            "order": encounter.order.words(),
            "outcome": who_failed(encounter),
            "server": {
                "failed": encounter.server_failed(),
                "answered": encounter.tally.answered,
                "failures": failures.collect::<Vec<_>>(),
                "process_ended": encounter.server_died,
            },
            "program": { "failed": encounter.program.is_some(), "why": encounter.program },
            "notes": encounter.notes,
        })
    });
    json!({ "schema": "plimsoll.beside/1", "command": command, "orders": each.collect::<Vec<_>>() })
}
