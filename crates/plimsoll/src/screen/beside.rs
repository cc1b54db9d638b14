//! Report of a coexistence test (`soak --beside`), in which a second program shares a server's card: text,
//! JSON and HTML page.

use std::fmt::{self, Write};

use plimsoll_lab::load::{Ending, OrderResult, Served, failed_so};
use serde_json::{Value, json};

use plimsoll_report::{ReportPage, written};

/// Number of output lines shown if no cause is found.
const LAST_LINES: usize = 5;

/// Report of a coexistence test of a server and a second program, in both orders.
#[derive(Debug)]
pub(crate) struct BesideReport<'a> {
    pub(crate) target: String,
    pub(crate) model: &'a str,
    pub(crate) command: &'a str,
    pub(crate) encounters: &'a [OrderResult],
}

impl BesideReport<'_> {
    pub(crate) fn finds_a_failure(&self) -> bool {
        self.encounters.iter().any(OrderResult::failed)
    }

    pub(crate) fn text(&self) -> String {
        written(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "{} at {} beside `{}`", self.model, self.target, self.command)?;
        for encounter in self.encounters {
            writeln!(out, "{}: {}", encounter.order.words(), who_failed(encounter))?;
            write_served(&encounter.server, out)?;
            write_ending(&encounter.program, out)?;
            for note in &encounter.notes {
                writeln!(out, "  note: {note}")?;
            }
        }
        Ok(())
    }

    /// `plimsoll.beside/1`.
    pub(crate) fn json(&self) -> Value {
        let orders = self.encounters.iter().map(|encounter| {
            json!({
                "order": encounter.order.words(),
                "outcome": who_failed(encounter),
                "server": served(&encounter.server),
                "program": ending(&encounter.program),
                "notes": encounter.notes,
            })
        });
        json!({
            "schema": "plimsoll.beside/1",
            "target": self.target,
            "model": self.model,
            "command": self.command,
            "failed": self.finds_a_failure(),
            "orders": orders.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn html(&self) -> String {
        let mut page = ReportPage::new(&format!("{} beside a second program", self.model));
        let text = match self.finds_a_failure() {
            true => "One of the two programs failed",
            false => "Both programs worked in either order",
        };
        page.verdict(text, self.finds_a_failure());
        page.text(&format!("Server: {}", self.target));
        page.lines(self.command);
        for encounter in self.encounters {
            page.heading(&format!("{}: {}", encounter.order.words(), who_failed(encounter)));
            let (mut server, mut program) = (String::new(), String::new());
            // writing to a string cannot fail
            let _ = write_served(&encounter.server, &mut server);
            let _ = write_ending(&encounter.program, &mut program);
            page.lines(&(server + &program));
            for note in &encounter.notes {
                page.text(note);
            }
            // Folded: a traceback of PyTorch is long, and the diagnosis above usually explains it.
            if !encounter.program.last_lines.is_empty() {
                page.folded("last lines of the program's output", &encounter.program.last_lines.join("\n"));
            }
        }
        page.finish()
    }
}

fn who_failed(encounter: &OrderResult) -> &'static str {
    match (encounter.server.failed(), encounter.program.failed) {
        (false, false) => "both got on",
        (true, false) => "the server failed",
        (false, true) => "the program failed",
        (true, true) => "both failed",
    }
}

fn write_served(server: &Served, out: &mut String) -> fmt::Result {
    let tally = &server.tally;
    let (answered, failed) = (tally.answered, tally.failures());
    let slowest = server.slowest;
    writeln!(
        out,
        "  server: {answered} answered, {failed} failed; the longest time to the first token was \
            {slowest:.0} ms"
    )?;
    for (kind, (count, texts)) in &tally.failed {
        // Engines answer with errors of several lines; indented, they stay below their heading.
        let text = failed_so(kind, *count, texts).replace('\n', "\n      ");
        writeln!(out, "    {text}")?;
    }
    if server.ended > 0 {
        writeln!(out, "    number of times that the server's process ended: {}", server.ended)?;
    }
    if let Some(diagnosis) = &server.diagnosis {
        // As JSON, because the program's verdict arrives as JSON, and one function shows both.
        write_diagnosis(&serde_json::to_value(diagnosis).unwrap_or_default(), out)?;
    }
    match server.recovered {
        Some(true) => writeln!(out, "    the server answered again after the program ended"),
        Some(false) => writeln!(out, "    the server did not answer after the program ended"),
        None => Ok(()),
    }
}

fn write_ending(program: &Ending, out: &mut String) -> fmt::Result {
    let seconds = program.lasted.as_secs_f64();
    writeln!(out, "  program: {} after {seconds:.1} s", program.status)?;
    // A diagnosis with confidence 0 names no cause; the program's own last lines say more.
    let named = program.diagnosis.as_ref().filter(|verdict| is_named(verdict));
    if let Some(verdict) = named {
        return write_diagnosis(verdict, out);
    }
    let last = program.last_lines.len().saturating_sub(LAST_LINES);
    for line in program.last_lines[last..].iter().filter(|_| program.failed) {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

fn is_named(verdict: &Value) -> bool {
    verdict["confidence"].as_f64().is_some_and(|confidence| confidence > 0.0)
}

/// Writes the cause, the lines that prove it, and the hints.
fn write_diagnosis(verdict: &Value, out: &mut String) -> fmt::Result {
    if !is_named(verdict) {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let confidence = verdict["confidence"].as_f64().unwrap_or_default();
    writeln!(out, "    {}, confidence {confidence:.2}", text(&verdict["cause"]))?;
    for quote in verdict["evidence"].as_array().into_iter().flatten() {
        writeln!(out, "      {}", text(&quote["text"]).trim())?;
    }
    for hint in verdict["hints"].as_array().into_iter().flatten() {
        writeln!(out, "    hint: {}", text(&hint["text"]))?;
    }
    Ok(())
}

fn served(server: &Served) -> Value {
    let failures = server
        .tally
        .failed
        .iter()
        .map(|(kind, (count, texts))| json!({ "kind": kind, "count": count, "texts": texts }));
    json!({
        "failed": server.failed(),
        "answered": server.tally.answered,
        "failures": failures.collect::<Vec<_>>(),
        "slowest_first_token_ms": server.slowest,
        "processes_ended": server.ended,
        "diagnosis": server.diagnosis,
        "recovered": server.recovered,
    })
}

fn ending(program: &Ending) -> Value {
    json!({
        "failed": program.failed,
        "status": program.status,
        "seconds": program.lasted.as_secs_f64(),
        "diagnosis": program.diagnosis,
        "last_lines": program.last_lines,
    })
}
