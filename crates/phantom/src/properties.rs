//! Layouts of `cudaDeviceProp`, which differ between major versions of the CUDA runtime.

use core::ffi::{c_int, c_void};

use crate::cards::Card;

/// The structure of a runtime (`driver_types.h` of CUDA 11.8, 12.9, 13.0).
#[derive(Debug)]
pub(crate) struct Layout {
    size: usize,
    /// CUDA 12 appended to the structure of CUDA 11, and 13 took members out.
    is_13: bool,
}

pub(crate) const CUDA_11: Layout = Layout { size: 728, is_13: false };
pub(crate) const CUDA_12: Layout = Layout { size: 1032, is_13: false };
pub(crate) const CUDA_13: Layout = Layout { size: 1008, is_13: true };

impl Layout {
    /// Writes what the card says of itself, as far as an engine reads it.
    ///
    /// # Safety
    /// `place` is the address of a structure of this layout.
    pub(crate) unsafe fn fill(&self, place: *mut c_void, card: &Card, index: usize) {
        let base = place.cast::<u8>();
        // SAFETY: the structure has this size.
        unsafe { base.write_bytes(0, self.size) };
        let name = card.name.as_bytes();
        // The name has 256 bytes, of which the last stays zero.
        // SAFETY: both are at least so long, and do not overlap.
        unsafe { base.copy_from_nonoverlapping(name.as_ptr(), name.len().min(255)) };
        let limits = card.limits();
        let sizes = [
            (288, 288, card.total),
            (296, 296, 49_152),
            (640, 624, limits.shared.into()),
            (696, 672, limits.opt_in.into()),
            (720, 696, card.reserved().into()),
        ];
        for (old, new, value) in sizes {
            // SAFETY: an offset of an aligned `size_t` in the structure.
            unsafe { base.add(if self.is_13 { new } else { old }).cast::<u64>().write(value) };
        }
        let word = |at: usize, value: u32| {
            // SAFETY: an offset of an aligned `int` in the structure.
            unsafe { base.add(at).cast::<u32>().write(value) };
        };
        // Up to the capability, all versions agree.
        for (at, number) in [(308, 10), (320, 1), (324, 2), (328, 3), (332, 4), (336, 5), (340, 6), (344, 7)]
        {
            word(at, card.attribute(number));
        }
        for (at, value) in [(304, Card::REGISTERS), (360, card.capability.0), (364, card.capability.1)] {
            word(at, value);
        }
        let bus = u32::try_from(index).unwrap_or(0) + 1;
        // Mapped host memory, unified addressing, managed memory (two members) and cooperative launches are there.
        let there = [(400, 392, 1), (604, 588, 1), (652, 636, 1), (676, 656, 1), (688, 668, 1)];
        let own = [
            (388, 384, card.processors),
            (396, 388, u32::from(card.integrated)),
            (584, 568, bus),
            (624, 604, limits.threads),
            (648, 632, Card::REGISTERS),
            (712, 688, limits.blocks),
        ];
        for (old, new, value) in there.into_iter().chain(own) {
            word(if self.is_13 { new } else { old }, value);
        }
    }
}

/// `cudaFuncAttributes`, as far as CUDA 11 has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionAttributes {
    pub(crate) shared: usize,
    pub(crate) constant: usize,
    pub(crate) local: usize,
    pub(crate) most_threads: c_int,
    pub(crate) registers: c_int,
    pub(crate) ptx_version: c_int,
    pub(crate) binary_version: c_int,
    /// Cache mode, most dynamic shared memory, and carve-out.
    pub(crate) others: [c_int; 3],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that an H200 wrote (driver 580.159.04, runtime 13.0, 2026-11-22), where engines read.
    #[test]
    fn the_structure_is_an_h200s() {
        let card = crate::cards::parse("name=NVIDIA H200,total=150109290496,cc=9.0").unwrap();
        for (layout, size, [processors, opt_in, cooperative]) in [
            (&CUDA_11, 728, [388, 696, 688]),
            (&CUDA_12, 1032, [388, 696, 688]),
            (&CUDA_13, 1008, [384, 672, 668]),
        ] {
            let mut words = vec![u64::MAX; size / 8 + 1];
            // SAFETY: as large as the structure, and aligned.
            unsafe { layout.fill(words.as_mut_ptr().cast(), &card[0], 0) };
            let word = |at: usize| u32::try_from(words[at / 8] >> (at % 8 * 8) & 0xffff_ffff).unwrap();
            assert_eq!(words[0], u64::from_le_bytes(*b"NVIDIA H"));
            assert_eq!(words[288 / 8], 150_109_290_496);
            assert_eq!((word(360), word(364), word(308)), (9, 0, 32));
            assert_eq!((word(processors), word(opt_in), word(cooperative)), (132, 232_448, 1));
            assert_eq!(words[size / 8], u64::MAX, "written past its end");
        }
    }
}
