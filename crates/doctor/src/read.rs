//! Reads a log, or what was told, into evidence: streaming, in bounded memory.
//!
//! DECISION: the search for known phrases runs over whole blocks of bytes; only a line with a hit is cut out, cleaned and read. A line
//! longer than [`PIECE`] is read in pieces. What people say in many words is kept by its first lines and a count, so that a
//! log which repeats itself costs the search and nothing else.

mod choice;
mod circumstances;
mod figures;
mod llama;
mod machine;
mod named;
mod nouns;
mod options;
mod sentences;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod told_tests;
mod torch;

use memchr::{memchr, memchr_iter, memrchr};
use plimsoll_base::Bytes;

use super::evidence::{Evidence, Holder, Quote, Seen, Source, Stage};
use super::line::{around, shortened};
use super::refused::Refused;
use super::saying::{self, Hit, Saying, Words};
use super::sizes::{behind, count};

/// A line longer than this is read in pieces.
const PIECE: usize = 1 << 16;
/// Pieces overlap by this much, so that a phrase on the border is found.
const OVERLAP: usize = 512;
/// After so many times what is said only often is not looked at again.
const ENOUGH: u32 = 16;
/// Of what a block repeats more often than this, only what stands near its end is looked at.
const REPEATS: u32 = 256;
const MOST_HOLDERS: usize = 256;
/// A report shorter than this is also read for its readings; people's words are looked for in so much of a source.
const SHORT: usize = 1 << 16;

/// Collects evidence from any number of sources.
#[derive(Debug)]
pub struct Reader {
    evidence: Evidence,
    carry: Vec<u8>,
    source: Option<Source>,
    /// Newlines seen before the carry.
    lines: u64,
    /// Bytes of this source that were scanned.
    passed: usize,
    /// The start of a source, as long as it may be a short report.
    report: Vec<u8>,
    /// How often lines were looked at for each row of the table.
    looked_at: Vec<u32>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    pub fn new() -> Self {
        Self {
            evidence: Evidence::default(),
            carry: Vec::new(),
            source: None,
            lines: 0,
            passed: 0,
            report: Vec::new(),
            looked_at: vec![0; saying::rows()],
        }
    }

    /// Reads the next bytes of `source`, which may end anywhere. Another source ends the line of the one before.
    pub fn feed(&mut self, source: Source, bytes: &[u8]) {
        if self.source != Some(source) {
            self.end_source();
            self.source = Some(source);
        }
        if self.report.len() <= SHORT {
            let room = (SHORT + 1).saturating_sub(self.report.len());
            self.report.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        let mut rest = bytes;
        if !self.carry.is_empty() {
            let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (head, tail) = rest.split_at(end);
            self.carry.extend_from_slice(head);
            rest = tail;
            if !self.carry.ends_with(b"\n") {
                return self.shorten_carry();
            }
            let line = std::mem::take(&mut self.carry);
            self.scan(source, &line);
        }
        let whole = memrchr(b'\n', rest).map_or(0, |at| at + 1);
        self.scan(source, &rest[..whole]);
        self.carry.extend_from_slice(&rest[whole..]);
        self.shorten_carry();
    }

    /// Adds a process that holds memory of a card, as the driver lists it.
    pub fn holder(&mut self, card: u64, pid: u64, name: &str, used: Bytes) {
        if self.evidence.holders.len() < MOST_HOLDERS {
            self.evidence.holders.push(Holder {
                card: Some(card),
                pid: Some(pid),
                name: name.to_owned(),
                used,
                quote: Quote {
                    source: Source::Machine,
                    line: 1,
                    text: format!("card {card}: {name} ({pid}) holds {used}"),
                },
            });
        }
    }

    /// The program had served before the lines begin.
    pub fn served(&mut self) {
        self.evidence.stage = Stage::Serving;
    }

    /// Adds the last refusal on guard's page.
    pub fn guard(&mut self, refused: &Refused) {
        self.evidence.guard = Some(refused.clone());
    }

    /// Everything that was found.
    pub fn finish(mut self) -> Evidence {
        self.end_source();
        self.evidence
    }

    fn end_source(&mut self) {
        if let Some(source) = self.source.take() {
            let line = std::mem::take(&mut self.carry);
            self.scan(source, &line);
            let report = std::mem::take(&mut self.report);
            if report.len() <= SHORT {
                circumstances::read(&mut self.evidence, source, &report);
                self.evidence.keep(source, &report);
            }
            self.lines = 0;
            self.passed = 0;
        }
    }

    /// Of an endless line only the end is carried on.
    fn shorten_carry(&mut self) {
        if self.carry.len() > PIECE
            && let Some(source) = self.source
        {
            let line = std::mem::take(&mut self.carry);
            self.scan(source, &line);
            self.carry = line[line.len() - OVERLAP..].to_vec();
        }
    }

    /// Looks for phrases in whole lines, or in a piece of one.
    fn scan(&mut self, source: Source, block: &[u8]) {
        let (mut at, mut counted) = (0, 0);
        // What is not long cannot repeat itself much.
        let mut repeats = vec![0_u32; if block.len() > PIECE { saying::rows() } else { 0 }];
        let told = SHORT.saturating_sub(self.passed);
        self.passed = self.passed.saturating_add(block.len());
        while let Some(hit) = saying::next(if at < told { Words::All } else { Words::Printed }, block, at) {
            let in_the_middle = repeats.get_mut(hit.row).is_some_and(|count| {
                *count += 1;
                *count > REPEATS && hit.start + PIECE < block.len()
            });
            let told_late = hit.start >= told && hit.saying > Saying::Exception;
            if in_the_middle || told_late || self.is_known_enough(hit) {
                at = hit.start + 1;
                continue;
            }
            let start = memrchr(b'\n', &block[..hit.start]).map_or(0, |at| at + 1);
            let end = memchr(b'\n', &block[hit.start..]).map_or(block.len(), |length| hit.start + length);
            self.lines += newlines(&block[counted..start]);
            counted = start;
            let text = around(&block[start..end], hit.start - start);
            let quote = Quote {
                source,
                line: self.lines + 1,
                text: shortened(&text).trim_start().to_owned(),
            };
            self.line(&quote, &text);
            self.looked_at[hit.row] = self.looked_at[hit.row].saturating_add(1);
            at = next_start(start, hit.start, end);
        }
        self.lines += newlines(&block[counted..]);
    }

    /// Things of which only that they were said matters, and they were.
    fn is_known_enough(&self, hit: Hit) -> bool {
        self.looked_at[hit.row] >= ENOUGH
            && match hit.saying {
                Saying::Works | Saying::Serves => self.evidence.stage == Stage::Serving,
                saying => saying >= Saying::PortTaken || saying == Saying::SeesImage,
            }
    }

    fn line(&mut self, quote: &Quote, text: &str) {
        let mut before = None;
        for row in saying::rows_in(text) {
            if before == Some(row.saying) || (row.saying == Saying::BigBatch && is_of_one(text, row.phrase)) {
                continue;
            }
            before = Some(row.saying);
            self.evidence.note(row.saying, quote);
            llama::read(&mut self.evidence, row, text, quote);
            torch::read(&mut self.evidence, row.saying, text, quote);
            machine::read(&mut self.evidence, row.saying, text, quote);
            options::read(&mut self.evidence, row.saying, text);
        }
    }
}

/// `batch size 1`, `batch_size=1`: nothing could be less.
fn is_of_one(text: &str, phrase: &str) -> bool {
    let rest = behind(text, phrase).unwrap_or_default();
    let rest = rest
        .trim_start_matches([' ', '=', '*', '`'])
        .trim_start_matches("of ")
        .trim_start_matches("to ")
        .trim_start_matches("is ");
    count(rest) == Some(1)
        || ["no matter", "regardless"]
            .iter()
            .any(|words| text.contains(words))
}

/// A line in which the phrase stands far from its end may hold more than the window showed.
fn next_start(start: usize, hit: usize, end: usize) -> usize {
    if end - start <= 2 * OVERLAP {
        end
    } else {
        (hit + OVERLAP).min(end)
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    u64::try_from(memchr_iter(b'\n', bytes).count()).unwrap_or(u64::MAX)
}

impl Evidence {
    /// Keeps a short report, as long as there are not many.
    fn keep(&mut self, source: Source, report: &[u8]) {
        let kept: usize = self.report.iter().map(|(_, text)| text.len()).sum();
        if kept + report.len() <= 2 * SHORT {
            let text = String::from_utf8_lossy(report).into_owned();
            self.report.push((source, text));
        }
    }

    fn note(&mut self, saying: Saying, quote: &Quote) {
        match self.said.get_mut(&saying) {
            Some(seen) => {
                seen.count += 1;
                seen.last = quote.clone();
            }
            None => {
                let (first, last) = (quote.clone(), quote.clone());
                self.said.insert(
                    saying,
                    Seen {
                        count: 1,
                        first,
                        last,
                    },
                );
            }
        }
    }
}
