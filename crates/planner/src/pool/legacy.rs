//! Simulates ggml's legacy memory pool, micro-batch by micro-batch, until a prompt has filled the cache.
//!
//! The simulation uses the crate `plimsoll-pool`'s model of `ggml-cuda.cu: ggml_cuda_pool_leg @ b8799`.

use plimsoll_base::Order;
use plimsoll_pool::GgmlLegacy;
use plimsoll_pool::demand::DemandGroup;
use plimsoll_pool::replay::{GRANULE, Scopes};

use crate::CELLS;
use crate::pool::product;

/// Micro-batches that are replayed at most; a longer prompt takes larger steps.
const STEPS: u64 = 4096;

/// The pool after a prompt. `first` is allocated before any prompt. `products` are the matrix multiplications
/// of a whole micro-batch, which reuse their blocks in every later one.
pub(super) fn replayed(
    first: [DemandGroup<5>; 2],
    mut products: Vec<product::ProductBlocks>,
    tokens: u64,
    cells: u64,
    attention: impl Fn(u64) -> DemandGroup<5>,
) -> Scopes<GgmlLegacy> {
    let mut pool = Scopes::new(GgmlLegacy::default(), GRANULE);
    first.iter().for_each(|group| pool.group(group));
    // An engine runs the wide products of a layer last.
    products.order_by_key(|group| group.iter().fold(0, |sum: u64, size| sum.saturating_add(*size)));
    products.iter().for_each(|group| pool.group(group));
    // Attention sees whole steps of cells, and a copy that outgrows its block leaves the block behind.
    let step = tokens.max(cells / STEPS).max(1);
    let mut depth = 0;
    while depth < cells {
        depth = depth.saturating_add(step).min(cells);
        pool.group(&attention(depth.next_multiple_of(CELLS)));
    }
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Model m8 on an H200: products of width 4096 and 14 336, each with partial tiles.
    fn products() -> Vec<product::ProductBlocks> {
        let of_width = |width: u64| {
            let activations = width / 128 * 144 * 512 + 128 * 144;
            [activations, 132 * 128 * 128 * 4, 0, 0, 0, 0, 0]
        };
        vec![of_width(14_336), of_width(4096), of_width(4096)]
    }

    fn first(attention: [u64; 5]) -> [DemandGroup<5>; 2] {
        [[9216, 0, 0, 0, 0], attention]
    }

    #[test]
    fn a_grown_prompt_asks_the_driver_for_the_recorded_blocks() {
        let stated = include_str!("../../../../data/traces/old-q8_0-ub512.legacy-driver.txt");
        let stated: Vec<u64> = stated.lines().map(|line| line.parse().unwrap()).collect();
        let copies = |depth| [2048 * depth, 2048 * depth, 0, 0, 0];
        let pool = replayed(first([0, 0, 0, 65_536, 1024]), products(), 512, 61_440, copies);
        assert_eq!(pool.driver_sizes(), stated);
        assert_eq!(pool.policy().idle().count(), stated.len());
    }

    #[test]
    fn without_copies_only_the_products_are_held() {
        // by guard's page under b8799 with an f16 cache
        let pool = replayed(first([0, 0, 0, 0, 67_584]), products(), 512, 61_440, |_| [0; 5]);
        assert_eq!(pool.policy().idle().sum::<u64>(), 20_744_448);
    }
}
