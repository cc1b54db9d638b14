//! Parser of `/proc/buddyinfo`: the number of free memory blocks of each size.
//!
//! The number of sizes depends on the kernel: usually 11, but 13 in Jetson's 5.15 kernel.

use plimsoll_base::Bytes;

use super::fields::{self, MOST_ORDERS, MOST_ZONES};

/// Free memory blocks of all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuddyInfo {
    pub zones: Vec<ZoneBlocks>,
}

/// Free blocks of a zone; the index is the order, and a block has 2^order pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneBlocks {
    pub node: u32,
    pub zone: String,
    pub counts: Vec<u64>,
}

impl BuddyInfo {
    /// Parses the file; lines that do not describe a zone are skipped.
    pub fn read(text: &str) -> Self {
        Self { zones: fields::lines(text).filter_map(zone).take(MOST_ZONES).collect() }
    }

    /// Number of orders of the kernel.
    pub fn orders(&self) -> usize {
        self.zones.iter().map(|zone| zone.counts.len()).max().unwrap_or(0)
    }

    /// Free blocks of exactly this order.
    pub fn blocks(&self, order: usize) -> u64 {
        self.zones
            .iter()
            .filter_map(|zone| zone.counts.get(order))
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Free memory in blocks of this order or larger.
    pub fn free_from(&self, order: usize, page: Bytes) -> Bytes {
        self.zones.iter().map(|zone| free_from(&zone.counts, order, page)).sum()
    }

    /// All free memory.
    pub fn free(&self, page: Bytes) -> Bytes {
        self.free_from(0, page)
    }
}

/// Memory in blocks of this order or larger.
pub(super) fn free_from(counts: &[u64], order: usize, page: Bytes) -> Bytes {
    let blocks = counts.iter().enumerate().skip(order);
    // Saturating throughout: counts of a damaged file may be anything.
    blocks.map(|(order, count)| block(order, page) * *count).sum()
}

/// The size of a block of this order; saturates.
pub(super) fn block(order: usize, page: Bytes) -> Bytes {
    let factor = u32::try_from(order).ok().and_then(|order| 1_u64.checked_shl(order));
    // checked_shl fails beyond 63 bits, where any size is larger than memory.
    factor.map_or(Bytes::MAX, |factor| page * factor)
}

fn zone(line: &str) -> Option<ZoneBlocks> {
    let (node, zone, rest) = fields::node_and_zone(line)?;
    let words = rest.split_ascii_whitespace().take(MOST_ORDERS);
    // One bad column drops the zone: shifted columns would count under wrong orders.
    let counts: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    let counts = counts.filter(|counts| !counts.is_empty())?;
    Some(ZoneBlocks { node, zone: zone.to_owned(), counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Bytes = Bytes::kib(4);
    const MAINLINE: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
Node 0, zone   Normal    100     50      0      0      0      0      0      0      0      2      1 \n";
    /// Orders 11 and 12 hold nearly everything, as on a Jetson that has just started.
    const TEGRA: &str = "Node 0, zone   Normal    12     8      6      4      3      2      1      1      1      0      1     20     94 \n";

    #[test]
    fn blocks_of_all_zones_are_added_by_order() {
        let blocks = BuddyInfo::read(MAINLINE);
        assert_eq!((blocks.orders(), blocks.blocks(9), blocks.blocks(10)), (11, 3, 4));
        assert_eq!(blocks.free_from(9, PAGE), Bytes::mib(22));
        assert_eq!(blocks.free(PAGE), Bytes::mib(23) + Bytes::kib(800));
    }

    #[test]
    fn a_kernel_with_thirteen_orders_is_read_whole_and_one_block_of_order_ten_proves_nothing() {
        let blocks = BuddyInfo::read(TEGRA);
        assert_eq!((blocks.orders(), blocks.blocks(10)), (13, 1));
        assert_eq!(blocks.free_from(10, PAGE), Bytes::mib(4 + 20 * 8 + 94 * 16));
    }

    #[test]
    fn lines_that_are_no_zones_are_skipped_and_huge_counts_saturate() {
        let text = "Node x, zone DMA 1\nNode 0, zone DMA\nNode 0, zone DMA 1 two\n\nNode 1, zone Normal 18446744073709551615 18446744073709551615\n";
        let blocks = BuddyInfo::read(text);
        assert_eq!(blocks.zones.len(), 1);
        assert_eq!(blocks.free(PAGE), Bytes::MAX);
    }
}
