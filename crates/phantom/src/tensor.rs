//! Safe view of a tensor that belongs to the engine.
//!
//! DECISION: a view that computes in `u64` and saturates, so that no shape can make it panic or wrap; what is
//! negative counts as nothing. Reading through the engine's pointers is unsafe and happens here only. Source:
//! `ggml.c:ggml_nbytes, ggml_nelements, ggml_nrows, ggml_is_contiguous_m_n, ggml_row_size @ b10605`.

use core::ffi::c_int;

use crate::abi::{DIMENSIONS, Tensor};
use crate::kinds::{Layout, Op, Type};

#[derive(Clone, Copy)]
pub(crate) struct View<'a>(&'a Tensor);

impl<'a> View<'a> {
    /// View of the tensor at this address; `None` for a null pointer.
    ///
    /// # Safety
    /// Null, or a live tensor of the engine's that is not changed while the view is used, as are its sources.
    pub(crate) unsafe fn of(tensor: *const Tensor) -> Option<Self> {
        // SAFETY: the caller's promise; probe.rs has found our declaration to fit.
        unsafe { tensor.as_ref() }.map(Self)
    }

    pub(crate) const fn raw(self) -> &'a Tensor {
        self.0
    }

    pub(crate) fn op(self) -> Op {
        Op::of(self.0.op)
    }

    pub(crate) fn kind(self) -> Type {
        Type::of(self.0.kind)
    }

    pub(crate) fn layout(self) -> Layout {
        Layout::of(self.0.kind)
    }

    pub(crate) fn is_quantised(self) -> bool {
        self.layout().quantised
    }

    pub(crate) fn source(self, index: usize) -> Option<Self> {
        let source = *self.0.src.get(index)?;
        // SAFETY: a source of a live tensor is null or a live tensor.
        unsafe { Self::of(source) }
    }

    pub(crate) fn viewed(self) -> Option<Self> {
        // SAFETY: as above.
        unsafe { Self::of(self.0.view_src) }
    }

    pub(crate) fn view_offset(self) -> usize {
        self.0.view_offs
    }

    /// True if both views are of the same tensor.
    pub(crate) fn is(self, other: Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }

    /// Length of a dimension.
    pub(crate) fn ne(self, dimension: usize) -> u64 {
        self.0
            .ne
            .get(dimension)
            .map_or(0, |&ne| u64::try_from(ne).unwrap_or(0))
    }

    /// Stride of a dimension in bytes.
    pub(crate) fn nb(self, dimension: usize) -> u64 {
        self.0
            .nb
            .get(dimension)
            .map_or(0, |&nb| u64::try_from(nb).unwrap_or(0))
    }

    pub(crate) fn parameter(self, index: usize) -> i32 {
        self.0.op_params.get(index).copied().unwrap_or(0)
    }

    pub(crate) fn float_parameter(self, index: usize) -> f32 {
        f32::from_bits(self.parameter(index).cast_unsigned())
    }

    pub(crate) fn sub_operation(self) -> c_int {
        self.parameter(0)
    }

    pub(crate) fn elements(self) -> u64 {
        (0..DIMENSIONS).map(|d| self.ne(d)).fold(1, u64::saturating_mul)
    }

    /// Product of all lengths, with an empty dimension counted as 1.
    pub(crate) fn extent(self) -> u64 {
        (0..DIMENSIONS)
            .map(|d| self.ne(d).max(1))
            .fold(1, u64::saturating_mul)
    }

    pub(crate) fn rows(self) -> u64 {
        (1..DIMENSIONS).map(|d| self.ne(d)).fold(1, u64::saturating_mul)
    }

    pub(crate) fn bytes(self) -> u64 {
        if (0..DIMENSIONS).any(|d| self.ne(d) == 0) {
            return 0;
        }
        let layout = self.layout();
        let stretch = |d: usize| (self.ne(d) - 1).saturating_mul(self.nb(d));
        let (first, from) = if layout.block == 1 {
            (layout.size, 0)
        } else {
            (self.ne(0).saturating_mul(self.nb(0)) / layout.block, 1)
        };
        (from..DIMENSIONS).map(stretch).fold(first, u64::saturating_add)
    }

    /// True if rows follow each other without gaps.
    pub(crate) fn is_contiguous(self) -> bool {
        self.is_contiguous_from(0, DIMENSIONS)
    }

    /// True if the first `until` dimensions are contiguous, apart from gaps in those up to `from`.
    pub(crate) fn is_contiguous_from(self, from: usize, until: usize) -> bool {
        let layout = self.layout();
        if self.ne(0) != layout.block && self.nb(0) != layout.size {
            return false;
        }
        let mut next = layout.size.saturating_mul(self.ne(0) / layout.block);
        for dimension in 1..until {
            if dimension > from {
                if self.ne(dimension) != 1 && self.nb(dimension) != next {
                    return false;
                }
                next = next.saturating_mul(self.ne(dimension));
            } else {
                next = self.ne(dimension).saturating_mul(self.nb(dimension));
            }
        }
        true
    }

    pub(crate) fn has_contiguous_rows(self) -> bool {
        let layout = self.layout();
        self.ne(0) == layout.block || self.nb(0) == layout.size
    }
}

/// Bytes of a row of this many values.
pub(crate) fn row_size(layout: Layout, values: u64) -> u64 {
    (values / layout.block).saturating_mul(layout.size)
}
