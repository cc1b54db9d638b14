//! `/proc/pagetypeinfo`, which only root may read: free blocks by what they may hold, and what every page block holds.
//!
//! Compaction moves movable pages and no others. A page block that holds unmovable pages gives no large block however long
//! one compacts, so what lies free in blocks of the movable kind is all that compaction can put together.

use plimsoll_base::Bytes;

use super::buddyinfo::block;
use super::fields::{self, MOST_ORDERS, MOST_ZONES};

/// What pages a block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrateType {
    Unmovable,
    Movable,
    Reclaimable,
    HighAtomic,
    /// The contiguous pool.
    Cma,
    Isolate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTypeInfo {
    /// The order of a page block: what compaction works towards.
    pub block_order: Option<usize>,
    pub free: Vec<FreeOfType>,
    pub blocks: Vec<BlocksOfType>,
}

/// Free blocks of one zone and type by order. The kernel stops counting at 100 000 and writes `>100000`, so these are lower
/// bounds where a list is that long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeOfType {
    pub node: u32,
    pub zone: String,
    pub kind: MigrateType,
    pub counts: Vec<u64>,
}

/// How many page blocks of a zone are of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocksOfType {
    pub node: u32,
    pub zone: String,
    pub kind: MigrateType,
    pub count: u64,
}

impl MigrateType {
    /// What compaction does not join for an ordinary request.
    pub const FIXED: [Self; 5] = [
        Self::Unmovable,
        Self::Reclaimable,
        Self::HighAtomic,
        Self::Cma,
        Self::Isolate,
    ];

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Unmovable" => Self::Unmovable,
            "Movable" => Self::Movable,
            "Reclaimable" => Self::Reclaimable,
            "HighAtomic" => Self::HighAtomic,
            "CMA" => Self::Cma,
            "Isolate" => Self::Isolate,
            _ => return None,
        })
    }
}

impl PageTypeInfo {
    pub fn read(text: &str) -> Self {
        let mut types = Self::default();
        let mut columns: Vec<Option<MigrateType>> = Vec::new();
        for line in fields::lines(text) {
            if let Some(order) = line.strip_prefix("Page block order:") {
                types.block_order = order.trim().parse().ok().filter(|order| *order < MOST_ORDERS);
            } else if let Some(names) = line.strip_prefix("Number of blocks type") {
                columns = names
                    .split_ascii_whitespace()
                    .take(MOST_ORDERS)
                    .map(MigrateType::named)
                    .collect();
            } else if let Some((node, zone, rest)) = fields::node_and_zone(line) {
                types.read_row(node, zone, rest, &columns);
            }
        }
        types
    }

    fn read_row(&mut self, node: u32, zone: &str, rest: &str, columns: &[Option<MigrateType>]) {
        if self.free.len().max(self.blocks.len()) >= MOST_ZONES {
            return;
        }
        let zone = zone.to_owned();
        if let Some(rest) = rest.trim_start_matches([',', ' ']).strip_prefix("type") {
            let mut words = rest.split_ascii_whitespace();
            if let Some(kind) = words.next().and_then(MigrateType::named) {
                let counts = words.take(MOST_ORDERS).map_while(count).collect();
                self.free.push(FreeOfType {
                    node,
                    zone,
                    kind,
                    counts,
                });
            }
            return;
        }
        let counts = rest.split_ascii_whitespace().map_while(count);
        for (kind, count) in columns.iter().zip(counts) {
            if let Some(kind) = *kind {
                self.blocks.push(BlocksOfType {
                    node,
                    zone: zone.clone(),
                    kind,
                    count,
                });
            }
        }
    }

    /// Free memory of a type in blocks of this order or larger.
    pub fn free_from(&self, kind: MigrateType, order: usize, page: Bytes) -> Bytes {
        let rows = self.free.iter().filter(|row| row.kind == kind);
        rows.flat_map(|row| row.counts.iter().enumerate().skip(order))
            .map(|(order, count)| block(order, page) * *count)
            .sum()
    }

    /// Page blocks of a type, over all zones.
    pub fn blocks_of(&self, kind: MigrateType) -> u64 {
        let rows = self.blocks.iter().filter(|row| row.kind == kind);
        rows.fold(0, |sum, row| sum.saturating_add(row.count))
    }

    /// Thousandths of all page blocks that compaction cannot empty.
    pub fn unmovable(&self) -> Option<u64> {
        let all = self
            .blocks
            .iter()
            .fold(0_u64, |sum, row| sum.saturating_add(row.count));
        let movable = self
            .blocks_of(MigrateType::Movable)
            .saturating_add(self.blocks_of(MigrateType::Cma));
        (all > 0).then(|| Bytes::new(all.saturating_sub(movable)).scaled(1000, all).get())
    }
}

/// `12`, or `>100000` for more than were counted.
fn count(word: &str) -> Option<u64> {
    word.strip_prefix('>').unwrap_or(word).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 
Node    0, zone   Normal, type    Unmovable      0     35     58      5      2      3      0      0      0      1      1 
Node    0, zone   Normal, type      Movable >100000      0      1      0   3685      0      0      0      0      6      2 
Node    0, zone   Normal, type          CMA      0      0      0      0      0      0      0      0      0      0     50 
Node    0, zone   Normal, type      Unheard      7      7

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate 
Node 0, zone   Normal           90          300           10            0          100            0 
";

    #[test]
    fn free_blocks_and_page_blocks_are_read_by_type() {
        let types = PageTypeInfo::read(TEXT);
        let page = Bytes::kib(4);
        assert_eq!(types.block_order, Some(9));
        assert_eq!(
            types.free_from(MigrateType::Movable, 9, page),
            Bytes::mib(6 * 2 + 2 * 4)
        );
        assert_eq!(types.free_from(MigrateType::Cma, 0, page), Bytes::mib(200));
        assert_eq!(types.free.len(), 3);
        assert_eq!(types.free[1].counts[0], 100_000);
        assert_eq!(
            (types.blocks_of(MigrateType::Cma), types.unmovable()),
            (100, Some(200))
        );
    }

    #[test]
    fn nonsense_is_nothing() {
        for text in [
            "",
            "Page block order: 4000\n",
            "Node 0, zone Normal, type",
            "Node 0, zone Normal 1 2\n",
        ] {
            assert_eq!(PageTypeInfo::read(text), PageTypeInfo::default(), "{text}");
        }
    }
}
