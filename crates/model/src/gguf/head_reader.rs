//! Decides which ranges of a remote file to fetch for its GGUF header, and reads them.

use std::ops::Range;

use plimsoll_base::Bytes;

use super::{Excerpt, GgufError, Header, PassedArray};
use crate::Dialect;

/// Bytes of the first request.
pub const FIRST: u64 = 64 << 10;
/// Bytes that the parser gets at once.
const PIECE: u64 = 64 << 10;
/// Percent and bytes beyond the estimate of the third request.
const MARGIN: u64 = 30;
const SPARE: u64 = 4 << 10;
/// Requests for one header; three are usual.
const REQUESTS: u32 = 16;

/// Why no more of a header is fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchHeaderError {
    #[error(
        "the header of the file is longer than {limit}, or damaged: it continues to {} of the file\n\
         hint: check the file; if it is sound, --header-limit raises the limit", Bytes::new(*.needed)
    )]
    TooLong { limit: Bytes, needed: u64 },
    #[error("reading the header takes more than {0} requests\nhint: download the file and give it with -m")]
    Requests(u32),
}

// DECISION: the missing rest is mostly the vocabulary, whose length is known only at its end. So later
// requests take an estimated length.
/// Header in the making: says which bytes it needs, and takes them.
#[derive(Debug)]
pub struct HeadReader {
    excerpt: Excerpt,
    length: u64,
    limit: Bytes,
    /// Fetched pieces, with offsets; only the last piece grows.
    pieces: Vec<(u64, Vec<u8>)>,
    rounds: u32,
}

impl HeadReader {
    /// Of a file of `length` bytes, whose vocabulary is probably `vocabulary` if that is not empty.
    pub fn new(length: u64, dialect: Dialect, limit: Bytes, vocabulary: &[PassedArray]) -> Self {
        let excerpt = Excerpt::assuming(length, dialect, vocabulary);
        Self { excerpt, length, limit, pieces: Vec::new(), rounds: 0 }
    }

    /// The bytes of the file to fetch next; `None` when the header is complete or refused.
    pub fn wants(&self) -> Result<Option<Range<u64>>, FetchHeaderError> {
        let Some(wanted) = self.excerpt.wants() else { return Ok(None) };
        let end = wanted.end.max(wanted.start + 1);
        if end > self.limit.get() {
            return Err(FetchHeaderError::TooLong { limit: self.limit, needed: end });
        }
        if self.rounds >= REQUESTS {
            return Err(FetchHeaderError::Requests(REQUESTS));
        }
        let occupied = self.occupied();
        let start = if occupied.contains(&wanted.start) || occupied.end == wanted.start {
            occupied.end
        } else {
            wanted.start
        };
        // The first estimate is a low one, because what it takes too much is wasted. The next ones are good,
        // and a little more saves a request.
        let likely = match self.rounds {
            ..2 => self.excerpt.likely_end(0),
            _ => self.excerpt.likely_end(MARGIN).saturating_add(SPARE),
        };
        // From then on at least doubled, so that no header takes many requests.
        let least = if self.rounds < 4 { 0 } else { FIRST << (self.rounds - 3).min(16) };
        let to = end.max(likely).max(start.saturating_add(least));
        Ok(Some(start..to.min(self.limit.get()).min(self.length).max(start + 1)))
    }

    /// Takes bytes of the file from `start`, the beginning of the requested range.
    pub fn take(&mut self, start: u64, bytes: Vec<u8>) {
        self.rounds += 1;
        let occupied = self.occupied();
        match self.pieces.last_mut() {
            Some((_, piece)) if start == occupied.end => piece.extend(bytes),
            _ => self.pieces.push((start, bytes)),
        }
        self.feed();
    }

    /// The last piece that was fetched.
    pub fn occupied(&self) -> Range<u64> {
        let (start, bytes) = self.pieces.last().map_or((0, &[][..]), |(start, bytes)| (*start, bytes));
        start..start + widened(bytes.len())
    }

    /// Gives the parser the available part of its request.
    fn feed(&mut self) {
        let occupied = self.occupied();
        while let Some(wanted) = self.excerpt.wants() {
            let end = wanted.end.max(wanted.start.saturating_add(PIECE)).min(occupied.end);
            let at_end = occupied.end >= self.length;
            let enough =
                wanted.start >= occupied.start && wanted.start < occupied.end && wanted.end <= occupied.end;
            if !enough && !at_end {
                return;
            }
            let place =
                |offset: u64| usize::try_from(offset.saturating_sub(occupied.start)).unwrap_or(usize::MAX);
            let piece = self.pieces.last().and_then(|(_, bytes)| bytes.get(place(wanted.start)..place(end)));
            // A piece that is too short tells the parser that the file ends.
            self.excerpt.take(piece.unwrap_or_default());
        }
    }

    pub fn header(&self) -> Result<Header<'_>, GgufError> {
        self.excerpt.header()
    }

    /// The arrays of its vocabulary, for files that probably have the same.
    pub fn vocabulary(&self) -> &[PassedArray] {
        self.excerpt.vocabulary()
    }

    /// False where an assumed vocabulary may be another one than the file's.
    pub fn fills_its_file(&self) -> bool {
        self.excerpt.fills_its_file()
    }

    /// What was fetched, each piece with its offset in the file.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces.iter().map(|(start, bytes)| (*start, bytes.as_slice()))
    }
}

fn widened(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
