//! The legacy pool: what it holds once a prompt has filled the cache, micro-batch by micro-batch.
//!
//! `ggml-cuda.cu: ggml_cuda_pool_leg @ b8799` gives the smallest free block that is large enough, else asks the driver for 1.05 times the
//! size, and never gives a block back. Within a micro-batch the requests of one layer are those of every other. Replayed with the
//! shapes of `data/traces`, this is what the driver was asked for on an H200, block by block.

use super::super::reserve::{CELLS, Reserve};
use super::Product;
use crate::bytes::Bytes;

/// Micro-batches that are looked at; a longer prompt takes larger steps.
const STEPS: u64 = 4096;

/// Every block that the pool has had of the driver. `first` is asked for before any prompt; `products` are the matrix multiplications of a
/// whole micro-batch, which find their blocks again in every later one; each cell of the cache has `half` bytes of keys copied, and as
/// many of values.
pub(super) fn blocks(
    first: [Bytes; 2],
    mut products: Vec<Product>,
    half: Bytes,
    reserve: &Reserve,
    cells: u64,
) -> Vec<Bytes> {
    let step = reserve.tokens.max(cells / STEPS).max(1);
    let mut blocks: Vec<Bytes> = first.map(grown).to_vec();
    // an engine comes to the wide products of a layer last
    products.sort_unstable_by_key(|product| product.activations);
    for product in products {
        take(&mut blocks, [product.activations, product.partial]);
    }
    let mut depth = 0;
    while depth < cells {
        depth = depth.saturating_add(step).min(cells);
        let copy = half * depth.next_multiple_of(CELLS);
        take(&mut blocks, [copy, copy]);
    }
    blocks
}

/// The block that is asked for where none is large enough.
fn grown(size: Bytes) -> Bytes {
    size.scaled(105, 100).padded(256)
}

/// Two requests that are alive together.
fn take(blocks: &mut Vec<Bytes>, sizes: [Bytes; 2]) {
    let mut held = None;
    for size in sizes.into_iter().filter(|size| !size.is_zero()) {
        let fitting = blocks.iter().enumerate();
        let fitting = fitting.filter(|(index, block)| **block >= size && Some(*index) != held);
        held = match fitting.min_by_key(|(_, block)| **block) {
            Some((index, _)) => Some(index),
            None => {
                blocks.push(grown(size));
                Some(blocks.len() - 1)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Model m8 on an H200: products of width 4096 and 14 336, each with partial tiles.
    fn products() -> Vec<Product> {
        let of_width = |width: u64| Product {
            activations: Bytes::new(width / 128 * 144 * 512 + 128 * 144),
            partial: Bytes::new(132 * 128 * 128 * 4),
        };
        vec![of_width(14_336), of_width(4096), of_width(4096)]
    }

    fn reserve() -> Reserve {
        Reserve {
            context: 65_536,
            per_sequence: 65_536,
            sequences: 1,
            streams: 1,
            micro_batch: 512,
            tokens: 512,
            outputs: 512,
            full_sliding: false,
            pooling: None,
        }
    }

    #[test]
    fn a_grown_prompt_asks_the_driver_for_what_an_engine_was_seen_to_ask_for() {
        let said = include_str!("../../../../../data/traces/old-q8_0-ub512.legacy-driver.txt");
        let said: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
        let first = [Bytes::new(9216), Bytes::new(65_536)];
        let found = blocks(first, products(), Bytes::new(2048), &reserve(), 61_440);
        let found: Vec<u64> = found.into_iter().map(Bytes::get).collect();
        assert_eq!(found, said);
    }

    #[test]
    fn without_copies_only_the_products_are_held() {
        // by guard's page under b8799 with an f16 cache
        let first = [Bytes::new(9216), Bytes::new(67_584)];
        let found = blocks(first, products(), Bytes::ZERO, &reserve(), 61_440);
        assert_eq!(found.into_iter().sum::<Bytes>(), Bytes::new(20_744_448));
    }
}
