//! Holds the facts that are found in a log: numbers and known messages, each with the line that shows it.
//!
//! The diagnosis rules read these facts and never the raw log. A missing fact is `None`; nothing is assumed.

mod derived;
mod fit;
mod kinds;
mod share;

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_host::{BuddyInfo, Release};

use super::pattern::Pattern;
use super::refused::RefusedAllocation;
use super::source_line::is_source_line;

pub(super) use self::kinds::*;
pub use self::kinds::{LineOrigin, LineSource, Quote};

/// Refusals that are kept of a log.
const MOST_REFUSALS: usize = 64;
const MOST_BUFFERS: usize = 512;
const MOST_HOLDERS: usize = 256;
/// Cards, Xids, choices, zones and readings.
const MOST_OTHERS: usize = 64;

// DECISION: facts are typed and bounded, so a log of a gigabyte takes no more memory than one of a kilobyte.
/// All facts that a [`LogReader`](super::LogReader) found.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    lines: BTreeMap<Pattern, Sighting>,
    pub(crate) refusals: Vec<FailedAllocation>,
    pub(crate) buffers: Vec<PlacedBuffer>,
    /// PyTorch's last refusal.
    pub(crate) torch: Option<TorchRefusal>,
    /// The last frame of a traceback that shows what was being computed.
    pub(crate) frame: Option<TracebackFrame>,
    /// vLLM's check of the free memory before it loads.
    pub(crate) startup: Option<StartupCheck>,
    /// The engine's estimate before it loads.
    pub(crate) estimate: Option<LoadEstimate>,
    card_sizes: Vec<Bytes>,
    /// Free memory of the emptiest card before the program allocated.
    pub(crate) card_free: Option<Bytes>,
    /// Free memory of each card, by its number, before the last load.
    pub(crate) cards_free: BTreeMap<u64, Bytes>,
    /// Memory of the largest card, as the kernel counts it.
    pub(crate) kernel_vram: Option<Bytes>,
    /// The most that Metal had allocated, and what it recommends at most.
    pub(crate) working_set: Option<(Bytes, Bytes)>,
    /// The fullest card of an nvidia-smi table.
    pub(crate) usage: Option<CardUsage>,
    pub(crate) holders: Vec<CardHolder>,
    choices: Vec<CardChoice>,
    pub(crate) xids: Vec<(u64, Quote)>,
    /// The L4T release.
    pub(crate) release: Option<Release>,
    pub(crate) host: HostFacts,
    /// Free blocks by size, of `/proc/buddyinfo`.
    pub(crate) blocks: BuddyInfo,
    /// Readings of one quantity, oldest first.
    pub(crate) series: Vec<Bytes>,
    /// A line that gives a growth per request or round.
    pub(crate) growth: Option<Quote>,
    pub(crate) model: ModelFacts,
    pub(crate) options: EngineOptions,
    pub(crate) progress: LoadProgress,
    /// The last refusal on guard's page.
    pub(crate) guard: Option<RefusedAllocation>,
    documents: Vec<OtherDocument>,
    /// Short reports as text, for the classifier.
    pub(crate) report: Vec<(LineOrigin, String)>,
}

impl Facts {
    /// True if no list exceeds its bound, whatever was read.
    #[cfg(test)]
    pub(crate) fn is_bounded(&self) -> bool {
        let others = [
            self.card_sizes.len(),
            self.choices.len(),
            self.xids.len(),
            self.series.len(),
            self.blocks.zones.len(),
        ];
        self.refusals.len() <= MOST_REFUSALS
            && self.buffers.len() <= MOST_BUFFERS
            && self.holders.len() <= MOST_HOLDERS
            && others.into_iter().all(|length| length <= MOST_OTHERS)
    }

    /// Counts a line of `pattern`.
    pub(crate) fn note(&mut self, pattern: Pattern, quote: &Quote) {
        self.lines
            .entry(pattern)
            // Only the first and the last line are kept: rules compare their places.
            .and_modify(|seen| seen.last = quote.clone())
            .or_insert_with(|| Sighting { first: quote.clone(), last: quote.clone() });
    }

    pub(crate) fn add_refusal(&mut self, refusal: FailedAllocation) {
        // The first refusals tell how it began and the last how it ended; the middle repeats them.
        if self.refusals.len() == MOST_REFUSALS {
            self.refusals.remove(MOST_REFUSALS / 2);
        }
        self.refusals.push(refusal);
    }

    /// Drops the refusals of the current load: the engine tried again with less.
    pub(crate) fn forget_refusals(&mut self) {
        let attempt = self.progress.attempt;
        self.refusals.retain(|refusal| refusal.attempt != attempt);
    }

    /// The refusal of this load whose line is at most `lines` before `quote`.
    pub(crate) fn recent_refusal(&mut self, quote: &Quote, lines: u64) -> Option<&mut FailedAllocation> {
        let attempt = self.progress.attempt;
        self.refusals.last_mut().filter(|last| {
            last.attempt == attempt
                && last.quote.origin == quote.origin
                && quote.line.saturating_sub(last.quote.line) <= lines
        })
    }

    pub(crate) fn add_buffer(&mut self, purpose: Purpose, card: Option<u64>, size: Bytes) {
        let (attempt, on_card) = (self.progress.attempt, card.is_some());
        let device = card.unwrap_or_default();
        push(&mut self.buffers, MOST_BUFFERS, PlacedBuffer { purpose, on_card, size, device, attempt });
    }

    pub(crate) fn add_document(&mut self, document: OtherDocument) {
        push(&mut self.documents, MOST_OTHERS, document);
    }

    /// True for a line of a document or of a source file, which describes messages and shows none.
    pub(crate) fn is_prose(&self, quote: &Quote) -> bool {
        let document = self.documents.iter().find(|document| document.origin == quote.origin);
        let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(&quote.line);
        document.is_some_and(|document| {
            if quote.line <= document.read_to {
                return !document.lines.iter().any(is_in);
            }
            // Only the start of a long file is kept; the syntax of a line shows the rest.
            is_source_line(&quote.text) || document.lines.is_empty()
        })
    }

    pub(crate) fn add_card_size(&mut self, size: Option<Bytes>) {
        // Smaller sizes are of a field that only looks like a card's.
        if let Some(size) = size.filter(|size| *size >= Bytes::mib(256)) {
            push(&mut self.card_sizes, MOST_OTHERS, size);
        }
    }

    pub(crate) fn add_card_free(&mut self, free: Option<Bytes>) {
        // Another process rarely fills all cards, and an engine takes the emptiest.
        self.card_free = self.card_free.max(free);
    }

    /// Keeps the last reading: a model that is loaded next to another finds less.
    pub(crate) fn add_free_of_card(&mut self, card: u64, free: Bytes) {
        if self.cards_free.len() < MOST_OTHERS || self.cards_free.contains_key(&card) {
            self.cards_free.insert(card, free);
        }
    }

    pub(crate) fn add_usage(&mut self, usage: CardUsage) {
        if self.usage.as_ref().is_none_or(|fullest| usage.used > fullest.used) {
            self.usage = Some(usage);
        }
    }

    pub(crate) fn add_holder(&mut self, holder: CardHolder) {
        push(&mut self.holders, MOST_HOLDERS, holder);
    }

    pub(crate) fn add_choice(&mut self, choice: CardChoice) {
        push(&mut self.choices, MOST_OTHERS, choice);
    }

    pub(crate) fn add_xid(&mut self, code: u64, quote: &Quote) {
        push(&mut self.xids, MOST_OTHERS, (code, quote.clone()));
    }

    /// Replaces the zones of a buddyinfo reading: a later line of the same zone is a later reading.
    pub(crate) fn add_blocks(&mut self, read: BuddyInfo) {
        for zone in read.zones {
            let zones = &mut self.blocks.zones;
            // A watch prints the same zones again and again.
            let same = zones.iter().position(|other| (other.node, &other.zone) == (zone.node, &zone.zone));
            match same {
                Some(at) => zones[at] = zone,
                None => push(zones, MOST_OTHERS, zone),
            }
        }
    }

    /// Keeps the longest series.
    pub(crate) fn add_series(&mut self, mut readings: Vec<Bytes>) {
        readings.truncate(MOST_OTHERS);
        // Two readings are a difference, not a trend.
        if readings.len() >= 3 && readings.len() > self.series.len() {
            self.series = readings;
        }
    }
}

fn push<T>(list: &mut Vec<T>, most: usize, item: T) {
    if list.len() < most {
        list.push(item);
    }
}
