//! Parser of `/proc/pagetypeinfo` (readable by root only): free memory blocks by migrate type.
//!
//! Only movable pages can be moved to form a large free block.

use super::fields::{self, MOST_ORDERS, MOST_ZONES};

/// Migrate type of a page block, which determines whether compaction can move its pages.
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
    pub free: Vec<FreeOfType>,
}

/// Free blocks of one zone and migrate type by order. The kernel stops counting at 100 000 and writes
/// `>100000`, so long lists give lower bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeOfType {
    pub node: u32,
    pub zone: String,
    pub kind: MigrateType,
    pub counts: Vec<u64>,
}

impl MigrateType {
    /// Types that compaction does not join for an ordinary request.
    pub const FIXED: [Self; 5] =
        [Self::Unmovable, Self::Reclaimable, Self::HighAtomic, Self::Cma, Self::Isolate];

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
        for line in fields::lines(text) {
            let Some((node, zone, rest)) = fields::node_and_zone(line) else {
                continue;
            };
            // Rows without a type are the table of page blocks at the end of the file, which nothing is
            // planned from.
            let Some(rest) = rest.trim_start_matches([',', ' ']).strip_prefix("type") else {
                continue;
            };
            let mut words = rest.split_ascii_whitespace();
            if let Some(kind) = words.next().and_then(MigrateType::named)
                && types.free.len() < MOST_ZONES
            {
                types.free.push(FreeOfType {
                    node,
                    zone: zone.to_owned(),
                    kind,
                    counts: words.take(MOST_ORDERS).map_while(count).collect(),
                });
            }
        }
        types
    }
}

/// `12`, or `>100000` for more than were counted.
fn count(word: &str) -> Option<u64> {
    // The kernel stops at 100 000 to bound its time under the zone lock (`mm/vmstat.c`).
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
    fn free_blocks_are_read_by_type() {
        let types = PageTypeInfo::read(TEXT);
        let [unmovable, movable, cma] = &types.free[..] else {
            panic!("{types:?}");
        };
        assert_eq!(unmovable.kind, MigrateType::Unmovable);
        assert_eq!((movable.kind, &movable.counts[9..]), (MigrateType::Movable, &[6, 2][..]));
        assert_eq!((cma.kind, cma.counts[10]), (MigrateType::Cma, 50));
        assert_eq!(movable.counts[0], 100_000);
    }

    #[test]
    fn nonsense_is_nothing() {
        for text in ["", "Page block order: 4000\n", "Node 0, zone Normal, type", "Node 0, zone Normal 1 2\n"]
        {
            assert_eq!(PageTypeInfo::read(text), PageTypeInfo::default(), "{text}");
        }
    }
}
