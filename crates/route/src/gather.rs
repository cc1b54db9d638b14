//! Collects the pieces of a request body while it arrives, and joins small ones to save memory.
//!
//! A small piece would otherwise keep a whole, mostly empty read buffer in memory.

use std::mem;

use bytes::Bytes;

use super::rope::Rope;

/// The most that one read of a client's connection takes, and the size of the blocks that pieces are copied
/// into. Half of it adds 5 % to the time of a prompt of 2 MB, four times as much 3 % (measured).
pub(crate) const READ_BUFFER: usize = 256 * 1024;
// DECISION: the pieces of a body are copied together unless they nearly fill hyper's read buffer. A piece
// that is not copied keeps the whole buffer alive (4.8 times the counted memory, measured). The last piece of
// a large body may leave more of its buffer empty, as long as all that lies empty is a quarter of the body at
// most.
/// Pieces of one buffer that have at least this size are kept as they came: four fifths of the buffer that
/// they hold.
pub(super) const KEPT: usize = READ_BUFFER / 5 * 4;
/// A piece below this size is copied at once, as long as none before it waits.
const SMALL: usize = READ_BUFFER / 16;
/// Pieces that may wait: a list of more would take memory of its own.
const MOST_WAITING: usize = 32;

/// The pieces of a body that is still arriving.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pub(super) rope: Rope,
    /// Pieces that lie one behind the other in the buffer that hyper fills now, which costs no memory yet.
    waiting: Vec<Bytes>,
    /// Bytes of that buffer behind the last of them, if they are known.
    spare: Option<usize>,
    /// Bytes behind the pieces that were kept.
    empty: usize,
    pub(super) block: Vec<u8>,
}

impl Gather {
    /// Adds a piece; `spare` is the rest of its buffer.
    pub(super) fn add(&mut self, piece: Bytes, spare: Option<usize>) {
        let last = self.waiting.last().map(|last| last.as_ptr_range().end);
        if last != Some(piece.as_ptr()) || self.waiting.len() == MOST_WAITING {
            self.settle();
        }
        if piece.len() < SMALL && self.waiting.is_empty() {
            return self.copy(&piece);
        }
        self.waiting.push(piece);
        self.spare = spare;
    }

    pub(super) fn finish(mut self) -> Rope {
        self.settle();
        self.flush();
        self.rope
    }

    /// Keeps the waiting pieces, or copies them if their buffer is much larger.
    fn settle(&mut self) {
        let pieces = mem::take(&mut self.waiting);
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let body = self.rope.len() + self.block.len() + length;
        let empty = self.empty + self.spare.unwrap_or(READ_BUFFER.saturating_sub(length));
        if length >= KEPT || (self.spare.is_some() && empty <= body / 4) {
            self.empty = empty;
            self.flush();
            return pieces.into_iter().for_each(|piece| self.rope.push(piece));
        }
        pieces.iter().for_each(|piece| self.copy(piece));
    }

    fn copy(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(READ_BUFFER - self.block.len()));
            self.reserve(now.len());
            self.block.extend_from_slice(now);
            if self.block.len() == READ_BUFFER {
                self.flush();
            }
            rest = later;
        }
    }

    /// Grows the block by at least a quarter of the whole body, so that the reserved memory stays close to
    /// the counted memory.
    fn reserve(&mut self, more: usize) {
        let filled = self.block.len();
        if self.block.capacity() - filled < more {
            // `reserve_exact`, because `Vec` would double.
            let quarter = (self.rope.len() + filled) / 4;
            self.block.reserve_exact(quarter.clamp(more, READ_BUFFER - filled));
        }
    }

    fn flush(&mut self) {
        let mut block = mem::take(&mut self.block);
        // The spare capacity would be held as long as the body, without being counted.
        block.shrink_to_fit();
        self.rope.push(Bytes::from(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a buffer in pieces that end there; true if the body was not copied.
    fn is_kept(buffer: &Bytes, ends: &[usize]) -> bool {
        let mut gather = Gather::default();
        let mut start = 0;
        for &end in ends {
            gather.add(buffer.slice(start..end), Some(buffer.len() - end));
            start = end;
        }
        let rope = gather.finish();
        assert_eq!(rope.copy(0..rope.len()), buffer[..start]);
        rope.chunks().all(|chunk| buffer.as_ptr_range().contains(&chunk.as_ptr()))
    }

    #[test]
    fn pieces_that_fill_their_buffer_together_are_not_copied() {
        let letters: Vec<u8> = (0..READ_BUFFER).map(|at| b"abcdefg"[at % 7]).collect();
        let (whole, half) = (Bytes::from(letters.clone()), Bytes::from(letters[..READ_BUFFER / 2].to_vec()));
        assert!(is_kept(&whole, &[80_000, 180_000, 220_000]));
        assert!(is_kept(&half, &[40_000, half.len() / 5 * 4 + 4]));
        assert!(!is_kept(&half, &[40_000, half.len() / 5 * 4 - 4]), "a fifth and more is spare");
        assert!(!is_kept(&whole, &[80_000]) && !is_kept(&half, &[SMALL - 1]));
    }

    #[test]
    fn the_last_piece_of_a_large_body_is_not_copied_and_a_quarter_of_a_body_is_empty_at_most() {
        let whole = Bytes::from(vec![b'x'; READ_BUFFER]);
        let mut gather = Gather::default();
        (0..7).for_each(|_| gather.add(whole.clone(), Some(0)));
        let last = whole.slice(..READ_BUFFER / 2);
        gather.add(last.clone(), Some(READ_BUFFER / 2));
        assert_eq!(gather.finish().chunks().last().map(|piece| piece.as_ptr()), Some(last.as_ptr()));
        // A client that fills little of each buffer.
        let mut gather = Gather::default();
        for _ in 0..400 {
            let buffer = Bytes::from(vec![b'x'; READ_BUFFER]);
            gather.add(buffer.slice(..2 * SMALL), Some(READ_BUFFER - 2 * SMALL));
            assert!(gather.empty <= (gather.rope.len() + gather.block.len()) / 4);
        }
        assert!(gather.empty > 0);
        assert_eq!(gather.finish().len(), 400 * 2 * SMALL);
    }

    #[test]
    fn pieces_of_other_buffers_and_many_small_ones_are_copied() {
        let mut gather = Gather::default();
        for at in 0..10 {
            gather.add(Bytes::from(vec![at; READ_BUFFER]).slice(..SMALL), Some(READ_BUFFER - SMALL));
            assert!(gather.waiting.len() <= 1);
        }
        let buffer = Bytes::from(vec![b'x'; READ_BUFFER]);
        for at in 0..5000 {
            let piece = if at == 0 { 0..SMALL } else { SMALL + at..SMALL + at + 1 };
            gather.add(buffer.slice(piece), Some(READ_BUFFER));
            assert!(gather.waiting.len() <= MOST_WAITING);
        }
        assert_eq!(gather.finish().len(), 11 * SMALL + 4999);
    }
}
