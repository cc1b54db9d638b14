//! Splits an attention operation over a card's multiprocessors, which determines the size of its partial
//! results.
//!
//! Source: `ggml-cuda/fattn-common.cuh:launch_fattn @ b10605`.

/// Blocks of stream-k: whole tiles for each block, if that leaves at most 5 % of the `most` idle.
pub(super) fn stream_blocks(most: u64, tiles: u64) -> u64 {
    // A number of blocks that tiles divide needs no fix-up, because every block then computes whole tiles.
    let whole = most / tiles.max(1) * tiles;
    if whole > 0 && 100 * (most - whole) / most <= 5 { whole } else { most }
}

/// Number of parts into which the cache is divided, so that the last wave of blocks is nearly full.
pub(super) fn cache_parts(tiles: u64, most: u64, least: u64, at_once: u64) -> u64 {
    let mut best = (least.min(most), 0, 0);
    for parts in least.min(most)..=most {
        let blocks = tiles.saturating_mul(parts);
        // A wave is a set of blocks that are resident at once; the last one leaves multiprocessors idle if it
        // is not full.
        let waves = blocks.div_ceil(at_once.max(1)).max(1);
        let (_, best_waves, best_use) = best;
        // The engine ends its search here: an efficiency of 95 % is enough, and more parts would need another
        // wave.
        if best_use >= 95 && waves > best_waves {
            break;
        }
        let used = blocks.saturating_mul(100) / waves.saturating_mul(at_once).max(1);
        if used > best_use {
            best = (parts, waves, used);
        }
    }
    best.0
}
