//! Holds a request body as a list of chunks that is never joined.
//!
//! A prompt may be megabytes long, and joining its chunks would copy all of it.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;

#[derive(Clone, Debug, Default)]
pub struct Rope {
    chunks: VecDeque<Bytes>,
    len: usize,
}

impl From<Bytes> for Rope {
    fn from(chunk: Bytes) -> Self {
        let mut rope = Self::default();
        rope.push(chunk);
        rope
    }
}

impl Rope {
    pub fn push(&mut self, chunk: Bytes) {
        // Empty chunks carry nothing, and each would cost a write to the engine.
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Takes the first chunk.
    pub fn pop(&mut self) -> Option<Bytes> {
        let next = self.chunks.pop_front();
        self.len -= next.as_ref().map_or(0, Bytes::len);
        next
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.chunks.iter()
    }

    /// Returns the part in `range` without copying it; bytes beyond the end are left out.
    pub fn slice(&self, range: Range<usize>) -> Rope {
        let mut part = Rope::default();
        let mut start = 0;
        for chunk in &self.chunks {
            let end = start + chunk.len();
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                // `Bytes::slice` counts a reference and copies nothing.
                part.push(chunk.slice(from - start..to - start));
            }
            start = end;
        }
        part
    }

    pub(crate) fn append(&mut self, other: Rope) {
        other.chunks.into_iter().for_each(|chunk| self.push(chunk));
    }

    /// Copies the part in `range`; for short parts.
    pub fn copy(&self, range: Range<usize>) -> Vec<u8> {
        let part = self.slice(range);
        let mut copy = Vec::with_capacity(part.len);
        part.chunks.iter().for_each(|chunk| copy.extend_from_slice(chunk));
        copy
    }

    /// Returns the first position of `needle` at or after `from`, also across the borders of chunks.
    pub fn find(&self, needle: &[u8], from: usize) -> Option<usize> {
        // Built once: the searcher's tables serve every chunk and every seam.
        let finder = memmem::Finder::new(needle);
        // A needle across a seam has at least one byte on the other side.
        let overlap = needle.len().saturating_sub(1);
        let mut start = 0;
        for (index, chunk) in self.chunks.iter().enumerate() {
            let end = start + chunk.len();
            if end > from {
                let begin = from.max(start);
                if let Some(at) = finder.find(&chunk[begin - start..]) {
                    return Some(begin + at);
                }
                // A needle across chunks is looked for in a copy of their ends, not in a joined body.
                let seam = end.saturating_sub(overlap).max(begin);
                if let Some(at) = finder.find(&self.seam(index, seam - start, overlap)) {
                    return Some(seam + at);
                }
            }
            start = end;
        }
        None
    }

    /// Copies the end of one chunk, from `begin` on, and up to `beyond` bytes of those that follow.
    fn seam(&self, index: usize, begin: usize, beyond: usize) -> Vec<u8> {
        let mut seam = self.chunks[index][begin..].to_vec();
        let limit = seam.len() + beyond;
        for chunk in self.chunks.range(index + 1..) {
            let room = limit - seam.len();
            seam.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if seam.len() == limit {
                break;
            }
        }
        seam
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Cuts `text` into chunks of the given lengths, over and over.
    pub(crate) fn rope_of(text: &[u8], lengths: &[usize]) -> Rope {
        let mut rope = Rope::default();
        let mut rest = text;
        for length in lengths.iter().copied().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, tail) = rest.split_at(length.clamp(1, rest.len()));
            rope.push(Bytes::copy_from_slice(chunk));
            rest = tail;
        }
        rope
    }

    #[test]
    fn a_needle_is_found_at_every_place_for_every_chunk_size() {
        let text = b"..--boundary..--boundary--";
        for size in 1..=text.len() {
            let rope = rope_of(text, &[size]);
            assert_eq!(rope.find(b"--boundary", 0), Some(2), "chunks of {size}");
            assert_eq!(rope.find(b"--boundary", 3), Some(14), "chunks of {size}");
            assert_eq!(rope.find(b"--boundary--", 0), Some(14), "chunks of {size}");
            assert_eq!(rope.find(b"boundary?", 0), None);
        }
    }

    #[test]
    fn a_slice_holds_what_the_joined_text_holds() {
        let text = b"0123456789";
        for size in 1..=text.len() {
            let rope = rope_of(text, &[size]);
            assert_eq!(rope.copy(3..8), b"34567");
            assert_eq!(rope.slice(8..99).len(), 2);
            assert_eq!(rope.slice(4..4).len(), 0);
        }
    }
}
