//! Flash attention: supported operands, and the space that the kernel needs behind its result.
//!
//! DECISION: this module decides by the operands whether a kernel exists; `plimsoll_pool::demand` decides
//! which kernel runs. Builds before PR 23907 (about b9400) reserve nothing behind the result: there the f16
//! copies of a quantised cache come out of the run-time pool. Source:
//! `fattn.cu:ggml_cuda_get_best_fattn_kernel, ggml_cuda_flash_attn_ext_get_alloc_size`,
//! `fattn-common.cuh:ggml_cuda_flash_attn_ext_get_f16_extra_data @ b8799, b10605, ggml 0.26.0`.

use plimsoll_pool::demand::Rules;
use plimsoll_pool::demand::attention::{AttentionType, Call, Kernel, STRIDE};

use crate::generation::Generation;
use crate::kinds::Type;
use crate::tensor::View;

/// Alignment of the copies behind the result.
const ALIGNMENT: u64 = 128;

/// The operands of one attention.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) result: View<'a>,
    pub(crate) q: View<'a>,
    pub(crate) k: View<'a>,
    pub(crate) v: View<'a>,
    pub(crate) mask: Option<View<'a>>,
}

impl<'a> Attention<'a> {
    pub(crate) fn of(result: View<'a>) -> Option<Self> {
        Some(Self {
            result,
            q: result.source(0)?,
            k: result.source(1)?,
            v: result.source(2)?,
            mask: result.source(3),
        })
    }

    pub(crate) fn max_bias(&self) -> f32 {
        self.result.float_parameter(1)
    }

    /// True if query heads that share a KV head are computed together.
    pub(crate) fn shares_well(&self) -> bool {
        let operands = [Some(self.q), Some(self.k), Some(self.v), self.mask];
        let aligned =
            |operand: View<'_>| operand.is_quantised() || (1..4).all(|d| operand.nb(d).is_multiple_of(16));
        self.mask.is_some()
            && self.max_bias() == 0.0
            && self.k.ne(1).is_multiple_of(STRIDE)
            && operands.into_iter().flatten().all(aligned)
    }

    /// The kernel; `None` where the card has none for these operands.
    pub(crate) fn kernel(&self, rules: Rules) -> Option<Kernel> {
        let call = self.call()?;
        if !self.has_head(&call, rules.engine) || !self.has_types(rules.engine) {
            return None;
        }
        // Every kernel reads one mask for all heads.
        if self.mask.is_some_and(|mask| mask.ne(2) != 1) {
            return None;
        }
        Some(call.kernel(rules))
    }

    /// The call in plain numbers; `None` where query heads do not share KV heads evenly, which aborts ggml.
    pub(crate) fn call(&self) -> Option<Call> {
        let (heads, kv_heads) = (self.q.ne(2), self.k.ne(2));
        let even = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        even.then(|| Call {
            key: self.k.ne(0),
            value: self.v.ne(0),
            heads,
            kv_heads,
            tokens: self.q.ne(1),
            sequences: self.q.ne(3),
            cells: self.k.ne(1),
            k: element(self.k),
            v: element(self.v),
            v_is_k: self.v_is_k(),
            masked: self.mask.is_some(),
            together: self.shares_well(),
            biased: self.max_bias() != 0.0,
        })
    }

    fn has_head(&self, call: &Call, generation: Generation) -> bool {
        let (newer, shares, sharing) = (!generation.copies(), call.shares(), call.sharing());
        // These are the head sizes with a compiled kernel. 576 and 512 are DeepSeek's latent attention.
        match (self.k.ne(0), self.v.ne(0)) {
            (40 | 64 | 72 | 80 | 96 | 112 | 128 | 256, v) => v == self.k.ne(0),
            (192, 128) => newer && shares && sharing.is_multiple_of(8),
            (320, 256) => newer && shares && sharing.is_multiple_of(32),
            (512, 512) | (576, 512) => shares,
            _ => false,
        }
    }

    fn has_types(&self, generation: Generation) -> bool {
        let (k, v) = (self.k.kind(), self.v.kind());
        let always = |kind| matches!(kind, Type::F32 | Type::F16 | Type::Bf16 | Type::Q4_0 | Type::Q8_0);
        let any = |kind| always(kind) || matches!(kind, Type::Q4_1 | Type::Q5_0 | Type::Q5_1);
        // Default builds leave out GGML_CUDA_FA_ALL_QUANTS, and with it kernels for mixed types of K and V.
        match generation {
            Generation::Ik | Generation::Copying | Generation::Reserving => k == v && always(k),
            Generation::Third => any(k) && any(v),
        }
    }

    /// True if V is the front of K, so that one copy does for both.
    pub(crate) fn v_is_k(&self) -> bool {
        self.v.viewed().is_some_and(|viewed| {
            viewed.is(self.k)
                || self.k.viewed().is_some_and(|k| viewed.is(k))
                    && self.v.view_offset() == self.k.view_offset()
        })
    }

    /// Bytes that the result takes with the copies behind it.
    pub(crate) fn size(&self, rules: Rules) -> u64 {
        let bytes = self.result.bytes();
        let kernel = if rules.engine.copies() {
            None
        } else {
            self.kernel(rules)
        };
        let (Some(kernel), Some(call)) = (kernel, self.call()) else {
            return bytes;
        };
        let copied = if self.has_vector(rules.engine) {
            call.copied(kernel)
        } else {
            call.copied(Kernel::Matrix)
        };
        // Alignment is of the address itself, so the size depends on the place that the tensor has got.
        let start = u64::try_from(self.result.raw().data.addr()).unwrap_or(0);
        let mut end = start.saturating_add(bytes);
        for (operand, copied) in [self.k, self.v].into_iter().zip(copied) {
            if copied {
                end = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(end);
                end = end.saturating_add(operand.elements().saturating_mul(2));
            }
        }
        end - start
    }

    /// True if a default build has a vector kernel for these types.
    fn has_vector(&self, generation: Generation) -> bool {
        // The kernel for vectors reads f32 caches through an f16 copy.
        let as_half = |kind| if kind == Type::F32 { Type::F16 } else { kind };
        let (k, v) = (as_half(self.k.kind()), as_half(self.v.kind()));
        generation != Generation::Third
            || (k == v && matches!(k, Type::F16 | Type::Bf16 | Type::Q4_0 | Type::Q8_0))
    }
}

fn element(operand: View<'_>) -> AttentionType {
    match operand.kind() {
        Type::F16 => AttentionType::F16,
        Type::F32 => AttentionType::F32,
        _ if operand.is_quantised() => AttentionType::Quantised,
        _ => AttentionType::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_pool::demand::Capability;

    use crate::made::{H200, Operands, view};

    fn rules(capability: Capability, engine: Generation) -> Rules {
        Rules {
            capability,
            engine,
            ..H200
        }
    }

    fn kernel(operands: &Operands, capability: Capability, generation: Generation) -> Option<Kernel> {
        let result = operands.attention();
        Attention::of(view(&result))
            .unwrap()
            .kernel(rules(capability, generation))
    }

    fn size(operands: &Operands, capability: Capability, generation: Generation) -> u64 {
        let result = operands.attention();
        Attention::of(view(&result))
            .unwrap()
            .size(rules(capability, generation))
    }

    const LLAMA: ([i64; 2], [i64; 2]) = ([128, 128], [32, 8]);

    fn llama(cache: Type, tokens: i64, cells: i64) -> Operands {
        Operands::new(cache, LLAMA.0, LLAMA.1, tokens, cells)
    }

    #[test]
    fn the_kernel_is_the_one_that_each_card_runs() {
        use Generation::{Copying, Reserving, Third};
        for (cache, tokens, cells, capability, kernel_of_it) in [
            (Type::F16, 512, 8192, 900, Kernel::Matrix),
            (Type::F16, 1, 4096, 900, Kernel::Vector),
            (Type::Q8_0, 2, 65_536, 890, Kernel::Vector),
            (Type::Q8_0, 3, 65_536, 890, Kernel::Matrix),
            (Type::Q8_0, 2, 65_536, 860, Kernel::Matrix),
            (Type::Q8_0, 1, 65_536, 860, Kernel::Vector),
            // four heads share, so that one token stays with matrices on Ampere
            (Type::F16, 1, 4096, 860, Kernel::Matrix),
            (Type::F16, 4, 4096, 700, Kernel::Tile),
            (Type::F16, 5, 4096, 700, Kernel::Matrix),
            (Type::F16, 512, 4096, 610, Kernel::Tile),
            (Type::Q4_0, 2, 4096, 610, Kernel::Vector),
        ] {
            for generation in [Copying, Reserving, Third] {
                let operands = llama(cache, tokens, cells);
                let found = kernel(&operands, capability, generation);
                assert_eq!(
                    found,
                    Some(kernel_of_it),
                    "{cache:?} {tokens} {cells} {capability}"
                );
            }
        }
    }

    #[test]
    fn deep_caches_of_many_sharing_heads_go_to_the_matrices() {
        let operands = |cells| Operands::new(Type::F16, [128, 128], [64, 8], 1, cells);
        for (cells, found) in [(4096, Kernel::Vector), (8192, Kernel::Matrix)] {
            assert_eq!(kernel(&operands(cells), 900, Generation::Reserving), Some(found));
        }
    }

    #[test]
    fn what_a_card_has_no_kernel_for_is_refused() {
        use Generation::{Copying, Reserving, Third};
        let q5 = llama(Type::Q5_0, 512, 4096);
        assert_eq!(
            (kernel(&q5, 900, Copying), kernel(&q5, 900, Reserving)),
            (None, None)
        );
        assert_eq!(kernel(&q5, 900, Third), Some(Kernel::Matrix));
        let mixed = Operands {
            v: llama(Type::F16, 1, 4096).v,
            ..llama(Type::Q8_0, 1, 4096)
        };
        assert_eq!(
            (kernel(&mixed, 900, Reserving), kernel(&mixed, 900, Third)),
            (None, Some(Kernel::Vector))
        );
        let odd = Operands::new(Type::F16, [100, 100], [32, 8], 512, 4096);
        assert_eq!(kernel(&odd, 900, Reserving), None);
        let mimo = Operands::new(Type::F16, [192, 128], [64, 8], 512, 4096);
        assert_eq!(
            (kernel(&mimo, 900, Copying), kernel(&mimo, 900, Reserving)),
            (None, Some(Kernel::Matrix))
        );
        let uneven = Operands::new(Type::F16, [128, 128], [30, 8], 512, 4096);
        assert_eq!(kernel(&uneven, 900, Reserving), None);
        let unpadded = Operands::new(Type::F16, [512, 512], [32, 8], 512, 4000);
        assert_eq!(kernel(&unpadded, 900, Reserving), None);
    }

    #[test]
    fn a_quantised_cache_is_copied_behind_the_result_since_pr_23907() {
        // Llama 3 8B, 131 072 cells: two copies of 8 heads of 128 halves, as in the 512 MiB of a measured 672
        // MiB buffer
        let operands = llama(Type::Q8_0, 512, 131_072);
        let result = 128 * 32 * 512 * 4;
        assert_eq!(size(&operands, 900, Generation::Copying), result);
        assert_eq!(
            size(&operands, 900, Generation::Reserving),
            result + 2 * 2 * 131_072 * 8 * 128
        );
        assert_eq!(
            size(&llama(Type::F16, 512, 131_072), 900, Generation::Reserving),
            result
        );
        // the vector kernel reads the blocks itself
        assert_eq!(
            size(&llama(Type::Q8_0, 1, 131_072), 900, Generation::Reserving),
            128 * 32 * 4
        );
    }

    #[test]
    fn one_copy_does_where_v_is_the_front_of_k() {
        let mut operands = Operands::new(Type::Q8_0, [576, 512], [128, 1], 512, 4096);
        let result = 512 * 128 * 512 * 4;
        assert_eq!(
            size(&operands, 900, Generation::Reserving),
            result + 2 * 4096 * (576 + 512)
        );
        operands.v.view_src = (&raw const operands.k).cast_mut();
        assert_eq!(
            size(&operands, 900, Generation::Reserving),
            result + 2 * 4096 * 576
        );
    }
}
