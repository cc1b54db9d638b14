//! Streaming reader that extracts facts (numbers and known messages) from logs, in bounded memory.

mod document;
mod other_text;
#[cfg(test)]
mod tests;

use memchr::{memchr, memchr_iter, memmem, memrchr};
use plimsoll_base::Bytes;

use super::facts::{CardHolder, Facts, LineOrigin, LineSource, LoadStage, OtherDocument, Quote};
use super::formats::{self, PhraseHit};
use super::line::{WINDOW, around};
use super::pattern::Pattern;
use super::refused::RefusedAllocation;
use other_text::{evidence_lines, is_no_report};

/// A line longer than this is read in pieces.
const PIECE: usize = 1 << 16;
/// Overlap of two pieces, so that a phrase on the border is found. No phrase is longer.
const OVERLAP: usize = 512;
/// Lines that are read of a pattern of which only the presence counts.
const ENOUGH: u32 = 16;
/// Hits of one row in a block of which the middle ones are skipped.
const REPEATS: u32 = 256;
/// Above this size a source is a log and no report: it is not read for series, names or by the classifier.
const SHORT: usize = 1 << 16;

/// Collects facts from any number of sources.
#[derive(Debug)]
pub struct LogReader {
    facts: Facts,
    /// The start of a line whose end has not come yet.
    carry: Vec<u8>,
    source: Option<LineOrigin>,
    /// The file of the lines, where several are read.
    file: Option<String>,
    /// Newlines before the carry.
    lines: u64,
    /// The start of the source, while it may be a short report.
    report: Vec<u8>,
    /// Lines that were read for each row of the tables.
    read: Vec<u32>,
}

impl Default for LogReader {
    fn default() -> Self {
        Self::new()
    }
}

impl LogReader {
    pub fn new() -> Self {
        Self {
            facts: Facts::default(),
            carry: Vec::new(),
            source: None,
            file: None,
            lines: 0,
            report: Vec::new(),
            read: vec![0; formats::rows().len()],
        }
    }

    /// Reads the next bytes of `source`, which may end anywhere. Another source ends the line.
    pub fn feed(&mut self, source: LineSource, bytes: &[u8]) {
        // DECISION: whole blocks of bytes are searched for phrases, and only lines with a match are read. A
        // line longer than `PIECE` is read in pieces.
        let origin = self.origin(source);
        if self.source.as_ref() != Some(&origin) {
            self.end_source();
            self.source = Some(origin.clone());
        }
        // One byte more than a report has tells a log from a report of exactly that size.
        let room = (SHORT + 1).saturating_sub(self.report.len());
        self.report.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let mut rest = bytes;
        if !self.carry.is_empty() {
            let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (head, tail) = rest.split_at(end);
            self.carry.extend_from_slice(head);
            rest = tail;
            if !self.carry.ends_with(b"\n") {
                return self.shorten_carry(&origin);
            }
            let line = std::mem::take(&mut self.carry);
            self.scan(&origin, &line);
        }
        // Whole lines are scanned in place; only the rest of the last line is copied.
        let whole = memrchr(b'\n', rest).map_or(0, |at| at + 1);
        self.scan(&origin, &rest[..whole]);
        self.carry.extend_from_slice(&rest[whole..]);
        self.shorten_carry(&origin);
    }

    /// Starts one of several logs; its name stands before the numbers of its lines.
    pub fn file(&mut self, name: &str) {
        self.end_source();
        self.file = Some(name.to_owned());
    }

    fn origin(&self, source: LineSource) -> LineOrigin {
        LineOrigin { source, file: self.file.clone().filter(|_| source == LineSource::Log) }
    }

    /// Adds a process that holds memory of a card, as the driver lists it.
    pub fn holder(&mut self, card: u64, pid: u64, name: &str, used: Bytes) {
        let text = format!("card {card}: {name} ({pid}) holds {used}");
        self.facts.add_holder(CardHolder {
            card: Some(card),
            pid: Some(pid),
            name: name.to_owned(),
            used,
            quote: Quote::new(&self.origin(LineSource::Machine), 1, &text),
        });
    }

    /// Marks the program as one that had served before its lines begin.
    pub fn served(&mut self) {
        self.facts.progress.stage = LoadStage::Serving;
    }

    /// Adds the last refusal on guard's page.
    pub fn guard(&mut self, refused: &RefusedAllocation) {
        self.facts.guard = Some(refused.clone());
    }

    /// Everything that was found.
    pub fn finish(mut self) -> Facts {
        self.end_source();
        self.facts
    }

    fn end_source(&mut self) {
        let Some(origin) = self.source.take() else { return };
        let line = std::mem::take(&mut self.carry);
        self.scan(&origin, &line);
        let report = std::mem::take(&mut self.report);
        if report.len() <= SHORT {
            formats::read_report(&mut self.facts, &origin, &report);
        }
        let text = String::from_utf8_lossy(&report);
        if let Some(lines) = evidence_lines(&text) {
            let read_to = u64::try_from(text.lines().count()).unwrap_or(u64::MAX);
            self.facts.add_document(OtherDocument { origin: origin.clone(), lines, read_to });
        }
        if report.len() <= SHORT {
            self.keep(origin, &report);
        }
        self.lines = 0;
    }

    /// Keeps a short report for the classifier, up to two of the largest size.
    fn keep(&mut self, origin: LineOrigin, report: &[u8]) {
        let kept: usize = self.facts.report.iter().map(|(_, text)| text.len()).sum();
        if kept + report.len() <= 2 * SHORT {
            let text = String::from_utf8_lossy(report).into_owned();
            if !is_no_report(&text) {
                self.facts.report.push((origin, text));
            }
        }
    }

    /// Reads an endless line up to here and carries on its end alone.
    fn shorten_carry(&mut self, origin: &LineOrigin) {
        if self.carry.len() > PIECE {
            let line = std::mem::take(&mut self.carry);
            self.scan(origin, &line);
            self.carry = line[line.len() - OVERLAP..].to_vec();
        }
    }

    /// Looks for phrases in whole lines, or in a piece of one.
    fn scan(&mut self, origin: &LineOrigin, block: &[u8]) {
        // Hits before `done` stand in a part that was read already; newlines are counted up to `counted`.
        let (mut done, mut counted) = (0, 0);
        // A short block cannot repeat a line often enough to matter.
        let mut repeats = vec![0_u32; if block.len() > PIECE { formats::rows().len() } else { 0 }];
        for hit in formats::hits(block) {
            if hit.start < done {
                continue;
            }
            // The end of a block is always read: the last refusal of a load is the one that ended it.
            let in_the_middle = repeats.get_mut(hit.row).is_some_and(|count| {
                *count += 1;
                *count > REPEATS && hit.start + PIECE < block.len()
            });
            if in_the_middle || self.is_known(hit) {
                continue;
            }
            let start = memrchr(b'\n', &block[..hit.start]).map_or(0, |at| at + 1);
            let end = memchr(b'\n', &block[hit.start..]).map_or(block.len(), |length| hit.start + length);
            // A line that is read in parts is counted once.
            if start > counted {
                self.lines += newlines(&block[counted..start]);
                counted = start;
            }
            let text = around(&block[start..end], hit.start - start);
            let quote = Quote::new(origin, self.lines + 1, &text);
            self.line(&quote, &text);
            self.read[hit.row] = self.read[hit.row].saturating_add(1);
            done = part_end(start, hit.start, end);
        }
        self.lines += newlines(&block[counted..]);
    }

    fn is_known(&self, hit: PhraseHit) -> bool {
        self.read[hit.row] >= ENOUGH
            && match hit.pattern {
                Pattern::Works | Pattern::Serves => self.facts.progress.stage == LoadStage::Serving,
                pattern => pattern.only_presence_counts(),
            }
    }

    fn line(&mut self, quote: &Quote, text: &str) {
        // Plimsoll's own remark names the library that it looked for; no program lacks it.
        if holds(text, "no NVIDIA card is visible") || is_of_client(text) {
            return;
        }
        let mut before = None;
        for row in formats::rows_in(text) {
            if before != Some(row.pattern) {
                formats::read_line(&mut self.facts, row.pattern, text, quote);
            }
            before = Some(row.pattern);
        }
    }
}

/// A request that a server quotes: its text is the client's, who may ask about any failure.
/// `server.cpp:log_server_request`, `vllm/entrypoints/logger.py:log_inputs`.
fn is_of_client(text: &str) -> bool {
    const FIELDS: [&str; 3] = ["\"messages\":", "\"prompt\":", "\"content\":"];
    let is_request = holds(text, "Received request ") && holds(text, "prompt: ");
    is_request || FIELDS.iter().any(|field| holds(text, field))
}

/// A search of every line that has a phrase, so that of `memchr` counts.
fn holds(text: &str, words: &str) -> bool {
    memmem::find(text.as_bytes(), words.as_bytes()).is_some()
}

/// End of the part of a line that was read: the window around the hit covers no more of a long line.
fn part_end(start: usize, hit: usize, end: usize) -> usize {
    if end - start <= WINDOW { end } else { (hit + WINDOW - OVERLAP).min(end) }
}

fn newlines(bytes: &[u8]) -> u64 {
    u64::try_from(memchr_iter(b'\n', bytes).count()).unwrap_or(u64::MAX)
}
