//! Pool demand of cuBLAS products: copies of the operands in a type that cuBLAS multiplies.
//!
//! Source: `ggml-cuda.cu:ggml_cuda_op_mul_mat, ggml_cuda_op_mul_mat_cublas,
//! ggml_cuda_mul_mat_batched_cublas_impl @ b8799`, `ggml_cuda_mul_mat_cublas, ggml_cuda_mul_mat_cublas_impl @
//! b10605`.

use plimsoll_pool::demand::product::has_fast_halves;
use plimsoll_pool::demand::{AMPERE, VOLTA};

use crate::kinds::Type;
use crate::memory;
use crate::tensor::View;

use super::super::Requests;
use super::Product;

/// A pointer in the lists that batched cuBLAS takes.
const POINTER: u64 = 8;

/// Adds what a product by cuBLAS asks for.
pub(super) fn convert(product: &Product<'_>, requests: &mut Requests) {
    requests.cublas += 1;
    product.cublas(requests);
}

impl Product<'_> {
    fn cublas(&self, requests: &mut Requests) {
        if !self.rules.engine.copies() {
            return self.cublas_for_all(requests);
        }
        // The batched call takes row-major operands only; a transposed view goes one matrix at a time.
        let batches = self.columns.ne(2).saturating_mul(self.columns.ne(3));
        let transposed = self.matrix.nb(0) > self.matrix.nb(1) || self.columns.nb(0) > self.columns.nb(1);
        // Bf16 needs Ampere's tensor cores; older cards have no batched call for it.
        let bf16 = self.rules.capability >= AMPERE;
        let batched = match self.matrix.kind() {
            Type::F16 | Type::F32 => true,
            Type::Bf16 => bf16,
            _ => false,
        };
        if batched && !transposed && batches > 1 {
            self.cublas_batched(requests, self.is_precise());
        } else {
            self.cublas_one_by_one(requests, batches);
        }
    }

    fn is_precise(&self) -> bool {
        const DEFAULT: i32 = 0;
        self.result.parameter(0) != DEFAULT
    }

    /// b10605: everything is converted to one type.
    fn cublas_for_all(&self, requests: &mut Requests) {
        let own = self.matrix.kind();
        let half = if has_fast_halves(self.rules.capability) {
            Type::F16
        } else {
            Type::F32
        };
        let kind = match own {
            _ if self.is_precise() => Type::F32,
            Type::F32 | Type::Bf16 => own,
            Type::F16 => half,
            _ if self.matrix.is_quantised() => half,
            _ => own,
        };
        let size = if kind == Type::F32 { 4 } else { 2 };
        let copy = |operand: View<'_>| {
            if operand.kind() == kind {
                0
            } else {
                operand.elements().saturating_mul(size)
            }
        };
        // Volta computes in f32 and writes f32 results, so no f16 copy of the result is needed.
        let halves = kind == Type::F16 && self.rules.capability != VOLTA;
        let result = if halves {
            self.result.elements().saturating_mul(2)
        } else {
            0
        };
        let [from, to] = self.pointers(
            own != kind && !self.is_dense(self.matrix),
            self.columns.kind() != kind,
        );
        requests.group(&[copy(self.matrix), copy(self.columns), result, from, to]);
    }

    fn is_dense(&self, operand: View<'_>) -> bool {
        let layout = operand.layout();
        operand.bytes() == operand.elements().saturating_mul(layout.size) / layout.block
    }

    /// Lists of pointers, where the matrices do not follow each other evenly. A copy does.
    fn pointers(&self, matrix_copied: bool, columns_copied: bool) -> [u64; 2] {
        let (matrix, columns) = (self.matrix, self.columns);
        let batches = columns.ne(2).saturating_mul(columns.ne(3));
        let even = matrix.ne(2) == columns.ne(2) && matrix.ne(3) == columns.ne(3);
        let follow = (matrix_copied || matrix.is_contiguous_from(2, 4))
            && (columns_copied && !self.is_dense(columns) || columns.is_contiguous_from(2, 4));
        if batches <= 1 || even && follow {
            return [0, 0];
        }
        // Two lists of input pointers and one of result pointers, each with an entry per matrix.
        [2 * POINTER * batches, POINTER * batches]
    }

    /// b8799, several matrices at once: `ggml_cuda_mul_mat_batched_cublas_impl`.
    fn cublas_batched(&self, requests: &mut Requests, precise: bool) {
        let kind = self.matrix.kind();
        let size = if kind == Type::F32 { 4 } else { 2 };
        let converted = self.columns.kind() != kind;
        let columns = if converted {
            self.columns.elements().saturating_mul(size)
        } else {
            0
        };
        let wide = precise || kind == Type::F32 || kind == Type::F16 && self.rules.capability == VOLTA;
        let result = if wide {
            0
        } else {
            self.result.elements().saturating_mul(2)
        };
        let (matrix, even) = (
            self.matrix,
            self.matrix.ne(2) == self.columns.ne(2) && self.matrix.ne(3) == self.columns.ne(3),
        );
        let follow = matrix.is_contiguous_from(2, 4) && (converted || self.columns.is_contiguous_from(2, 4));
        let batches = self.columns.ne(2).saturating_mul(self.columns.ne(3));
        let [from, to] = if even && follow {
            [0, 0]
        } else {
            [2 * POINTER * batches, POINTER * batches]
        };
        requests.group(&[columns, result, from, to]);
    }

    /// b8799, one matrix after another: `ggml_cuda_op_mul_mat` around `ggml_cuda_op_mul_mat_cublas`.
    fn cublas_one_by_one(&self, requests: &mut Requests, batches: u64) {
        let (matrix, columns) = (self.matrix, self.columns);
        let outer = [
            if matrix.is_contiguous() {
                // `ggml_cuda_op_mul_mat` first copies operands that are not contiguous, and holds the copies
                // to the end.
                0
            } else {
                memory::size(matrix, self.rules)
            },
            if columns.is_contiguous() {
                0
            } else {
                columns.elements().saturating_mul(4)
            },
        ];
        let taken = outer.into_iter().map(|bytes| requests.take(bytes)).sum();
        let (rows, width) = (matrix.ne(1), columns.ne(1));
        let result = self.result.ne(0).saturating_mul(self.result.ne(1));
        let inputs = width.saturating_mul(columns.ne(0));
        let weights = rows.saturating_mul(matrix.ne(0));
        let halves = (matrix.kind() == Type::F16 || matrix.is_quantised() && matrix.kind() != Type::Nvfp4)
            && matrix.is_contiguous()
            && !self.is_precise()
            && has_fast_halves(self.rules.capability);
        let or = |kind, bytes: u64| if matrix.kind() == kind { 0 } else { bytes };
        let sizes = if matrix.kind() == Type::Bf16 && matrix.is_contiguous() {
            [2 * inputs, 2 * result, 0]
        } else if halves && self.rules.capability == VOLTA {
            [or(Type::F16, 2 * weights), 2 * inputs, 0]
        } else if halves {
            [or(Type::F16, 2 * weights), 2 * inputs, 2 * result]
        } else {
            [or(Type::F32, 4 * weights), 0, 0]
        };
        // Every matrix takes and returns the same blocks, so more repetitions would not change the pool.
        for _ in 0..batches.min(1 << 12) {
            requests.group(&sizes);
        }
        requests.give(taken);
    }
}
