//! Prints the result of `plimsoll measure soak`, a load test for memory leaks, as text, JSON or an HTML page.

use std::fmt::{self, Write};

use plimsoll_base::{Bytes, counted};
use plimsoll_report::{Chart, Mark, ReportPage, RoundSteps, TrendCourse, written};
use plimsoll_verb::lasted;
use serde_json::{Value, json};

use crate::load::{SoakResults, SoakVerdict, failed_so, thousands};
use crate::trend::TrendGrowth;

/// Report of a finished soak.
#[derive(Debug)]
pub(crate) struct SoakReport<'a> {
    results: &'a SoakResults,
    judged: Vec<SoakVerdict<'a>>,
    /// Growth in bytes per request that is not reported.
    negligible: f64,
}

impl<'a> SoakReport<'a> {
    /// Judges the figures; growth below `negligible` bytes per request is ignored.
    pub(crate) fn new(results: &'a SoakResults, negligible: f64) -> Self {
        Self { results, judged: results.judged(negligible), negligible }
    }

    pub(crate) fn finds_a_leak(&self) -> bool {
        self.judged.iter().any(SoakVerdict::is_leak)
    }

    pub(crate) fn text(&self) -> String {
        written(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let results = self.results;
        writeln!(
            out,
            "model {} at {}: {} in {}, {}, {} failed",
            results.model,
            results.target,
            counted(results.requests, "request"),
            counted(results.rounds, "round"),
            lasted(results.occupied_ms),
            results.failed()
        )?;
        writeln!(out, "{}", self.headline())?;
        // Without this line, a soak that saw no memory would read like a soak without a leak.
        if self.judged.is_empty() {
            writeln!(
                out,
                "  no memory was measured: the server's process is not on this machine, or cannot be read"
            )?;
        }
        for figure in &self.judged {
            writeln!(out, "  {}: {}", figure.name, verdict(figure))?;
            for step in &figure.steps {
                let way = if step.to > step.from { "taken" } else { "given back" };
                writeln!(
                    out,
                    "    {} {way} in one step, by request {} (memory in use went from {} to {})",
                    step.size(),
                    step.at,
                    step.from,
                    step.to
                )?;
            }
        }
        for line in self.remarks() {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }

    /// Remarks on speed, failures and events.
    fn remarks(&self) -> Vec<String> {
        let results = self.results;
        let mut remarks = Vec::new();
        // Milli-tokens per second: courses store integers.
        let speed = SoakResults::middle(&results.speed);
        let change = results.slower_percent();
        remarks.extend(speed.map(|speed| {
            let change = change.map_or_else(String::new, |change| {
                // A percentage with a sign is misread easily, so the direction is a word.
                let way = if change < 0.0 { "faster" } else { "slower" };
                format!(", {:.1} % {way} at the end than at the beginning", change.abs())
            });
            format!(
                "speed: {:.1} tokens per second for one client, the median of all rounds{change}",
                thousands(speed)
            )
        }));
        for (kind, (count, texts)) in &results.failures {
            remarks.push(failed_so(kind, *count, texts).replace('\n', "\n    "));
        }
        let notes = results.notes.iter();
        remarks.extend(notes.map(|(at, text)| format!("after {}: {text}", counted(*at, "request"))));
        remarks
    }

    /// `plimsoll.soak/1`.
    pub(crate) fn json(&self) -> Value {
        let results = self.results;
        let failures: Vec<Value> = results
            .failures
            .iter()
            .map(|(kind, (count, texts))| json!({ "kind": kind, "count": count, "texts": texts }))
            .collect();
        let notes = results.notes.iter().map(|(at, text)| json!({ "requests": at, "text": text }));
        json!({
            "schema": "plimsoll.soak/1",
            "target": results.target,
            "model": results.model,
            "leak": self.finds_a_leak(),
            "server_gone": results.broke_off,
            "requests": results.requests,
            "rounds": results.rounds,
            "seconds": thousands(results.occupied_ms),
            "prompt_tokens": results.prompt_tokens,
            "answer_tokens": results.answer_tokens,
            "failed": results.failed(),
            "failures": failures,
            "figures": self.judged,
            "slower_percent": results.slower_percent(),
            "looks": results.looks,
            "notes": notes.collect::<Vec<_>>(),
        })
    }

    fn headline(&self) -> String {
        match (self.finds_a_leak(), self.results.broke_off, self.without_verdict()) {
            (true, _, _) if self.results.fresh => {
                "It leaks, or its prompt cache is still filling; with `-cram 0`, only a leak would remain"
                    .to_owned()
            }
            (true, _, _) => "It leaks".to_owned(),
            (false, true, _) => "The server no longer answers".to_owned(),
            (false, false, Some(why)) => format!("No verdict: {why}"),
            (false, false, None) => {
                let unseen = self.unseen();
                match self.results.failed() {
                    0 => format!("No leak was found{unseen}"),
                    failed => format!("No leak was found{unseen}, but {} failed", counted(failed, "request")),
                }
            }
        }
    }

    /// The largest leak that this soak does not exclude, where that is more than is negligible.
    fn unseen(&self) -> String {
        let highest = self.judged.iter().map(|figure| figure.trend.slope_high).fold(0.0, f64::max);
        if highest > self.negligible {
            format!("; one of less than {highest:.0} B per request might not have been seen")
        } else {
            String::new()
        }
    }

    /// The reason why nothing can be said of leaks, where that is so.
    pub(crate) fn without_verdict(&self) -> Option<String> {
        if self.judged.is_empty() {
            return Some("no memory was measured".to_owned());
        }
        let is = |growth| self.judged.iter().find(move |figure| figure.trend.growth == growth);
        let Some(figure) = is(TrendGrowth::Unknown) else {
            return is(TrendGrowth::Open).map(|figure| {
                format!(
                    "it is unclear whether the {} grows (by {:.0} B per request); run the test longer",
                    figure.name, figure.trend.slope
                )
            });
        };
        Some(format!(
            "too few readings of the {figure}: {count}, but at least {least} are needed; run the test longer, or with a smaller --round",
            figure = figure.name,
            count = figure.trend.looks,
            least = crate::trend::Trend::LEAST_LOOKS
        ))
    }

    pub(crate) fn html(&self) -> String {
        let results = self.results;
        let mut page = ReportPage::new(&format!("{} under load", results.model));
        // The server's end counts as bad too, whether or not a leak caused it.
        let is_bad = self.finds_a_leak() || results.broke_off || self.without_verdict().is_some();
        page.verdict(&self.headline(), is_bad);
        page.lines(&self.text());
        let marks: Vec<(u64, String)> = results.notes.clone();
        let bytes = |value: u64| Bytes::new(value).to_string();
        for (figure, judged) in results.figures.iter().zip(&self.judged) {
            // Steps and notes are marked in the plot: a restart explains a step that looks like a leak.
            let marks = marks
                .iter()
                .cloned()
                .chain(judged.steps.iter().map(|step| (step.at, format!("in one step: {}", step.size()))));
            page.markup(&self.chart(
                &figure.name,
                &[("held".to_owned(), &figure.course)],
                marks.collect(),
                &bytes,
                RoundSteps::Binary,
            ));
        }
        let speed = |value: u64| format!("{:.1} tokens/s", thousands(value));
        page.markup(&self.chart(
            &titled("speed for one client", &results.speed, &speed),
            &[("last round".to_owned(), &results.speed)],
            Vec::new(),
            &speed,
            RoundSteps::Decimal,
        ));
        let time = |value: u64| format!("{:.1} ms", thousands(value));
        page.markup(&self.chart(
            &titled("time to the first token", &results.first_token, &time),
            &[("last round".to_owned(), &results.first_token)],
            Vec::new(),
            &time,
            RoundSteps::Decimal,
        ));
        page.finish()
    }

    fn chart(
        &self,
        title: &str,
        lines: &[(String, &TrendCourse)],
        marks: Vec<(u64, String)>,
        text: &dyn Fn(u64) -> String,
        steps: RoundSteps,
    ) -> String {
        let end = format!("request {}", self.results.requests);
        let ends = ("first request", end.as_str());
        let Some(mut chart) = Chart::of_courses(title, lines, self.results.requests, ends, text, steps)
        else {
            return String::new();
        };
        let marks = marks.into_iter().map(|(at, text)| Mark { at, text, id: None });
        chart.marks.extend(marks);
        chart.svg()
    }
}

/// Title of a plot with the median of the run.
fn titled(name: &str, course: &TrendCourse, text: &dyn Fn(u64) -> String) -> String {
    SoakResults::middle(course)
        .map_or_else(|| name.to_owned(), |middle| format!("{name}: median {}", text(middle)))
}

/// Verdict on one figure, in a sentence.
fn verdict(figure: &SoakVerdict<'_>) -> String {
    let trend = &figure.trend;
    let course = format!("{} were in use at the start, {} at the end", figure.first, figure.last);
    let slope = format!(
        "{:.0} B per request (between {:.0} and {:.0} B with 99 % confidence)",
        trend.slope, trend.slope_low, trend.slope_high
    );
    let rising = format!(
        "of {} equal parts of the run, {} used more memory than the part before (by chance about {})",
        trend.blocks,
        trend.rising,
        // Each part is compared with the one before, so the first has no comparison.
        trend.blocks.saturating_sub(1) / 2
    );
    match trend.growth {
        TrendGrowth::Leak => format!(
            "LEAK, {slope}; {rising}, confidence {:.2} %; {course}",
            // Rounded down: 99.996 % must not be printed as certainty.
            (trend.confidence * 1e4).floor() / 100.0
        ),
        // Caches fill at a falling rate; a leak keeps its rate. Only more time distinguishes the two.
        TrendGrowth::Settling => {
            format!(
                "still settling: memory grows by {slope}, but more and more slowly; run the test longer \
                to decide; {course}"
            )
        }
        TrendGrowth::Flat => format!("flat: {slope}; {rising}; {course}"),
        TrendGrowth::Open => {
            format!("undecided, run the test longer: it may grow by {slope} ({rising}; {course})")
        }
        TrendGrowth::Unknown => format!(
            "too few readings for a verdict ({} of at least {}); {course}",
            trend.looks,
            crate::trend::Trend::LEAST_LOOKS
        ),
    }
}
