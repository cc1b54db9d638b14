//! Fills in `cudaDeviceProp`, whose layout differs between major versions of the CUDA runtime.

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
/// ROCm 6 and 7: the members of CUDA 12, and AMD's behind them (`hip_runtime_api.h` 6.4.3).
pub(crate) const HIP: Layout = Layout { size: 1472, is_13: false };

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
        let at = |old: usize, new: usize| if self.is_13 { new } else { old };
        // SAFETY: offsets of aligned members of the structure, `size_t` and then `int`.
        unsafe {
            base.add(288).cast::<u64>().write(card.total);
            for (old, new, attribute) in SIZES {
                base.add(at(old, new)).cast::<u64>().write(card.attribute(attribute).into());
            }
            for (old, new, attribute) in WORDS {
                base.add(at(old, new)).cast::<u32>().write(card.attribute(attribute));
            }
            base.add(at(584, 568)).cast::<u32>().write(u32::try_from(index).unwrap_or(0) + 1);
        }
    }
}

/// Members of `size_t`: the offset in CUDA 11 and 12, that in 13, and the attribute that the member repeats.
const SIZES: [(usize, usize, c_int); 4] = [(296, 296, 8), (640, 624, 81), (696, 672, 97), (720, 696, 111)];
/// The same of `int`.
#[rustfmt::skip]
const WORDS: [(usize, usize, c_int); 21] = [
    (304, 304, 12), (308, 308, 10), (320, 320, 1), (324, 324, 2), (328, 328, 3), (332, 332, 4), (336, 336, 5),
    (340, 340, 6), (344, 344, 7), (360, 360, 75), (364, 364, 76), (388, 384, 16), (396, 388, 18), (400, 392, 19),
    (604, 588, 41), (624, 604, 39), (648, 632, 82), (652, 636, 83), (676, 656, 89), (688, 668, 95),
    (712, 688, 106),
];

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
