//! Parser of `/proc/zoneinfo`: free memory of each zone, and the part that watermarks and reserves hold back.
//!
//! The file's figures are in pages.

use plimsoll_base::Bytes;

use super::fields::{self, MOST_ZONES};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneInfo {
    pub zones: Vec<Zone>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    pub node: u32,
    pub name: String,
    pub free: u64,
    pub low: u64,
    /// Free pages of the contiguous pool, which are part of `free`.
    pub free_cma: u64,
    /// The largest reserve of its `protection`.
    pub reserve: u64,
}

impl ZoneInfo {
    pub fn read(text: &str) -> Self {
        let mut zones: Vec<Zone> = Vec::new();
        for line in fields::lines(text) {
            if let Some((node, name, _)) = fields::node_and_zone(line) {
                if zones.len() == MOST_ZONES {
                    break;
                }
                zones.push(Zone { node, name: name.to_owned(), ..Zone::default() });
            } else if let Some(zone) = zones.last_mut() {
                zone.read_line(line.trim());
            }
        }
        Self { zones }
    }

    /// Free memory that watermarks and reserves withhold.
    pub fn deferred(&self, page: Bytes) -> Bytes {
        let occupied = |zone: &Zone| zone.free.saturating_sub(zone.free_cma).min(zone.kept());
        self.sum(occupied, page)
    }

    /// Memory for a driver's request without any reclaim: down to the low watermark, without the contiguous
    /// pool.
    pub fn usable(&self, page: Bytes) -> Bytes {
        self.sum(Zone::usable, page)
    }

    fn sum(&self, pages: impl Fn(&Zone) -> u64, page: Bytes) -> Bytes {
        self.zones.iter().map(|zone| page * pages(zone)).sum()
    }
}

impl Zone {
    /// Pages that a driver's request can have without any reclaim.
    pub fn usable(&self) -> u64 {
        self.free.saturating_sub(self.free_cma).saturating_sub(self.kept())
    }

    fn kept(&self) -> u64 {
        // `__zone_watermark_ok` compares free pages with the watermark plus lowmem_reserve.
        self.low.saturating_add(self.reserve)
    }

    fn read_line(&mut self, line: &str) {
        if let Some(list) = line.strip_prefix("protection:") {
            let reserves = list.trim().trim_matches(['(', ')']).split(',');
            // The entry that applies depends on the request's zone; the largest never promises too much.
            self.reserve = reserves.filter_map(|n| n.trim().parse().ok()).max().unwrap_or(0);
            return;
        }
        let mut words = line.split_ascii_whitespace().rev();
        let (Some(value), Some(key)) = (words.next().and_then(|value| value.parse().ok()), words.next())
        else {
            return;
        };
        match key {
            "free" => self.free = value,
            "low" => self.low = value,
            // Listed below the zone's counters, so lines are matched by key and not by position.
            "nr_free_cma" => self.free_cma = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Node 0, zone    DMA32
  per-node stats
      nr_inactive_anon 18528
  pages free     470000
        boost    0
        min      5476
        low      6845
        high     8214
        spanned  1044480
        managed  489000
        protection: (0, 0, 22178, 22178)
      nr_free_pages 470000
      nr_free_cma  0
  pagesets
    cpu: 0
              count: 180
              high:  189
              batch: 63
Node 0, zone   Normal
  pages free     60000
        min      15900
        low      19900
        high     23900
        managed  5691000
        protection: (0, 0, 0, 0)
      nr_free_cma  30000
Node 0, zone  Movable
  pages free     0
        min      32
        low      32
        high     32
        managed  0
        protection: (0, 0, 0, 0)
";

    #[test]
    fn the_watermark_the_reserve_and_the_contiguous_pool_are_taken_off_zone_by_zone() {
        let zones = ZoneInfo::read(TEXT);
        assert_eq!(zones.zones.len(), 3);
        assert_eq!((zones.zones[0].low, zones.zones[0].reserve), (6845, 22_178));
        let page = Bytes::new(1);
        assert_eq!(zones.usable(page), Bytes::new((470_000 - 6845 - 22_178) + (60_000 - 30_000 - 19_900)));
        assert_eq!(zones.deferred(page), Bytes::new(6845 + 22_178 + 19_900));
    }

    #[test]
    fn a_zone_with_less_than_its_watermark_gives_nothing() {
        let zones = ZoneInfo::read("Node 0, zone Normal\n pages free 10\n low 20\n");
        assert_eq!(zones.usable(Bytes::kib(4)), Bytes::ZERO);
        assert_eq!(zones.deferred(Bytes::kib(4)), Bytes::kib(40));
        assert_eq!(ZoneInfo::read("pages free 7\nNode\n").zones, []);
    }
}
