//! Reads a GGUF header without the vocabulary, piece by piece.
//!
//! The vocabulary takes up nearly all of a header (3 to 10 MiB), and a plan needs only its size.

use std::ops::Range;

use plimsoll_base::Bytes;

use super::Header;
use super::cursor::Cursor;
use super::error::{GgufError, GgufPlace};
use super::gap::{Gap, GapRun};
use super::outlook::{Ahead, Pace};
use crate::Dialect;

/// Partial header, as far as it was read.
#[derive(Debug)]
pub struct Excerpt {
    file_length: u64,
    dialect: Dialect,
    /// The bytes of the file without those of the gaps.
    kept: Vec<u8>,
    gaps: Vec<Gap>,
    passing: Option<GapRun>,
    wants: Option<Range<u64>>,
    failure: Option<GgufError>,
    ahead: Ahead,
    pace: Pace,
    passed: Vec<PassedArray>,
    /// Arrays of a file with the same vocabulary.
    assumed: Vec<PassedArray>,
}

/// Array of a vocabulary that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedArray {
    key: String,
    count: u64,
    bytes: u64,
}

impl Excerpt {
    /// Of a file of so many bytes.
    pub fn new(file_length: u64, dialect: Dialect) -> Self {
        Self {
            file_length,
            dialect,
            kept: Vec::new(),
            gaps: Vec::new(),
            passing: None,
            wants: Some(0..0),
            failure: None,
            ahead: Ahead::default(),
            pace: Pace::default(),
            passed: Vec::new(),
            assumed: Vec::new(),
        }
    }

    /// Of a file that probably has the vocabulary of another one: arrays of the same key and count are passed
    /// over by their length there. Use the result only if [`Self::fills_its_file`].
    pub fn assuming(file_length: u64, dialect: Dialect, vocabulary: &[PassedArray]) -> Self {
        Self { assumed: vocabulary.to_vec(), ..Self::new(file_length, dialect) }
    }

    /// Bytes of the header that are kept.
    pub fn occupied(&self) -> Bytes {
        Bytes::new(u64::try_from(self.kept.len()).unwrap_or(u64::MAX))
    }

    /// The arrays that were passed over.
    pub fn vocabulary(&self) -> &[PassedArray] {
        &self.passed
    }

    /// True where the data of the tensors ends with the file, so that every byte has its place.
    pub fn fills_its_file(&self) -> bool {
        let Ok(header) = self.header() else { return false };
        let data: Bytes = header.tensors.iter().map(|tensor| tensor.bytes.padded(header.alignment)).sum();
        let padded = header.data_offset + data.get();
        // The last tensor may lack its padding.
        let last = header.tensors.last().map_or(Bytes::ZERO, |last| last.bytes);
        let bare = padded - last.padded(header.alignment).saturating_sub(last).get();
        (bare..=padded).contains(&self.file_length)
    }

    /// The probable end of the header, as an offset, estimated from the part that was read, with so many
    /// percent more of the remaining words.
    pub fn likely_end(&self, margin: u64) -> u64 {
        let Some(wanted) = &self.wants else { return 0 };
        let words = match &self.passing {
            Some(run) => run.bytes(self.pace, margin, |key| text(&self.kept, key)),
            None => 0,
        };
        let behind = self.ahead.bytes(wanted.start);
        wanted.start.saturating_add(words).saturating_add(behind).min(self.file_length)
    }

    /// The bytes of the file that are needed next; `None` when the header is complete or refused.
    pub fn wants(&self) -> Option<Range<u64>> {
        self.wants.clone()
    }

    /// Takes the bytes requested by [`Self::wants`] and the bytes that follow them in the file. A piece that
    /// is too short is the last.
    pub fn take(&mut self, piece: &[u8]) {
        let Some(wanted) = self.wants.take() else {
            return;
        };
        // An empty request still needs a byte of progress, or the loop of the caller would not end.
        let least = (wanted.end - wanted.start).max(1);
        let is_short = u64::try_from(piece.len()).is_ok_and(|length| length < least);
        match self.passing.take() {
            Some(run) => self.pass(run, piece),
            None => self.keep(wanted.start, piece),
        }
        if is_short {
            self.wants = None;
        }
    }

    /// The header, or the reason of its absence.
    pub fn header(&self) -> Result<Header<'_>, GgufError> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Header::read_at(&mut self.cursor(), self.file_length, self.dialect),
        }
    }

    fn cursor(&self) -> Cursor<'_> {
        Cursor::among(&self.kept, &self.gaps, self.file_length)
    }

    fn keep(&mut self, offset: u64, piece: &[u8]) {
        self.kept.extend_from_slice(piece);
        let end = offset + u64::try_from(piece.len()).unwrap_or(u64::MAX);
        let mut cursor = self.cursor();
        let read = Header::read_at(&mut cursor, self.file_length, self.dialect).map(drop);
        let used = cursor.used();
        let (surplus, ahead) = (cursor.surplus, cursor.ahead);
        self.ahead = ahead;
        match (read, surplus) {
            (Ok(()), _) => {
                self.kept.truncate(used);
                // The buffer has grown by whole pieces, and the header outlives them.
                self.kept.shrink_to_fit();
            }
            (Err(GgufError::Truncated { .. }), Some(run)) => {
                // The elements are walked in the next pieces; the bytes read so far are read again there.
                self.kept.truncate(run.kept);
                self.go_on(self.foreknown(run));
            }
            (Err(GgufError::Truncated { needed, .. }), None) => {
                // at least doubled, since what is kept is read from its start again
                let twice = end.saturating_add(u64::try_from(self.kept.len()).unwrap_or(u64::MAX));
                self.wants = Some(end..needed.max(twice.min(self.file_length)).max(end));
            }
            _ => {}
        }
    }

    fn pass(&mut self, mut run: GapRun, piece: &[u8]) {
        let mut cursor = Cursor::within(piece, run.next, self.file_length);
        // The byte order was found at the start of the file, which this window does not contain.
        cursor.big_endian = run.big_endian;
        let before = (run.texts, run.next);
        let passed = cursor.pass_texts(&mut run.texts, GgufPlace::Value(&run.key));
        run.next = cursor.offset();
        self.pace.note(before.0 - run.texts, run.next - before.1);
        match passed {
            Ok(()) => self.go_on(run),
            Err(GgufError::Truncated { needed, .. }) => {
                self.wants = Some(run.next..needed);
                self.passing = Some(run);
            }
            Err(error) => self.failure = Some(error),
        }
    }

    fn go_on(&mut self, run: GapRun) {
        self.wants = Some(run.next..run.next);
        if run.texts > 0 {
            self.passing = Some(run);
            return;
        }
        let bytes = run.next - run.start;
        self.passed.push(PassedArray { key: run.key, count: run.count, bytes });
        self.gaps.push(Gap { offset: run.start, length: bytes });
    }

    /// The run at its end, where its length is known from another file.
    fn foreknown(&self, run: GapRun) -> GapRun {
        let known = self.assumed.iter().find(|array| array.key == run.key && array.count == run.count);
        match known {
            Some(array) => GapRun { texts: 0, next: run.start.saturating_add(array.bytes), ..run },
            None => run,
        }
    }
}

/// The text of a key in `kept`; a guess depends on it and nothing else, so any byte sequence may be found.
fn text<'a>(kept: &'a [u8], key: &str) -> Option<&'a str> {
    const TEXT: &[u8] = &[8, 0, 0, 0];
    let entry = [key.as_bytes(), TEXT].concat();
    let at = kept.windows(entry.len()).position(|window| window == entry)?;
    let (length, text) = kept.get(at + entry.len()..)?.split_first_chunk::<8>()?;
    str::from_utf8(text.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?).ok()
}

#[cfg(test)]
mod tests {

    use super::super::{Datum, DraftHeader, ValueType};
    use super::*;
    use crate::Model;

    /// Takes in a file of zeros behind its header, by pieces of `size` bytes or what is wanted.
    fn taken(head: &[u8], file_length: u64, size: usize) -> Excerpt {
        let mut excerpt = Excerpt::new(file_length, Dialect::Ggml);
        let length = usize::try_from(file_length).unwrap();
        while let Some(wanted) = excerpt.wants() {
            let [start, end] = [wanted.start, wanted.end].map(|at| usize::try_from(at).unwrap());
            let end = end.max(start + size).min(length);
            let mut piece = head[start.min(head.len())..end.min(head.len())].to_vec();
            piece.resize(end - start, 0);
            excerpt.take(&piece);
        }
        excerpt
    }

    #[test]
    fn a_model_is_the_same_and_its_words_are_not_kept() {
        for name in ["l8", "oss", "kimi-k2", "nomic-embed", "mamba2"] {
            let specimen = plimsoll_specimens::specimen(name);
            let draft =
                specimen.unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0));
            let head = draft.header();
            let file_length = u64::try_from(head.len()).unwrap() + draft.data_length().get();
            let whole = Header::read(&head, file_length, Dialect::Ggml).unwrap();
            let excerpt = taken(&head, file_length, 64 << 10);
            let header = excerpt.header().unwrap();
            assert_eq!(header.tensors, whole.tensors, "{name}");
            assert_eq!(
                (header.tensor_list.clone(), header.data_offset),
                (whole.tensor_list.clone(), whole.data_offset)
            );
            let offsets = |header: &Header<'_>| -> Vec<u64> {
                let entries = header.entries.iter();
                entries.map(|entry| entry.offset).collect()
            };
            assert_eq!(offsets(&header), offsets(&whole), "{name}");
            assert_eq!(Model::from_headers(&[header]), Model::from_headers(&[whole]));
            assert!(excerpt.kept.len() * 4 < head.len(), "{name}");
        }
    }

    #[test]
    fn pieces_may_end_anywhere_and_a_word_may_be_longer_than_a_piece() {
        for big_endian in [false, true] {
            let mut draft = DraftHeader { big_endian, ..DraftHeader::default() };
            draft.put("general.architecture", "llama");
            let words = vec![vec![b'w'; 100], Vec::new(), vec![b'x'; 3]];
            draft.put("tokenizer.ggml.tokens", Datum::Texts(words));
            draft.put("tokenizer.ggml.scores", Datum::Numbers(ValueType::F32, vec![0; 3]));
            draft.put("tokenizer.ggml.merges", Datum::Texts(Vec::new()));
            draft.put("llama.block_count", 3_u32);
            draft.tensors = super::super::tests::two_tensors();
            let head = draft.header();
            let file_length = u64::try_from(head.len()).unwrap() + draft.data_length().get();
            for size in 1..head.len() {
                let excerpt = taken(&head, file_length, size);
                let header = excerpt.header().unwrap();
                assert_eq!(header.tensors.len(), 2, "{size}");
                assert_eq!(header.u32("llama.block_count"), Ok(Some(3)), "{size}");
                let words = header.array("tokenizer.ggml.tokens").unwrap().unwrap();
                assert_eq!((words.count, words.texts().unwrap().count()), (3, 0));
            }
        }
    }
}
