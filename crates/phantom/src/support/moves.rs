//! Support rules of operations that move values: row lookups, copies, repetition, concatenation.

use crate::kinds::Type;
use crate::tensor::View;

use super::Asked;

impl Asked<'_> {
    pub(super) fn get_rows(&self) -> Option<bool> {
        let first = self.first()?;
        Some(match first.kind() {
            Type::F16 | Type::F32 | Type::Bf16 | Type::I32 => true,
            Type::Q4_0 | Type::Q4_1 | Type::Q5_0 | Type::Q5_1 | Type::Q8_0 => true,
            Type::Iq4Nl | Type::Mxfp4 => !self.is_old() && first.ne(0).is_multiple_of(256),
            Type::Q1_0 | Type::Q2_0 | Type::Q2K | Type::Q3K | Type::Q4K | Type::Q5K | Type::Q6K => {
                !self.is_old()
            }
            Type::Iq2Xxs | Type::Iq2Xs | Type::Iq2S | Type::Iq3Xxs | Type::Iq3S => !self.is_old(),
            Type::Iq1S | Type::Iq1M | Type::Iq4Xs => !self.is_old(),
            _ => false,
        })
    }

    pub(super) fn set_rows(&self) -> Option<bool> {
        let (source, indices) = (self.first()?.kind(), self.second()?.kind());
        let kind = self.op.kind();
        let storable = matches!(
            kind,
            Type::F32
                | Type::F16
                | Type::Bf16
                | Type::Q4_0
                | Type::Q4_1
                | Type::Q5_0
                | Type::Q5_1
                | Type::Q8_0
                | Type::Iq4Nl
        );
        // Since b10605, f16 rows are stored as they are, without a detour over f32.
        let halves = !self.is_old() && kind == Type::F16 && source == Type::F16;
        let stored = storable && source == Type::F32 || halves;
        Some(stored && matches!(indices, Type::I64 | Type::I32))
    }

    pub(super) fn copy(&self) -> Option<bool> {
        let (first, second) = (self.first()?, self.second()?);
        let (from, to) = (first.kind(), second.kind());
        let float = |kind| matches!(kind, Type::F32 | Type::F16 | Type::Bf16);
        let packed = |kind| {
            matches!(
                kind,
                Type::Q8_0 | Type::Q4_0 | Type::Q4_1 | Type::Q5_0 | Type::Q5_1
            )
        };
        Some(match (from, to) {
            (from, to) if float(from) && float(to) => true,
            (Type::F32, to) if packed(to) || to == Type::Iq4Nl || to == Type::I32 => true,
            (from, Type::F32) if packed(from) || from == Type::I32 => true,
            (Type::I32, Type::I32) => true,
            // Contiguous tensors of one type are copied by `cudaMemcpyAsync`, whatever the type.
            _ => from == to && from != Type::Other && first.is_contiguous() && second.is_contiguous(),
        })
    }

    pub(super) fn repeat(&self) -> Option<bool> {
        let kind = self.first()?.kind();
        Some(if self.is_old() {
            !matches!(kind, Type::I32 | Type::I16)
        } else {
            matches!(kind, Type::F32 | Type::F16)
        })
    }

    pub(super) fn concatenate(&self) -> Option<bool> {
        let (first, second) = (self.first()?, self.second()?);
        if self.is_old() {
            return Some(!matches!(first.kind(), Type::I32 | Type::I16));
        }
        if first.kind() != second.kind() || first.kind() != self.op.kind() {
            return Some(false);
        }
        let layout = first.layout();
        // ggml copies whole elements, and has a kernel for each of these sizes.
        if !layout.quantised {
            return Some(layout.block == 1 && matches!(layout.size, 1 | 2 | 4 | 8));
        }
        let until = if self.op.parameter(0) == 3 { 4 } else { 3 };
        let fits = |source: View<'_>| {
            source.is_contiguous_from(0, until) && source.ne(0).is_multiple_of(layout.block)
        };
        Some(fits(first) && fits(second))
    }
}
