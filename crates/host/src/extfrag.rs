//! `/sys/kernel/debug/extfrag/extfrag_index`, which only root may read: why a request of each order would fail.

use super::fields::{self, MOST_ORDERS, MOST_ZONES};

/// The index of every zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragmentationIndex {
    pub zones: Vec<ZoneIndex>,
}

/// By order: what stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneIndex {
    pub node: u32,
    pub zone: String,
    pub orders: Vec<Fragmentation>,
}

/// Would a request be met, and if not, is memory short or in pieces?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// A block is free (the kernel writes -1.000).
    Met,
    /// Thousandths: towards 0 memory is short, towards 1000 it is in pieces. The kernel compacts from 500 on.
    Failing(u64),
}

impl FragmentationIndex {
    pub fn read(text: &str) -> Self {
        Self {
            zones: fields::lines(text).filter_map(zone).take(MOST_ZONES).collect(),
        }
    }
}

fn zone(line: &str) -> Option<ZoneIndex> {
    let (node, zone, rest) = fields::node_and_zone(line)?;
    let words = rest.split_ascii_whitespace().take(MOST_ORDERS);
    let orders: Option<Vec<Fragmentation>> = words.map(index).collect();
    Some(ZoneIndex {
        node,
        zone: zone.to_owned(),
        orders: orders.filter(|orders| !orders.is_empty())?,
    })
}

/// `-1.000` or `0.967`.
fn index(word: &str) -> Option<Fragmentation> {
    if word == "-1.000" {
        return Some(Fragmentation::Met);
    }
    let (whole, part) = word.split_once('.')?;
    let shaped = part.len() == 3 && part.bytes().all(|digit| digit.is_ascii_digit());
    let part: u64 = part.parse().ok().filter(|_| shaped)?;
    match whole {
        "0" => Some(Fragmentation::Failing(part)),
        "1" if part == 0 => Some(Fragmentation::Failing(1000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_read_by_order() {
        let index = FragmentationIndex::read("Node 0, zone   Normal -1.000 -1.000 0.500 0.967 1.000 \n");
        let expected = [
            Fragmentation::Met,
            Fragmentation::Met,
            Fragmentation::Failing(500),
            Fragmentation::Failing(967),
            Fragmentation::Failing(1000),
        ];
        assert_eq!(index.zones[0].orders, expected);
        for text in [
            "",
            "Node 0, zone Normal",
            "Node 0, zone Normal 2.000",
            "Node 0, zone Normal 0.+1",
        ] {
            assert_eq!(FragmentationIndex::read(text).zones, [], "{text}");
        }
    }
}
