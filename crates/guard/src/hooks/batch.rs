//! Hooks of batched copies, which are split if the driver refuses to copy across a spilled range.
//!
//! A spilled range is device memory followed by host memory.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::slice;

use crate::driver::{CuStream, DevicePointer};
use crate::hooks::hooks;
use crate::policy::copy_split::{CopyBox, CopySide, split};
use crate::spill::copy_border;

/// Arrays of a batch, as the driver takes them.
#[derive(Clone, Copy, Debug)]
struct CopyBatch {
    to: *const DevicePointer,
    from: *const DevicePointer,
    sizes: *const usize,
    count: usize,
    /// The first copy of each set of attributes.
    first: *const usize,
    kinds: usize,
}

/// Pieces of a batch after the split.
#[derive(Debug, Default)]
struct BatchPieces {
    to: Vec<DevicePointer>,
    from: Vec<DevicePointer>,
    sizes: Vec<usize>,
    first: Vec<usize>,
    /// For each piece the number of the program's copy.
    of: Vec<usize>,
}

impl BatchPieces {
    fn add(&mut self, copy: usize, to: DevicePointer, from: DevicePointer, size: usize) {
        let sides = [to, from].map(|start| CopySide::line(start, copy_border::of(start)));
        let whole = CopyBox::line(u64::try_from(size).unwrap_or(u64::MAX));
        let _ = split::<()>(whole, &sides, &mut |piece| {
            self.to.push(to + piece.at[0]);
            self.from.push(from + piece.at[0]);
            self.sizes.push(usize::try_from(piece.size[0]).unwrap_or(size));
            self.of.push(copy);
            Ok(())
        });
    }
}

impl CopyBatch {
    /// Its pieces, if any copy has to be split.
    ///
    /// # Safety
    /// The arrays are as long as they say, or null.
    unsafe fn pieces(&self) -> Option<BatchPieces> {
        let null = self.to.is_null() || self.from.is_null() || self.sizes.is_null() || self.first.is_null();
        if !copy_border::matter() || null {
            return None;
        }
        // SAFETY: not null, and as long as the caller promises.
        let (to, from, sizes, first) = unsafe {
            (
                slice::from_raw_parts(self.to, self.count),
                slice::from_raw_parts(self.from, self.count),
                slice::from_raw_parts(self.sizes, self.count),
                slice::from_raw_parts(self.first, self.kinds),
            )
        };
        let mut pieces = BatchPieces::default();
        for (copy, ((to, from), size)) in to.iter().zip(from).zip(sizes).enumerate() {
            pieces.add(copy, *to, *from, *size);
        }
        // A set that begins behind the last copy is passed on, for the driver to refuse.
        let begin = |copy: &usize| pieces.of.iter().position(|of| of == copy).unwrap_or(pieces.of.len());
        pieces.first = first.iter().map(begin).collect();
        (pieces.of.len() > self.count).then_some(pieces)
    }
}

hooks! {
    in CUDA;

    fn cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz = "cuMemcpyBatchAsync" since 12080 (
        to: *const DevicePointer, from: *const DevicePointer, sizes: *const usize, count: usize,
        attributes: *const c_void, first: *const usize, kinds: usize, failed: *mut usize, stream: CuStream
    ) calls copy {
        let batch = CopyBatch { to, from, sizes, count, first, kinds };
        let Some(pieces) = batch.pieces() else {
            return copy(to, from, sizes, count, attributes, first, kinds, failed, stream);
        };
        let mut piece = usize::MAX;
        let result = copy(
            pieces.to.as_ptr(), pieces.from.as_ptr(), pieces.sizes.as_ptr(), pieces.of.len(), attributes,
            pieces.first.as_ptr(), kinds, &raw mut piece, stream,
        );
        if let Some(failed) = failed.as_mut() {
            *failed = pieces.of.get(piece).copied().unwrap_or(piece);
        }
        result
    }

    fn cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz = "cuMemcpyBatchAsync" since 13000 (
        to: *const DevicePointer, from: *const DevicePointer, sizes: *const usize, count: usize,
        attributes: *const c_void, first: *const usize, kinds: usize, stream: CuStream
    ) calls copy {
        let batch = CopyBatch { to, from, sizes, count, first, kinds };
        let Some(pieces) = batch.pieces() else {
            return copy(to, from, sizes, count, attributes, first, kinds, stream);
        };
        copy(
            pieces.to.as_ptr(), pieces.from.as_ptr(), pieces.sizes.as_ptr(), pieces.of.len(), attributes,
            pieces.first.as_ptr(), kinds, stream,
        )
    }
}
