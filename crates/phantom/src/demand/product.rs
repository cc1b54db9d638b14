//! Pool demand of matrix multiplications: the choice of ggml's function.
//!
//! The requests of quantised products come from `plimsoll_pool::demand`, those of cuBLAS from `cublas`.
//!
//! Source: `ggml-cuda.cu:ggml_cuda_mul_mat, ggml_cuda_mul_mat_id @ b8799, b10605`;
//! `mmvq.cu:ggml_cuda_should_use_mmvq, get_mmvq_mmid_max_batch`; `mmf.cu:ggml_cuda_should_use_mmf`,
//! `mmvf.cu:ggml_cuda_should_use_mmvf`.

use plimsoll_pool::demand::product::{Activations, FEW, Tiled, has_tiles, lists, vectors};
use plimsoll_pool::demand::{ADA, AMPERE, BLACKWELL, Rules, TURING, VOLTA};

use crate::kinds::Type;
use crate::memory;
use crate::tensor::View;

use super::Requests;

mod cublas;

/// `GGML_BACKEND_BUFFER_USAGE_COMPUTE`.
const COMPUTE: i32 = 2;

/// One product: a matrix, the columns it is multiplied with, and the result; for experts also the routing
/// list.
struct Product<'a> {
    rules: Rules,
    matrix: View<'a>,
    columns: View<'a>,
    result: View<'a>,
    experts: Option<View<'a>>,
}

pub(super) fn plain(rules: Rules, op: View<'_>, requests: &mut Requests) -> Option<()> {
    let product = Product {
        rules,
        matrix: op.source(0)?,
        columns: op.source(1)?,
        result: op,
        experts: None,
    };
    product.plain(requests);
    Some(())
}

pub(super) fn of_experts(rules: Rules, op: View<'_>, requests: &mut Requests) -> Option<()> {
    let product = Product {
        rules,
        matrix: op.source(0)?,
        columns: op.source(1)?,
        result: op,
        experts: Some(op.source(2)?),
    };
    product.of_experts(requests);
    Some(())
}

impl Product<'_> {
    fn plain(&self, requests: &mut Requests) {
        let width = self.columns.ne(1);
        let floats = self.columns.kind() == Type::F32 && self.result.kind() == Type::F32;
        // ggml runs this product as a fast Walsh-Hadamard transform, which asks the pool for nothing.
        if self.is_hadamard() {
            return;
        }
        // ggml clears the padding of a quantised matrix before its own kernels read it. In a view of the
        // compute buffer that would overwrite another tensor, so cuBLAS does the product
        // (`bad_padding_clear`).
        if !floats || self.is_padded_view() {
            return cublas::convert(self, requests);
        }
        if !self.matrix.is_quantised() {
            if self.is_for_float_vectors(width)
                || self.is_for_float_tiles(width)
                || self.is_transposed_vector()
            {
                return;
            }
            return cublas::convert(self, requests);
        }
        // Both quantised kernels first quantise the activations to 8 bits; that copy is what they ask the
        // pool for.
        if width <= self.few() {
            requests.group(&[vectors(self.columns.ne(0), self.columns.rows())]);
        } else if self.has_tiles(width) {
            let channels = self.columns.ne(2).saturating_mul(self.columns.ne(3));
            let tiled = self.tiled(self.columns.rows(), self.result.ne(1), channels);
            requests.group(&tiled.group());
        } else {
            cublas::convert(self, requests);
        }
    }

    /// `ggml_cuda_op_fwht`, for the sizes that it has.
    fn is_hadamard(&self) -> bool {
        const HINT: i32 = 1;
        !self.rules.engine.copies()
            && self.result.parameter(1) == HINT
            && self.columns.is_contiguous()
            && self.result.is_contiguous()
            && matches!(self.columns.ne(0), 64 | 128 | 256 | 512)
    }

    /// A view whose padding cannot be cleared.
    fn is_padded_view(&self) -> bool {
        // SAFETY: a buffer that a live tensor names is live.
        let usage = unsafe { self.matrix.raw().buffer.as_ref() }.map(|buffer| buffer.usage);
        let size = memory::size(self.matrix, self.rules);
        usage == Some(COMPUTE) && self.matrix.viewed().is_some() && size != self.matrix.bytes()
    }

    /// `ggml_cuda_should_use_mmvf` for floats on NVIDIA.
    fn is_for_float_vectors(&self, width: u64) -> bool {
        let matrix = self.matrix;
        if !matrix.ne(0).is_multiple_of(2) || !self.is_aligned() {
            return false;
        }
        let capability = self.rules.capability;
        let small = matrix.ne(1) <= 512 || matrix.ne(2).saturating_mul(matrix.ne(3)) == 1;
        // The limits below are ggml's benchmark results for each architecture; no formula gives them.
        match matrix.kind() {
            Type::F32 => {
                width
                    <= if (TURING..AMPERE).contains(&capability) {
                        4
                    } else {
                        3
                    }
            }
            Type::F16 if capability >= AMPERE => small && width == 1,
            Type::F16 if capability >= VOLTA => small && width <= 3,
            Type::Bf16 if capability >= AMPERE => small && width == 1,
            Type::F16 | Type::Bf16 => width <= 8,
            _ => false,
        }
    }

    fn is_aligned(&self) -> bool {
        let size = self.matrix.layout().size;
        size > 0 && self.matrix.nb(0) == size && (1..4).all(|d| self.matrix.nb(d).is_multiple_of(2 * size))
    }

    /// `ggml_cuda_should_use_mmf` on NVIDIA.
    fn is_for_float_tiles(&self, width: u64) -> bool {
        const WARP: u64 = 32;
        const ROWS: u64 = 32;
        let matrix = self.matrix;
        let size = matrix.layout().size.max(1);
        let fits = size <= 4
            && matrix.ne(0).is_multiple_of(WARP * (4 / size))
            && self.is_aligned()
            && matrix.ne(1).is_multiple_of(ROWS);
        let most = match self.experts {
            None => 16,
            Some(_) if matrix.ne(1) <= 1024 => 512,
            Some(_) => 128,
        };
        // Tensor cores multiply f16 since Volta, and bf16 and tf32 since Ampere.
        let units = match matrix.kind() {
            Type::F32 | Type::Bf16 => self.rules.capability >= AMPERE,
            Type::F16 => self.rules.capability >= VOLTA,
            _ => false,
        };
        fits && units && width <= most
    }

    /// A single row against many columns, done the other way round; since b10605.
    fn is_transposed_vector(&self) -> bool {
        let (matrix, columns) = (self.matrix, self.columns);
        !self.rules.engine.copies()
            && matrix.ne(1) == 1
            && columns.ne(1) > FEW
            && self.result.ne(2) == 1
            && self.result.ne(3) == 1
            && matrix.kind() == Type::F32
            && matrix.is_contiguous()
            && columns.is_contiguous()
            && self.result.is_contiguous()
            && columns.ne(0).is_multiple_of(2)
    }

    /// Columns up to which the kernel for vectors is taken: `ggml_cuda_should_use_mmvq`.
    fn few(&self) -> u64 {
        let kind = self.matrix.kind();
        match self.rules.capability {
            _ if self.rules.engine.copies() => FEW,
            ADA => match kind {
                Type::Q2K => 4,
                Type::Q3K => 6,
                Type::Q4K | Type::Q5K => 7,
                _ => FEW,
            },
            BLACKWELL => match kind {
                Type::Q2K | Type::Q3K | Type::Q4K | Type::Q5K => 5,
                Type::Q6K => 7,
                _ => FEW,
            },
            _ => FEW,
        }
    }

    /// Tokens up to which it is taken for experts: `get_mmvq_mmid_max_batch`.
    fn few_of_experts(&self) -> u64 {
        let (kind, capability) = (self.matrix.kind(), self.rules.capability);
        if capability == VOLTA || capability >= ADA {
            return FEW;
        }
        if capability >= TURING {
            return match kind {
                Type::Q3K => 5,
                Type::Iq3S => 6,
                Type::Iq2S | Type::Iq3Xxs | Type::Mxfp4 | Type::Q2K => 7,
                _ => FEW,
            };
        }
        match kind {
            Type::Iq1S | Type::Iq1M | Type::Iq4Nl | Type::Q4_0 | Type::Q4_1 | Type::Q5_0 | Type::Q5_1 => 6,
            Type::Iq2Xs | Type::Iq2Xxs | Type::Iq4Xs | Type::Q4K | Type::Q5K => 5,
            Type::Nvfp4 if self.rules.engine.copies() => FEW,
            Type::Iq2S | Type::Iq3S | Type::Iq3Xxs | Type::Mxfp4 | Type::Nvfp4 | Type::Q2K | Type::Q3K => 4,
            Type::Q6K | Type::Q8_0 => 4,
            _ => FEW,
        }
    }

    /// True if there is a kernel for tiles: `ggml_cuda_should_use_mmq`.
    fn has_tiles(&self, width: u64) -> bool {
        let known = match self.matrix.kind() {
            Type::Q1_0 | Type::Q2_0 => !self.rules.engine.copies(),
            Type::Iq1M | Type::Q8K | Type::Q8_1 | Type::Other => false,
            _ => self.matrix.is_quantised(),
        };
        known && has_tiles(self.rules, width)
    }

    /// Format of the quantised activations for tiles of this matrix.
    fn activations(&self) -> Activations {
        // Blackwell's tensor cores multiply 4-bit floats, so the activations are quantised to 4 bits as well.
        let native = self.rules.capability >= BLACKWELL && !self.rules.engine.copies();
        match self.matrix.kind() {
            Type::Mxfp4 if native => Activations::Four,
            Type::Nvfp4 if native => Activations::FourScaled,
            _ => Activations::Eight,
        }
    }

    fn tiled(&self, columns: u64, tokens: u64, channels: u64) -> Tiled {
        Tiled {
            rules: self.rules,
            kind: self.activations(),
            width: self.columns.ne(0),
            rows: self.matrix.ne(1),
            run: self.columns.ne(1),
            columns,
            tokens,
            channels,
        }
    }

    /// Each token goes to some of the matrices.
    fn of_experts(&self, requests: &mut Requests) {
        let (tokens, used) = (self.columns.ne(2), self.experts.map_or(0, |list| list.ne(0)));
        let spread = tokens.saturating_mul(used).min(super::MOST_VALUES);
        let quantised = self.matrix.is_quantised();
        if quantised && self.result.ne(2) <= FEW && self.result.ne(2) <= self.few_of_experts() {
            requests.group(&[vectors(self.columns.ne(0), self.columns.rows())]);
        } else if quantised && self.has_tiles(tokens) {
            let experts = self.matrix.ne(2);
            let channels = experts.saturating_mul(self.columns.ne(3));
            let tiled = self.tiled(spread, tokens, channels);
            requests.group(&tiled.group_of_experts(experts));
        } else if !quantised && self.is_for_float_tiles(tokens) {
            // Up to 16 tokens the kernel finds its own rows; beyond, it needs sorted lists
            // (`mmf.cu:ggml_cuda_mul_mat_f`).
            if self.result.ne(2) > 16 {
                requests.group(&lists(spread, self.matrix.ne(2)));
            }
        } else {
            self.sorted(requests, spread);
        }
    }

    /// One expert after another, each by its own product. How many tokens each gets depends on the values; it
    /// is taken as even.
    fn sorted(&self, requests: &mut Requests, spread: u64) {
        let narrow = matches!(self.matrix.kind(), Type::F16 | Type::Bf16);
        let size = if narrow { 2 } else { 4 };
        let sizes = [
            8 * spread,
            spread.saturating_mul(self.columns.ne(0)).saturating_mul(size),
            spread.saturating_mul(self.result.ne(0)).saturating_mul(4),
        ];
        let taken = sizes.into_iter().map(|bytes| requests.take(bytes)).sum();
        let share = spread.div_ceil(self.matrix.ne(2).max(1));
        if self.matrix.is_quantised() || !narrow {
            requests.estimate(&[self
                .matrix
                .ne(0)
                .saturating_mul(self.matrix.ne(1))
                .saturating_mul(2)]);
        }
        requests.estimate(&[share.saturating_mul(self.result.ne(0)).saturating_mul(2)]);
        requests.give(taken);
    }
}
