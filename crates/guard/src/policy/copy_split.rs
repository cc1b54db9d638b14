//! Split of a copy where a spilled range changes from device memory to host memory.
//!
//! A copy is a box of bytes, rows and slices. It is divided along its slowest dimension first, until no piece
//! crosses a border of the source or the destination.

/// A box within a copy (bytes of a row, rows of a slice, slices), relative to the copy's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyBox {
    pub(crate) at: [u64; 3],
    pub(crate) size: [u64; 3],
}

/// Source or destination of a copy, with the address of its border between device and host memory; 0 for
/// none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySide {
    pub(crate) start: u64,
    /// Bytes from a row to the next.
    pub(crate) pitch: u64,
    /// Bytes from a slice to the next.
    pub(crate) slice: u64,
    pub(crate) border: u64,
}

impl CopyBox {
    pub(crate) const fn line(width: u64) -> Self {
        Self::solid([width, 1, 1])
    }

    pub(crate) const fn solid(size: [u64; 3]) -> Self {
        Self { at: [0; 3], size }
    }

    /// The first `count` bytes, rows or slices, and the rest.
    fn divide(self, axis: usize, count: u64) -> (Self, Self) {
        let (mut head, mut tail) = (self, self);
        head.size[axis] = count;
        tail.at[axis] += count;
        tail.size[axis] -= count;
        (head, tail)
    }
}

impl CopySide {
    /// A side without rows.
    pub(crate) const fn line(start: u64, border: u64) -> Self {
        Self { start, pitch: 0, slice: 0, border }
    }

    /// The address of a byte of the box.
    pub(crate) const fn address(&self, [x, y, z]: [u64; 3]) -> u64 {
        self.start
            .wrapping_add(x)
            .wrapping_add(y.wrapping_mul(self.pitch))
            .wrapping_add(z.wrapping_mul(self.slice))
    }

    /// The address after the last byte of the block's first `height` rows in each of its first `depth`
    /// slices.
    fn end(&self, block: &CopyBox, height: u64, depth: u64) -> u64 {
        let ([x, y, z], [width, ..]) = (block.at, block.size);
        self.address([x + width, y + height - 1, z + depth - 1])
    }

    /// Two smaller blocks, if the border is inside this one.
    fn divide(&self, block: CopyBox) -> Option<(CopyBox, CopyBox)> {
        let [_, height, depth] = block.size;
        if block.size.contains(&0) || self.border <= self.address(block.at) {
            return None;
        }
        if self.end(&block, height, depth) <= self.border {
            return None;
        }
        // Rows (or slices) that lie wholly before the border, of `count` that are `stride` apart and of which
        // the first ends at `end`; at least one and not all, so that both halves are smaller than the block.
        let whole = |end: u64, stride: u64, count: u64| {
            let behind = self.border.saturating_sub(end).checked_div(stride).unwrap_or(0);
            let before = if self.border < end { 0 } else { behind + 1 };
            before.clamp(1, count - 1)
        };
        Some(if depth > 1 {
            block.divide(2, whole(self.end(&block, height, 1), self.slice, depth))
        } else if height > 1 {
            block.divide(1, whole(self.end(&block, 1, 1), self.pitch, height))
        } else {
            block.divide(0, self.border - self.address(block.at))
        })
    }
}

/// Calls `each` for the pieces of `block` in order, none of which crosses a border of `sides`; stops at the
/// first failure.
pub(crate) fn split<E>(
    block: CopyBox,
    sides: &[CopySide],
    each: &mut impl FnMut(CopyBox) -> Result<(), E>,
) -> Result<(), E> {
    let Some((side, rest)) = sides.split_first() else {
        return each(block);
    };
    match side.divide(block) {
        None => split(block, rest, each),
        Some((head, tail)) => {
            split(head, sides, each)?;
            split(tail, sides, each)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(block: CopyBox, sides: &[CopySide]) -> Vec<CopyBox> {
        let mut pieces = Vec::new();
        split::<()>(block, sides, &mut |piece| {
            pieces.push(piece);
            Ok(())
        })
        .unwrap();
        pieces
    }

    /// Every byte of `block` is in one piece and no piece has bytes on both sides of a border.
    fn check(block: CopyBox, sides: &[CopySide]) -> usize {
        let pieces = pieces(block, sides);
        let bytes = |block: &CopyBox| block.size.iter().product::<u64>();
        assert_eq!(pieces.iter().map(bytes).sum::<u64>(), bytes(&block));
        let mut seen = std::collections::BTreeSet::new();
        for piece in &pieces {
            for side in sides {
                let crosses = side.address(piece.at) < side.border
                    && side.border < side.end(piece, piece.size[1], piece.size[2]);
                assert!(!crosses, "{piece:?} crosses {side:?}");
            }
            let [xs, ys, zs] = [0, 1, 2].map(|axis| piece.at[axis]..piece.at[axis] + piece.size[axis]);
            for z in zs {
                for y in ys.clone() {
                    for x in xs.clone() {
                        assert!(seen.insert((x, y, z)), "{x} {y} {z} twice");
                    }
                }
            }
        }
        pieces.len()
    }

    #[test]
    fn a_line_is_cut_only_where_it_crosses() {
        let line = |start, border| check(CopyBox::line(10), &[CopySide::line(start, border)]);
        assert_eq!(line(100, 105), 2);
        assert_eq!(line(100, 100), 1);
        assert_eq!(line(100, 110), 1);
        assert_eq!(line(100, 99), 1);
        assert_eq!(line(100, 111), 1);
    }

    #[test]
    fn a_line_between_two_ranges_is_cut_at_both_borders() {
        let sides = [CopySide::line(100, 103), CopySide::line(500, 507)];
        let widths: Vec<_> =
            pieces(CopyBox::line(10), &sides).iter().map(|piece| (piece.at[0], piece.size[0])).collect();
        assert_eq!(widths, [(0, 3), (3, 4), (7, 3)]);
    }

    #[test]
    fn every_border_of_a_plane_and_of_a_solid_is_found() {
        for border in 0..200 {
            let plane = CopySide { start: 10, pitch: 9, slice: 0, border };
            assert!(check(CopyBox::solid([5, 6, 1]), &[plane]) <= 4);
            let solid = CopySide { slice: 40, ..plane };
            assert!(check(CopyBox::solid([5, 4, 3]), &[solid]) <= 6);
            let dense = CopySide { start: 90, pitch: 5, slice: 20, border: 137 };
            check(CopyBox::solid([5, 4, 3]), &[solid, dense]);
        }
    }

    #[test]
    fn rows_without_a_pitch_and_empty_copies_end() {
        let side = CopySide::line(10, 12);
        assert_eq!(pieces(CopyBox::solid([5, 3, 1]), &[side]).len(), 6);
        assert_eq!(pieces(CopyBox::solid([0, 1, 1]), &[side]).len(), 1);
        assert_eq!(pieces(CopyBox::solid([5, 0, 1]), &[side]).len(), 1);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let mut calls = 0;
        let result = split(CopyBox::line(10), &[CopySide::line(0, 5)], &mut |_| {
            calls += 1;
            Err(7)
        });
        assert_eq!((result, calls), (Err(7), 1));
    }
}
