//! Summarises a memory recording: the range of every figure, large changes and log lines.

use plimsoll_base::{Bytes, Order};
use plimsoll_report::TrendCourse;
use serde::Serialize;

use super::about::About;
use super::figure::{Figure, Group};
use super::read::{Entry, ReadRecordError, Reader, Source};

/// Number of lines kept, from the beginning; the total is counted.
const MOST_EVENTS: usize = 2000;
const MOST_MOVES: usize = 12;
/// Maximum time between changes in one direction that count as one move.
const ONE_MOVE_MS: u64 = 2000;
/// Smaller moves are left out.
const LEAST_MOVE: Bytes = Bytes::mib(16);

/// Summary of a recording: everything except the single samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    pub about: About,
    pub samples: u64,
    pub duration_ms: u64,
    pub figures: Vec<Reported>,
    pub moves: Vec<Move>,
    pub events: Vec<Event>,
    pub events_left_out: u64,
    /// The program's end; `None` if the recording is damaged.
    pub end: Option<String>,
    pub torn_bytes: u64,
}

/// Summary of one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Reported {
    pub figure: Figure,
    pub first: u64,
    pub last: u64,
    pub lowest: u64,
    pub peak: u64,
    pub peak_ms: u64,
    #[serde(skip)]
    pub course: TrendCourse,
}

/// Memory that was allocated or released in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// The place of the figure in the summary.
    pub figure: usize,
    pub from_ms: u64,
    pub until_ms: u64,
    pub from: Bytes,
    pub to: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    pub time_ms: u64,
    pub source: Source,
    pub text: String,
}

impl Reported {
    pub fn grown(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

impl Move {
    pub fn size(&self) -> Bytes {
        self.to.saturating_sub(self.from).max(self.from.saturating_sub(self.to))
    }
}

/// Reads a whole record.
pub fn summarise(bytes: &[u8]) -> Result<Summary, ReadRecordError> {
    let mut reader = Reader::new(bytes)?;
    let summary = Summary { about: reader.about().clone(), ..Summary::default() };
    let mut glance = Glance { summary, ..Glance::default() };
    while let Some(entry) = reader.next() {
        glance.take(entry, &reader);
    }
    Ok(glance.finish(reader.left()))
}

/// Summary that is being built.
#[derive(Default)]
struct Glance {
    summary: Summary,
    /// Index in the summary of each figure of the record; `None` before its first value.
    places: Vec<Option<usize>>,
    under_way: Vec<Option<Move>>,
}

impl Glance {
    fn take(&mut self, entry: Entry, reader: &Reader<'_>) {
        let summary = &mut self.summary;
        match entry {
            Entry::About { .. } | Entry::Figure(_) => {}
            Entry::Sample { time_ms, changes } => {
                summary.samples += 1;
                summary.duration_ms = time_ms;
                for (number, _) in changes {
                    if let Some(value) = reader.value(number) {
                        self.see(number, &reader.figures()[number], time_ms, value);
                    }
                }
            }
            Entry::Event { time_ms, source, text } if summary.events.len() < MOST_EVENTS => {
                summary.events.push(Event { time_ms, source, text });
            }
            Entry::Event { .. } => summary.events_left_out += 1,
            Entry::End { time_ms, status } => {
                summary.duration_ms = time_ms;
                summary.end = Some(status);
            }
        }
    }

    fn see(&mut self, number: usize, figure: &Figure, time_ms: u64, value: u64) {
        // Figures without a value in this record never get a place.
        if self.places.len() <= number {
            self.places.resize(number + 1, None);
        }
        let place = *self.places[number].get_or_insert_with(|| {
            self.summary.figures.push(Reported {
                figure: figure.clone(),
                first: value,
                last: value,
                lowest: value,
                peak: value,
                peak_ms: time_ms,
                course: TrendCourse::default(),
            });
            self.under_way.push(None);
            self.summary.figures.len() - 1
        });
        let reported = &mut self.summary.figures[place];
        let before = std::mem::replace(&mut reported.last, value);
        reported.lowest = reported.lowest.min(value);
        if value > reported.peak {
            (reported.peak, reported.peak_ms) = (value, time_ms);
        }
        // Buckets instead of samples: a day has 172 800 of them.
        reported.course.push(time_ms, value);
        // `private` is part of `resident`, and most machine figures follow MemAvailable.
        let is_reported =
            figure.what != "private" && (figure.group != Group::Machine || figure.what == "MemAvailable");
        let memory = figure.unit.bytes(before).zip(figure.unit.bytes(value));
        if let Some((from, to)) = memory.filter(|_| is_reported) {
            self.moved(place, time_ms, from, to);
        }
    }

    /// Joins a change to the move under way, or begins one.
    fn moved(&mut self, place: usize, time_ms: u64, from: Bytes, to: Bytes) {
        let slot = &mut self.under_way[place];
        if let Some(under_way) = slot {
            let is_same_way = (under_way.to > under_way.from) == (to > from);
            // Loading a model takes seconds; its many steps are one move for the reader.
            if is_same_way && time_ms - under_way.until_ms <= ONE_MOVE_MS {
                (under_way.until_ms, under_way.to) = (time_ms, to);
                return;
            }
        }
        let begun =
            (from != to).then_some(Move { figure: place, from_ms: time_ms, until_ms: time_ms, from, to });
        if let Some(over) = std::mem::replace(slot, begun) {
            self.keep(over);
        }
    }

    /// Keeps the largest.
    fn keep(&mut self, over: Move) {
        let moves = &mut self.summary.moves;
        if over.size() < LEAST_MOVE {
            return;
        }
        moves.push(over);
        // Pruned in batches, so that a day of moves costs no sort per move.
        if moves.len() > 2 * MOST_MOVES {
            moves.order_by_key(|over| std::cmp::Reverse(over.size()));
            moves.truncate(MOST_MOVES);
        }
    }

    fn finish(mut self, left: usize) -> Summary {
        for over in std::mem::take(&mut self.under_way).into_iter().flatten() {
            self.keep(over);
        }
        let mut summary = self.summary;
        summary.moves.order_by_key(|over| std::cmp::Reverse(over.size()));
        summary.moves.truncate(MOST_MOVES);
        // Chosen by size, shown by time.
        summary.moves.order_by_key(|over| over.from_ms);
        summary.torn_bytes = u64::try_from(left).unwrap_or(u64::MAX);
        summary
    }
}
