//! Prints a memory recording of `plimsoll measure watch` as text or as an HTML page.

use std::fmt::{self, Write as _};

use plimsoll_base::{Order, counted, masked, one_line as shown};
use plimsoll_report::{Chart, MOST_LINES, Mark, ReportPage, RoundSteps, written};
use plimsoll_verb::lasted;

use crate::record::{Group, Reported, Source, Summary, Unit};

/// Rows of a table in the text.
const MOST_ROWS: usize = 10;
/// Characters of a command line that are shown.
const MOST_COMMAND: usize = 160;
/// Messages that are shown in the text.
const MOST_STATED: usize = 40;
/// Phrases of kernel messages about exhausted memory (`mm/oom_kill.c`).
const OOM: [&str; 4] = ["out of memory", "oom-kill", "oom_reaper", "killed process"];

/// A plot of the page: title, kind of its figures, and those among them that it shows.
type Plot = (&'static str, Group, Unit, fn(&str) -> bool);
const PLOTS: [Plot; 5] = [
    ("cards: memory in use", Group::Card, Unit::Kib, |what| what == "used"),
    ("processes on cards", Group::Process, Unit::Kib, |what| what.starts_with("on card")),
    ("what guard counts", Group::Guard, Unit::Kib, |_| true),
    ("processes: resident host memory", Group::Process, Unit::Kib, |what| what == "resident"),
    ("the machine's memory", Group::Machine, Unit::Kib, |what| SHOWN.contains(&what)),
];
/// Figures of the machine that are plotted.
const SHOWN: [&str; 6] = ["MemFree", "MemAvailable", "Cached", "AnonPages", "CmaFree", "NvMapMemUsed"];

/// The report of a recording.
#[derive(Debug)]
pub(crate) struct RecordReport<'a> {
    summary: &'a Summary,
}

impl<'a> RecordReport<'a> {
    pub(crate) fn new(summary: &'a Summary) -> Self {
        Self { summary }
    }

    pub(crate) fn text(&self) -> String {
        written(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "{}", shown(&self.title()))?;
        for note in &self.summary.about.notes {
            writeln!(out, "  note: {}", shown(&note.replace('\n', "; ")))?;
        }
        for (heading, rows) in self.tables() {
            if !rows.is_empty() {
                writeln!(out, "{heading}")?;
            }
            for row in rows.iter().take(MOST_ROWS) {
                writeln!(out, "  {}", shown(&row.join(", ")))?;
            }
        }
        let stated = &self.summary.events;
        if !stated.is_empty() {
            writeln!(out, "messages")?;
        }
        for event in stated.iter().take(MOST_STATED) {
            let mark = if is_oom(event.source, &event.text) { "OOM " } else { "" };
            writeln!(
                out,
                "  {:>10} {mark}{}: {}",
                clock(event.time_ms),
                event.source.name(),
                shown(&event.text)
            )?;
        }
        // The summary keeps a limited number of messages and this text fewer, so the two omissions are added.
        let more = stated.len().saturating_sub(MOST_STATED);
        let left_out = self.summary.events_left_out + u64::try_from(more).unwrap_or_default();
        match left_out {
            0 => Ok(()),
            more => writeln!(out, "  and {} more", counted(more, "line")),
        }
    }

    fn title(&self) -> String {
        let Summary { about, samples, duration_ms, end, torn_bytes, .. } = self.summary;
        let what = match (about.command.is_empty(), about.pid) {
            (false, _) => format!("`{}`", one_line(&masked(&about.command).join(" "), MOST_COMMAND)),
            (true, Some(pid)) => format!("process {pid}"),
            (true, None) => "the machine".to_owned(),
        };
        let end = match end {
            Some(end) => end.clone(),
            // A record is written sample by sample; a machine that crashes leaves the last one half-written.
            None if *torn_bytes > 0 => {
                format!(
                    "the recording ends in an unfinished sample ({} ignored)",
                    counted(*torn_bytes, "byte")
                )
            }
            None => "the rest of the recording is damaged".to_owned(),
        };
        let lasted = lasted(*duration_ms);
        format!(
            "{what} on {} ({}): {lasted}, {}; {end}",
            about.host,
            about.kernel,
            counted(*samples, "sample")
        )
    }

    /// Tables of peaks, of growth, and of sudden changes.
    fn tables(&self) -> Vec<(&'static str, Vec<Vec<String>>)> {
        let figures = &self.summary.figures;
        let of = |group: Group| figures.iter().filter(move |reported| reported.figure.group == group);
        let peaks = of(Group::Card).chain(of(Group::Guard)).map(|reported| self.row(reported));
        let machine = of(Group::Machine)
            // Of dozens of lines in meminfo, these three decide whether an allocation succeeds.
            .filter(|reported| {
                matches!(reported.figure.what.as_str(), "MemFree" | "MemAvailable" | "CmaFree")
            });
        let machine = machine.map(|reported| {
            vec![
                reported.figure.what.clone(),
                format!("{} at least", self.value(reported, reported.lowest)),
                format!("{} at the end", self.value(reported, reported.last)),
            ]
        });
        let mut grown: Vec<&Reported> = figures
            .iter()
            .filter(|reported| {
                matches!(reported.figure.group, Group::Process | Group::Guard | Group::Card)
                    && reported.figure.unit.bytes(1).is_some()
            })
            .filter(|reported| reported.grown() > 0)
            .collect();
        // In bytes, because the figures have different units.
        grown.order_by_key(|reported| std::cmp::Reverse(reported.figure.unit.bytes(reported.grown())));
        let grew = grown.into_iter().map(|reported| {
            let by = self.value(reported, reported.grown());
            let course = format!(
                "{} to {}",
                self.value(reported, reported.first),
                self.value(reported, reported.last)
            );
            vec![
                self.name(reported),
                format!("+{by}"),
                course,
                format!("peak {} at {}", self.value(reported, reported.peak), clock(reported.peak_ms)),
            ]
        });
        vec![
            ("cards, and memory counted by guard", peaks.collect()),
            ("the machine", machine.collect()),
            ("processes that grew", grew.take(2 * MOST_ROWS).collect()),
            ("memory that was allocated or freed in one step", self.moves()),
        ]
    }

    fn row(&self, reported: &Reported) -> Vec<String> {
        vec![
            self.name(reported),
            format!("{} at first", self.value(reported, reported.first)),
            format!("peak {} at {}", self.value(reported, reported.peak), clock(reported.peak_ms)),
            format!("{} at the end", self.value(reported, reported.last)),
        ]
    }

    fn moves(&self) -> Vec<Vec<String>> {
        let moves = self.summary.moves.iter().filter_map(|over| {
            let reported = self.summary.figures.get(over.figure)?;
            let way = if over.to > over.from { "+" } else { "-" };
            let time = format!("{} to {}", clock(over.from_ms), clock(over.until_ms));
            Some(vec![
                time,
                self.name(reported),
                format!("{way}{}", over.size()),
                format!("{} to {}", over.from, over.to),
            ])
        });
        moves.collect()
    }

    fn value(&self, reported: &Reported, value: u64) -> String {
        reported.figure.unit.text(value)
    }

    /// Name of a figure, with the name of its card if it has one.
    fn name(&self, reported: &Reported) -> String {
        let cards = &self.summary.about.cards;
        let card = cards
            .iter()
            .position(|card| reported.figure.group == Group::Card && card.uuid == reported.figure.subject);
        match card {
            Some(number) => format!("card {number} {}, {}", cards[number].name, reported.figure.what),
            None => reported.figure.to_string(),
        }
    }

    pub(crate) fn html(&self) -> String {
        let mut page = ReportPage::new("What plimsoll watched");
        let ran_out = self.summary.events.iter().filter(|event| is_oom(event.source, &event.text)).count();
        let verdict = match ran_out {
            0 => self.title(),
            count => {
                let says = if count == 1 { "says" } else { "say" };
                let lines = counted(count, "line");
                format!("{}. Memory ran out: {lines} of the program's output {says} so", self.title())
            }
        };
        page.verdict(&verdict, ran_out > 0);
        for note in &self.summary.about.notes {
            page.text(&format!("note: {note}"));
        }
        for (title, lines, unit) in self.plots() {
            page.markup(&self.chart(title, lines, unit));
        }
        for (heading, rows) in self.tables() {
            if !rows.is_empty() {
                page.heading(heading);
                page.table(&[], &rows);
            }
        }
        self.write_stated(&mut page);
        page.finish()
    }

    fn write_stated(&self, page: &mut ReportPage) {
        if self.summary.events.is_empty() {
            return;
        }
        page.heading("Messages");
        let rows = self.summary.events.iter().map(|event| {
            let mark = if is_oom(event.source, &event.text) { "OOM" } else { "" };
            vec![clock(event.time_ms), event.source.name().to_owned(), mark.to_owned(), event.text.clone()]
        });
        page.table(&["at", "who", "", "line"], &rows.collect::<Vec<_>>());
    }

    /// Plots of the page: title, figures and unit.
    fn plots(&self) -> Vec<(&'static str, Vec<&Reported>, Unit)> {
        let figures = &self.summary.figures;
        let pick = |group: Group, unit: Unit, what: &dyn Fn(&str) -> bool| {
            let mut picked: Vec<&Reported> = figures
                .iter()
                .filter(|reported| {
                    reported.figure.group == group
                        && reported.figure.unit == unit
                        && what(&reported.figure.what)
                })
                .collect();
            // More lines than colours cannot be distinguished, so only the largest are drawn.
            picked.order_by_key(|reported| std::cmp::Reverse(reported.peak));
            picked.truncate(MOST_LINES);
            picked
        };
        let mut plots: Vec<_> = PLOTS
            .into_iter()
            .map(|(title, group, unit, what)| (title, pick(group, unit, &what), unit))
            .collect();
        // Fragmentation is read together with free memory.
        plots.push(("large free blocks in the largest memory zone", self.large_blocks(), Unit::Count));
        plots.retain(|(_, lines, _)| !lines.is_empty());
        plots
    }

    /// The four highest orders of the zone that has the most blocks of the highest.
    fn large_blocks(&self) -> Vec<&'a Reported> {
        let blocks = || self.summary.figures.iter().filter(|reported| reported.figure.group == Group::Blocks);
        let order = |reported: &Reported| {
            reported.figure.what.strip_prefix("order ").and_then(|order| order.parse::<u32>().ok())
        };
        // The highest order depends on the kernel: 10 with 4 KiB pages, 13 with 64 KiB pages on arm64.
        let highest = blocks().filter_map(order).max().unwrap_or_default();
        let most =
            blocks().filter(|reported| order(reported) == Some(highest)).max_by_key(|reported| reported.peak);
        let zone = most.map(|reported| reported.figure.subject.as_str());
        blocks()
            .filter(|reported| {
                Some(reported.figure.subject.as_str()) == zone && order(reported) > highest.checked_sub(4)
            })
            .collect()
    }

    fn chart(&self, title: &str, lines: Vec<&Reported>, unit: Unit) -> String {
        let lines: Vec<_> =
            lines.into_iter().map(|reported| (self.short(reported), &reported.course)).collect();
        let end = clock(self.summary.duration_ms);
        let text = |value| unit.text(value);
        let steps = if unit.bytes(1).is_some() { RoundSteps::Binary } else { RoundSteps::Decimal };
        let chart = Chart::of_courses(title, &lines, self.summary.duration_ms, ("0:00", &end), &text, steps);
        let Some(mut chart) = chart else {
            return String::new();
        };
        let marks = self
            .summary
            .events
            .iter()
            // The kernel log has many lines that have nothing to do with memory.
            .filter(|event| event.source != Source::Kernel || is_oom(event.source, &event.text));
        // A log storm would hide the plot behind its marks.
        chart.marks.extend(marks.take(200).map(|event| Mark {
            at: event.time_ms,
            text: event.text.clone(),
            id: None,
        }));
        chart.svg()
    }

    /// Short label of a line within its chart.
    fn short(&self, reported: &Reported) -> String {
        match reported.figure.group {
            Group::Machine | Group::Blocks => reported.figure.what.clone(),
            Group::Card => self.name(reported).replace(&format!(", {}", reported.figure.what), ""),
            Group::Process => reported.figure.subject.clone(),
            Group::Guard => format!("{} {}", reported.figure.subject, reported.figure.what),
        }
    }
}

/// The beginning of a text, as one line.
fn one_line(text: &str, most: usize) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Returns true if a message reports exhausted memory.
fn is_oom(source: Source, text: &str) -> bool {
    let text = text.to_lowercase();
    match source {
        Source::Guard => text.contains("refused"),
        Source::Kernel => OOM.iter().any(|word| text.contains(word)),
        // A program may print these words about anything, such as a caught exception.
        Source::Process | Source::Watch => false,
    }
}

/// Formats a time as `1:02:03.5` or `2:03.5`.
fn clock(milliseconds: u64) -> String {
    let (tenths, seconds) = (milliseconds / 100 % 10, milliseconds / 1000);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}.{tenths}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}.{tenths}"),
    }
}
