//! Writes the results of a benchmark run: as Markdown for people, and as JSON to compare runs.

use std::fmt::{self, Display, Formatter};
use std::fs;

use serde::Serialize;

use crate::measure::paired::Paired;
use crate::measure::startup::Startup;
use crate::measure::streams::Streams;
use crate::measure::swap::Swap;
use crate::measure::throughput::Throughput;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) cores: usize,
    /// Load average over the minute before the run: numbers from a busy machine are worth less.
    pub(crate) load_before: String,
    pub(crate) paired: Vec<Paired>,
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) streams: Vec<Streams>,
    pub(crate) memory: Vec<Peak>,
    pub(crate) swap: Vec<Swap>,
    pub(crate) startup: Vec<Startup>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Peak {
    pub(crate) target: String,
    pub(crate) peak_rss_kib: u64,
}

impl Report {
    pub(crate) fn of_this_machine() -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: load.split(' ').next().unwrap_or_default().to_owned(),
            paired: Vec::new(),
            throughput: Vec::new(),
            streams: Vec::new(),
            memory: Vec::new(),
            swap: Vec::new(),
            startup: Vec::new(),
        }
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} cores, load average {} before the run\n", self.cores, self.load_before)?;
        table(
            out,
            "| added latency | prompt | p50 | added p50 | added p99 | CPU a request | rounds |",
            &self.paired,
        )?;
        table(
            out,
            "| throughput | connections | requests/s | p50 | p99 | CPU a request | failures |",
            &self.throughput,
        )?;
        table(
            out,
            "| 64 streams of 256 events | wall | CPU an event | events lost | failures |",
            &self.streams,
        )?;
        table(out, "| memory | peak RSS |", &self.memory)?;
        table(out, "| swap | swaps | p50 | p99 | warm p50 |", &self.swap)?;
        table(out, "| start-up | starts | first /health p50 | worst | idle RSS |", &self.startup)
    }
}

fn table<R: Row>(out: &mut Formatter<'_>, head: &str, rows: &[R]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = head.matches('|').count() - 1;
    writeln!(out, "{head}\n|{}", "---|".repeat(columns))?;
    rows.iter().try_for_each(|row| writeln!(out, "| {} |", row.cells().join(" | ")))?;
    writeln!(out)
}

trait Row {
    fn cells(&self) -> Vec<String>;
}

impl Row for Paired {
    fn cells(&self) -> Vec<String> {
        let added = |time: Option<f64>| time.map_or_else(String::new, |time| format!("{time:+.0} µs"));
        vec![
            self.target.clone(),
            self.prompt.to_owned(),
            micros(self.p50_us),
            added(self.added_p50_us),
            added(self.added_p99_us),
            micros(self.cpu_us_per_request),
            self.rounds.to_string(),
        ]
    }
}

impl Row for Throughput {
    fn cells(&self) -> Vec<String> {
        vec![
            self.target.clone(),
            self.connections.to_string(),
            format!("{:.0}", self.requests_per_second),
            micros(self.p50_us),
            micros(self.p99_us),
            format!("{:.1} µs", self.cpu_us_per_request),
            self.failures.to_string(),
        ]
    }
}

impl Row for Streams {
    fn cells(&self) -> Vec<String> {
        vec![
            self.target.clone(),
            format!("{:.1} ms", self.wall_ms),
            format!("{:.2} µs", self.cpu_us_per_event),
            self.events_lost.to_string(),
            self.failures.to_string(),
        ]
    }
}

impl Row for Peak {
    fn cells(&self) -> Vec<String> {
        vec![self.target.clone(), mebibytes(self.peak_rss_kib)]
    }
}

impl Row for Swap {
    fn cells(&self) -> Vec<String> {
        let times = [self.p50_ms, self.p99_ms, self.warm_p50_ms].map(|time| format!("{time:.2} ms"));
        [vec![self.target.clone(), self.swaps.to_string()], times.to_vec()].concat()
    }
}

impl Row for Startup {
    fn cells(&self) -> Vec<String> {
        let times =
            [self.first_health_p50_ms, self.first_health_worst_ms].map(|time| format!("{time:.2} ms"));
        let memory = mebibytes(self.idle_rss_kib);
        [vec![self.target.clone(), self.starts.to_string()], times.to_vec(), vec![memory]].concat()
    }
}

fn micros(time: f64) -> String {
    format!("{time:.0} µs")
}

#[expect(clippy::cast_precision_loss, reason = "printed with one decimal")]
fn mebibytes(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_parts_leave_no_table_and_rows_have_the_columns_of_their_head() {
        let mut report = Report::of_this_machine();
        report.memory.push(Peak { target: "nginx".to_owned(), peak_rss_kib: 1536 });
        let text = report.to_string();
        assert!(text.contains("\n| memory | peak RSS |\n|---|---|\n| nginx | 1.5 MiB |\n"), "{text}");
        assert_eq!(text.matches("---|").count(), 2);
    }
}
