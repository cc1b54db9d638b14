//! Layouts of `cudaDeviceProp`, which differ between major versions of the CUDA runtime.

use core::ffi::{c_int, c_void};

use crate::cards::Card;

/// Size of the structure, and offsets of what an engine reads (`driver_types.h` of CUDA 11.8, 12.9, 13.0).
#[derive(Debug)]
pub(crate) struct Layout {
    size: usize,
    processors: usize,
    integrated: usize,
    can_map: usize,
    bus: usize,
    unified: usize,
    threads: usize,
    shared: usize,
    registers: usize,
    managed: usize,
    concurrent_managed: usize,
    cooperative: usize,
    opt_in: usize,
    blocks: usize,
    reserved: usize,
}

/// CUDA 12 appended to the structure of CUDA 11, and 13 took members out.
pub(crate) const CUDA_11: Layout = Layout {
    size: 728,
    processors: 388,
    integrated: 396,
    can_map: 400,
    bus: 584,
    unified: 604,
    threads: 624,
    shared: 640,
    registers: 648,
    managed: 652,
    concurrent_managed: 676,
    cooperative: 688,
    opt_in: 696,
    blocks: 712,
    reserved: 720,
};
pub(crate) const CUDA_12: Layout = Layout { size: 1032, ..CUDA_11 };
pub(crate) const CUDA_13: Layout = Layout {
    size: 1008,
    processors: 384,
    integrated: 388,
    can_map: 392,
    bus: 568,
    unified: 588,
    threads: 604,
    shared: 624,
    registers: 632,
    managed: 636,
    concurrent_managed: 656,
    cooperative: 668,
    opt_in: 672,
    blocks: 688,
    reserved: 696,
};

impl Layout {
    /// Writes what the card says of itself.
    ///
    /// # Safety
    /// `place` is the address of a structure of this layout.
    pub(crate) unsafe fn fill(&self, place: *mut c_void, card: &Card, index: usize) {
        let base = place.cast::<u8>();
        // SAFETY: the structure has this size.
        unsafe { base.write_bytes(0, self.size) };
        let word = |at: usize, value: u32| {
            // SAFETY: an offset of an aligned `int` in the structure.
            unsafe { base.add(at).cast::<u32>().write(value) };
        };
        let long = |at: usize, value: u64| {
            // SAFETY: an offset of an aligned `size_t` in the structure.
            unsafe { base.add(at).cast::<u64>().write(value) };
        };
        let name = card.name.as_bytes();
        // The name has 256 bytes, of which the last stays zero.
        // SAFETY: both are at least so long, and do not overlap.
        unsafe { base.copy_from_nonoverlapping(name.as_ptr(), name.len().min(255)) };
        // Up to the capability, all versions agree.
        long(288, card.total);
        for (at, number) in [(308, 10), (320, 1), (324, 2), (328, 3), (332, 4), (336, 5), (340, 6), (344, 7)]
        {
            word(at, card.attribute(number));
        }
        long(296, 49_152);
        word(304, Card::REGISTERS);
        word(360, card.capability.0);
        word(364, card.capability.1);
        let limits = card.limits();
        for (at, value) in [
            (self.processors, card.processors),
            (self.integrated, u32::from(card.integrated)),
            (self.can_map, 1),
            (self.bus, u32::try_from(index).unwrap_or(0) + 1),
            (self.unified, 1),
            (self.threads, limits.threads),
            (self.registers, Card::REGISTERS),
            (self.managed, 1),
            (self.concurrent_managed, 1),
            (self.cooperative, 1),
            (self.blocks, limits.blocks),
        ] {
            word(at, value);
        }
        long(self.shared, limits.shared.into());
        long(self.opt_in, limits.opt_in.into());
        long(self.reserved, card.reserved().into());
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
    pub(crate) cache_mode: c_int,
    pub(crate) most_dynamic: c_int,
    pub(crate) carve_out: c_int,
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
