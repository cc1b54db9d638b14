//! Backs a range of addresses with as few allocations of physical memory as the driver allows.
//!
//! The first piece tried is the whole range, and each refusal halves the size.

/// Remaining bytes of a range, and the size of the next piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceSizes {
    left: u64,
    piece: u64,
    floor: u64,
    granule: u64,
}

impl PieceSizes {
    /// `total` bytes, a multiple of `granule`, in pieces of `first` at most and of `floor` at least; `floor`
    /// becomes whole granules, and none of them is smaller than one.
    pub(crate) fn new(total: u64, first: u64, floor: u64, granule: u64) -> Self {
        let granule = granule.max(1);
        Self { left: total, piece: down(first, granule), floor: down(floor, granule).max(granule), granule }
    }

    /// Size of the next piece to request; `None` when the range is complete or the driver has nothing left.
    pub(crate) fn next(&self) -> Option<u64> {
        let piece = self.piece.min(self.left);
        // The last piece may be smaller than the floor: there is no more to ask for.
        (piece > 0 && (self.piece >= self.floor || piece == self.left)).then_some(piece)
    }

    pub(crate) fn given(&mut self, piece: u64) {
        self.left = self.left.saturating_sub(piece);
    }

    pub(crate) fn refused(&mut self, piece: u64) {
        let half = down(piece / 2, self.granule);
        self.piece = if half < self.floor { 0 } else { half };
    }

    /// Bytes that could not be had.
    #[cfg(test)]
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

/// `bytes` in whole granules, the last one left out if it is not full.
pub(crate) fn down(bytes: u64, granule: u64) -> u64 {
    bytes - bytes % granule.max(1)
}

/// `bytes` in whole granules; `None` if no number holds them.
pub(crate) fn up(bytes: u64, granule: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(granule.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GRANULE: u64 = 2 * MIB;

    /// Asks a driver that has `free` bytes and gives at most `largest` at once; what it gave, and how often
    /// it refused.
    fn ask(mut pieces: PieceSizes, mut free: u64, largest: u64) -> (Vec<u64>, u32) {
        let (mut given, mut refusals) = (Vec::new(), 0);
        while let Some(piece) = pieces.next() {
            if piece <= free.min(largest) {
                free -= piece;
                pieces.given(piece);
                given.push(piece / MIB);
            } else {
                refusals += 1;
                pieces.refused(piece);
            }
        }
        assert_eq!(pieces.left() % GRANULE, 0);
        (given, refusals)
    }

    #[test]
    fn fitting_request_is_one_piece() {
        let pieces = PieceSizes::new(100 * MIB, u64::MAX, 0, GRANULE);
        assert_eq!(ask(pieces, 100 * MIB, u64::MAX), (vec![100], 0));
    }

    #[test]
    fn a_limit_on_one_piece_is_found_by_halving() {
        let pieces = PieceSizes::new(100 * MIB, u64::MAX, 16 * MIB, GRANULE);
        assert_eq!(ask(pieces, 1000 * MIB, 30 * MIB), (vec![24, 24, 24, 24, 4], 2));
    }

    #[test]
    fn the_floor_ends_it_when_less_is_free() {
        let all = PieceSizes::new(100 * MIB, 100 * MIB, 0, GRANULE);
        let (given, refusals) = ask(all, 61 * MIB, u64::MAX);
        assert_eq!(given, [50, 6, 2, 2]);
        assert!(refusals <= 8);
        let coarse = PieceSizes::new(100 * MIB, 100 * MIB, 16 * MIB, GRANULE);
        assert_eq!(ask(coarse, 61 * MIB, u64::MAX).0, [50]);
    }

    #[test]
    fn nothing_is_asked_of_a_driver_for_nothing() {
        assert_eq!(PieceSizes::new(0, GRANULE, 0, GRANULE).next(), None);
        assert_eq!(PieceSizes::new(GRANULE, 0, 0, GRANULE).next(), None);
        assert_eq!(PieceSizes::new(GRANULE, GRANULE - 1, 0, GRANULE).next(), None);
    }

    #[test]
    fn rounding_keeps_whole_granules() {
        assert_eq!((down(5, 2), down(4, 2), down(5, 0)), (4, 4, 5));
        assert_eq!((up(5, 2), up(4, 2), up(u64::MAX, 2)), (Some(6), Some(4), None));
    }
}
