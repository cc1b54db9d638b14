//! Remembers for each thread the buffer whose memory requirements it queried last, to tell repeated attempts
//! from new requests.
//!
//! A program that is refused tries other memory types for the same buffer; that is one refusal, not several.

use alloc::vec::Vec;

use plimsoll_nostd::lock::Lock;

/// Threads that are remembered for a device; of more, the one that asked first is forgotten.
const THREADS: usize = 64;

/// The buffer of which a thread has asked the requirements last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatedBuffer {
    pub(super) size: u64,
    /// Memory types in which it may lie.
    pub(super) bits: u32,
    /// Its memory was refused once, and that was told.
    pub(super) is_refused: bool,
}

#[derive(Debug)]
pub(super) struct ThreadRequests(Lock<Vec<(u64, StatedBuffer)>>);

impl ThreadRequests {
    pub(super) fn new() -> Self {
        Self(Lock::new(Vec::new()))
    }

    /// Enters the requirements of a buffer.
    pub(super) fn state(&self, thread: u64, size: u64, bits: u32) {
        let stated = StatedBuffer { size, bits, is_refused: false };
        let mut all = self.0.hold();
        match all.iter_mut().find(|(other, _)| *other == thread) {
            Some((_, place)) => *place = stated,
            None => {
                if all.len() == THREADS {
                    all.remove(0);
                }
                all.push((thread, stated));
            }
        }
    }

    /// The buffer that memory of exactly this size is for.
    ///
    /// DECISION: by its size, because Vulkan names no buffer when memory is allocated. Memory for several
    /// buffers is larger than one, so it is taken for nobody's, and is not spilled.
    pub(super) fn of(&self, thread: u64, size: u64) -> Option<StatedBuffer> {
        let all = self.0.hold();
        let own = all.iter().find(|(other, _)| *other == thread);
        own.map(|(_, stated)| *stated).filter(|stated| stated.size == size)
    }

    /// Remembers that memory of this size was refused to the thread.
    pub(super) fn refuse(&self, thread: u64, size: u64) {
        let mut all = self.0.hold();
        if let Some((_, stated)) = all.iter_mut().find(|(other, _)| *other == thread) {
            stated.is_refused = stated.size == size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_buffers_by_its_exact_size_on_the_same_thread() {
        let requests = ThreadRequests::new();
        assert_eq!(requests.of(1, 7), None);
        requests.state(1, 7, 0b11);
        let stated = StatedBuffer { size: 7, bits: 0b11, is_refused: false };
        assert_eq!((requests.of(1, 7), requests.of(2, 7), requests.of(1, 8)), (Some(stated), None, None));
    }

    #[test]
    fn a_refusal_is_remembered_until_the_next_buffer() {
        let requests = ThreadRequests::new();
        let refused = |thread| requests.of(thread, 7).is_some_and(|stated| stated.is_refused);
        requests.state(1, 7, 1);
        requests.state(2, 7, 1);
        requests.refuse(1, 7);
        assert!(refused(1) && !refused(2));
        requests.state(1, 7, 1);
        assert!(!refused(1));
        requests.refuse(1, 8);
        assert!(!refused(1));
    }

    #[test]
    fn of_too_many_threads_the_first_is_forgotten() {
        let requests = ThreadRequests::new();
        (0..=64).for_each(|thread| requests.state(thread, 7, 1));
        assert_eq!((requests.of(0, 7), requests.of(64, 7).is_some()), (None, true));
    }
}
