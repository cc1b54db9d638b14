//! Operations that a CUDA card supports, and those that are worth offloading.
//!
//! DECISION: operation by operation as in ggml; an operation with a missing source is refused. A refused
//! operation runs on the CPU and splits the graph, which moves memory from the card to the host. The refusals
//! therefore matter more than the many accepted operations.
//!
//! Source: `ggml-cuda.cu:ggml_backend_cuda_device_supports_op, ggml_backend_cuda_device_offload_op,
//! get_op_batch_size`, `lightning-indexer.cu:ggml_cuda_lightning_indexer_supported @ b8799, b10605, ggml
//! 0.26.0`. Assumes builds with CUB, as all since CUDA 11.7.

use plimsoll_pool::demand::Rules;

use crate::attention::Attention;
use crate::generation::Generation;
use crate::kinds::{Glu, Op, Type, Unary};
use crate::tensor::View;
use always::is_always_taken;

mod always;
mod moves;
#[cfg(test)]
mod tests;

/// True if a card of this capability takes the operation.
pub(crate) fn supports(op: View<'_>, rules: Rules) -> bool {
    match op.op() {
        Op::FlashAttnExt => Attention::of(op).is_some_and(|attention| attention.kernel(rules).is_some()),
        kind => Asked {
            op,
            generation: rules.engine,
        }
        .supports(kind)
        .unwrap_or(false),
    }
}

/// Batch size of an operation, which decides whether a weight in host memory is copied to the card for it.
pub(crate) fn batch(op: View<'_>) -> u64 {
    match op.op() {
        // Never offloaded: a few rows of a weight cost less than a copy of the whole weight.
        Op::GetRows => 0,
        Op::MulMat => op.ne(1),
        Op::MulMatId | Op::Rope | Op::RopeBack => op.ne(2),
        _ => op.rows(),
    }
}

struct Asked<'a> {
    op: View<'a>,
    generation: Generation,
}

impl<'a> Asked<'a> {
    fn first(&self) -> Option<View<'a>> {
        self.op.source(0)
    }

    fn second(&self) -> Option<View<'a>> {
        self.op.source(1)
    }

    fn is_old(&self) -> bool {
        self.generation.copies()
    }

    fn is_third(&self) -> bool {
        self.generation == Generation::Third
    }

    /// None stands for a source that is missing.
    fn supports(&self, kind: Op) -> Option<bool> {
        let op = self.op;
        Some(match kind {
            Op::Unary => self.unary()?,
            Op::Glu => self.glu()?,
            Op::MulMat | Op::MulMatId => self.product(kind)?,
            Op::OutProd => self.all_f32(2)?,
            Op::GetRows => self.get_rows()?,
            Op::GetRowsBack => {
                self.first()?.kind() == Type::F32 && op.kind() == Type::F32 && op.ne(2) == 1 && op.ne(3) == 1
            }
            Op::SetRows => self.set_rows()?,
            Op::Set => {
                let kind = op.kind();
                matches!(kind, Type::F32 | Type::I32)
                    && self.first()?.kind() == kind
                    && self.second()?.kind() == kind
            }
            Op::Cpy => self.copy()?,
            Op::Dup => self.is_third() || !matches!(self.first()?.kind(), Type::I32 | Type::I16),
            Op::Repeat => self.repeat()?,
            Op::RepeatBack => {
                let first = self.first()?;
                // The kernel maps both dimensions to one grid dimension, which CUDA limits to 65 535.
                op.kind() == Type::F32 && first.ne(2).saturating_mul(first.ne(3)) <= 1 << 15
            }
            Op::Concat => self.concatenate()?,
            Op::ConvTranspose1d => self.first()?.kind() == Type::F32 && self.second()?.kind() == Type::F32,
            Op::Col2im1d => self.column()?,
            Op::SiluBack => self.first()?.is_contiguous() && self.first()?.kind() == Type::F32,
            Op::Norm | Op::RmsNorm | Op::L2Norm => self.is_old() || self.first()?.has_contiguous_rows(),
            Op::RmsNormBack => self.first()?.is_contiguous(),
            Op::Add | Op::Sub | Op::Mul | Op::Div => self.arithmetic()?,
            Op::Scale if self.is_third() => {
                let kind = self.first()?.kind();
                matches!(kind, Type::F32 | Type::Bf16) && op.kind() == kind
            }
            Op::SsmScan => self.scan()?,
            // A block covers 128 channels, and the kernel has no check for a partial block.
            Op::SsmConv => self.first()?.ne(1).is_multiple_of(128),
            // The parameter is ALiBi's bias, which the backward kernel does not implement.
            Op::SoftMaxBack => op.float_parameter(1) == 0.0,
            Op::Roll => {
                let first = self.first()?;
                first.kind() == Type::F32 && (self.is_old() || first.is_contiguous())
            }
            Op::Rope | Op::RopeBack => {
                let first = self.first()?;
                first.nb(0) == first.layout().size && first.is_contiguous_from(2, 4)
            }
            Op::Im2col | Op::Im2col3d | Op::Conv2d | Op::Acc => self.both_contiguous(kind)?,
            Op::Conv3d => {
                self.is_third()
                    && self.both_contiguous(kind)?
                    && op.is_contiguous()
                    && self.convolution_types()?
            }
            Op::Conv2dDw => match self.generation {
                Generation::Ik | Generation::Copying => true,
                Generation::Reserving => self.first()?.kind() == Type::F32,
                Generation::Third => self.convolution_types()?,
            },
            Op::Pool1d => !self.is_old(),
            Op::Sum => self.first()?.has_contiguous_rows(),
            Op::SumRows | Op::Mean if self.is_third() => {
                let first = self.first()?;
                first.kind() == Type::F32 && op.kind() == Type::F32 && first.has_contiguous_rows()
            }
            Op::SumRows | Op::Mean | Op::GroupNorm => self.first()?.is_contiguous(),
            Op::Dsv4HcComb => !self.is_old() && self.all_f32(3)?,
            Op::Dsv4HcPre => !self.is_old() && self.all_f32(2)?,
            Op::Dsv4HcPost => !self.is_old() && self.all_f32(3)? && self.optional_f32(3),
            Op::LightningIndexer => !self.is_old() && self.indexer()?,
            other => is_always_taken(other),
        })
    }

    fn unary(&self) -> Option<bool> {
        let unary = Unary::of(self.op.sub_operation());
        let first = self.first()?;
        let narrow = self.is_third() && first.kind() == Type::Bf16 && unary == Unary::Xielu;
        Some(unary != Unary::Other && !narrow && first.is_contiguous())
    }

    fn glu(&self) -> Option<bool> {
        let glu = Glu::of(self.op.sub_operation());
        let first = self.first()?;
        let known = match glu {
            Glu::Other => false,
            Glu::SwigluClamp => self.is_third(),
            _ => true,
        };
        let clamped = matches!(glu, Glu::SwigluOai | Glu::SwigluClamp);
        let narrow = self.is_third() && clamped && first.kind() == Type::Bf16;
        Some(known && !narrow && first.is_contiguous_from(1, 4))
    }

    fn product(&self, kind: Op) -> Option<bool> {
        const PRECISE: i32 = 10;
        let (a, b) = (self.first()?, self.second()?);
        let rows = |matrix: View<'_>| matrix.nb(0) == matrix.layout().size;
        let fits = rows(a) && rows(b);
        if !(self.is_old() || fits) {
            return Some(false);
        }
        // f16 activations have a kernel only beside f16 weights.
        if b.kind() == Type::F16 && a.kind() != Type::F16 {
            return Some(false);
        }
        if self.is_third() && kind == Op::MulMatId && self.op.parameter(3) == PRECISE {
            return Some(false);
        }
        Some(match a.kind() {
            Type::Q2_0 => !self.is_old(),
            Type::Q1_0 => !self.is_old(),
            Type::Other | Type::F64 | Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Q8_1 => false,
            _ => true,
        })
    }

    fn column(&self) -> Option<bool> {
        let first = self.first()?;
        let float = matches!(first.kind(), Type::F32 | Type::F16 | Type::Bf16);
        Some(
            !self.is_old()
                && float
                && self.op.kind() == first.kind()
                && first.is_contiguous()
                && self.op.is_contiguous(),
        )
    }

    fn arithmetic(&self) -> Option<bool> {
        if self.is_old() {
            return Some(true);
        }
        let (a, b, result) = (self.first()?.kind(), self.second()?.kind(), self.op.kind());
        if self.is_third() && [a, b, result].contains(&Type::Bf16) {
            return Some(a == Type::Bf16 && result == Type::Bf16 && matches!(b, Type::Bf16 | Type::F32));
        }
        Some(
            [a, b, result]
                .into_iter()
                .all(|kind| matches!(kind, Type::F32 | Type::F16)),
        )
    }

    fn scan(&self) -> Option<bool> {
        let (state, decay) = (self.first()?, self.op.source(3)?);
        // One decay value per head is Mamba 2; a vector of them is Mamba 1, which has a kernel of its own.
        if decay.ne(0) == 1 {
            let size = state.ne(0);
            let known = matches!(size, 128 | 256) || self.is_third() && size == 96;
            return Some(known && state.ne(1).is_multiple_of(16));
        }
        if !self.is_old() && self.op.parameter(0) > 1 {
            return Some(false);
        }
        let one_group = self.op.source(4)?.ne(1) == 1;
        Some(state.ne(0) == 16 && state.ne(1) == 1 && state.ne(2).is_multiple_of(128) && one_group)
    }

    fn both_contiguous(&self, kind: Op) -> Option<bool> {
        if self.is_old() && matches!(kind, Op::Im2col | Op::Im2col3d | Op::Conv2d) {
            return Some(true);
        }
        Some(self.first()?.is_contiguous() && self.second()?.is_contiguous())
    }

    fn convolution_types(&self) -> Option<bool> {
        let kernel = matches!(self.first()?.kind(), Type::F16 | Type::F32);
        Some(kernel && self.second()?.kind() == Type::F32 && self.op.kind() == Type::F32)
    }

    fn all_f32(&self, sources: usize) -> Option<bool> {
        let f32 = |tensor: View<'_>| tensor.kind() == Type::F32;
        let mut all = f32(self.op);
        for index in 0..sources {
            all &= f32(self.op.source(index)?);
        }
        Some(all)
    }

    /// True if the source is f32. In the third generation it may also be missing.
    fn optional_f32(&self, index: usize) -> bool {
        match self.op.source(index) {
            Some(source) => source.kind() == Type::F32,
            None => self.is_third(),
        }
    }

    fn indexer(&self) -> Option<bool> {
        let (q, k) = (self.first()?, self.second()?);
        let aligned = |t: View<'_>| t.is_quantised() || (1..4).all(|d| t.nb(d).is_multiple_of(16));
        let known = matches!(
            k.kind(),
            Type::F32
                | Type::Bf16
                | Type::F16
                | Type::Q8_0
                | Type::Q5_1
                | Type::Q5_0
                | Type::Q4_1
                | Type::Q4_0
        );
        Some(q.ne(0) == 128 && matches!(q.ne(1), 64 | 32) && aligned(q) && aligned(k) && known)
    }
}
