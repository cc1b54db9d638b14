//! `/proc/vmstat`: what the kernel has done to make room, since it started.

use std::collections::BTreeMap;

use super::fields;

/// Counters that are kept; kernels have under 250.
const MOST: usize = 1024;

/// The counters by name, so that one of a newer kernel is not lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmStat {
    counters: BTreeMap<String, u64>,
}

impl VmStat {
    pub fn read(text: &str) -> Self {
        let counter = |line: &str| {
            let (name, value) = line.trim().split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Self {
            counters: fields::lines(text).filter_map(counter).take(MOST).collect(),
        }
    }

    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// Times that a program had to make room itself before it got its memory, over all zones.
    pub fn direct_reclaims(&self) -> Option<u64> {
        self.sum("allocstall")
    }

    pub fn oom_kills(&self) -> Option<u64> {
        self.get("oom_kill")
    }

    /// Times that somebody dropped the page cache by hand.
    pub fn page_cache_drops(&self) -> Option<u64> {
        self.get("drop_pagecache")
    }

    /// Pages of files that came back soon after they had been dropped: the sign of thrashing.
    pub fn refaults(&self) -> Option<u64> {
        self.get("workingset_refault_file")
            .or_else(|| self.get("workingset_refault"))
    }

    /// Compactions in the way of a request: begun, in vain, with success.
    pub fn compactions(&self) -> Option<(u64, u64, u64)> {
        Some((
            self.get("compact_stall")?,
            self.get("compact_fail")?,
            self.get("compact_success")?,
        ))
    }

    /// What was counted since `before`; a counter that went backwards (the machine was restarted) counts from zero.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&String, &u64)| {
            let before = before.get(name).filter(|before| before <= now).unwrap_or(0);
            (name.clone(), now - before)
        };
        Self {
            counters: self.counters.iter().map(difference).collect(),
        }
    }

    fn sum(&self, prefix: &str) -> Option<u64> {
        let mut counters = self
            .counters
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .peekable();
        counters.peek()?;
        Some(counters.fold(0, |sum, (_, count)| sum.saturating_add(*count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_summed_and_compared() {
        let before = VmStat::read("oom_kill 1\nallocstall_dma 2\nallocstall_normal 3\ndrop_pagecache 9\n");
        let after = VmStat::read(
            "oom_kill 1\nallocstall_dma 2\nallocstall_normal 8\ndrop_pagecache 1\ncompact_stall 5\ncompact_fail 4\ncompact_success 1\n",
        );
        let between = after.since(&before);
        assert_eq!(
            (between.oom_kills(), between.direct_reclaims()),
            (Some(0), Some(5))
        );
        assert_eq!(between.page_cache_drops(), Some(1));
        assert_eq!(between.compactions(), Some((5, 4, 1)));
        assert_eq!(between.refaults(), None);
    }

    #[test]
    fn nonsense_is_nothing() {
        assert_eq!(VmStat::read("oom_kill\noom_kill x\n -1\n"), VmStat::default());
        assert_eq!(VmStat::default().direct_reclaims(), None);
    }
}
