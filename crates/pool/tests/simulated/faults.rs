//! Injects faults into the simulated card: requests are refused although memory is free.

/// Requests to refuse, counted from [`super::Simulated::inject`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// The n-th request, counted from 1.
    pub(crate) nth: Option<u64>,
    /// Every request above this size, as on a fragmented card or a Tegra.
    pub(crate) above: Option<u64>,
    /// Number of following requests to refuse.
    pub(crate) next: u64,
    seen: u64,
}

impl Faults {
    /// Refuses the n-th request, counted from 1.
    pub(crate) fn nth(n: u64) -> Self {
        Self { nth: Some(n), ..Self::default() }
    }

    /// Refuses every request of more than `bytes`.
    pub(crate) fn above(bytes: u64) -> Self {
        Self { above: Some(bytes), ..Self::default() }
    }

    /// Refuses the next `count` requests.
    pub(crate) fn next(count: u64) -> Self {
        Self { next: count, ..Self::default() }
    }

    pub(crate) fn refuse(&mut self, size: u64) -> bool {
        // Every request counts, also one that another fault refuses, so that numbers do not depend on their
        // combination.
        self.seen += 1;
        let next = self.next > 0;
        self.next = self.next.saturating_sub(1);
        next || self.nth == Some(self.seen) || self.above.is_some_and(|above| size > above)
    }
}
