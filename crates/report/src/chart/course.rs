//! Reduces a measured figure to plot points: lowest, highest and last value of each time span.

/// Buckets that are kept; beyond, neighbours are joined. A picture has fewer pixels.
const MOST: usize = 720;

/// Lowest, highest and last value of a figure in a time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub from: u64,
    pub until: u64,
    pub lowest: u64,
    pub highest: u64,
    pub last: u64,
}

/// A figure over time, downsampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrendCourse {
    buckets: Vec<Bucket>,
    /// Values that go into one bucket.
    each: u64,
    /// Values in the last bucket.
    filled: u64,
}

impl Default for TrendCourse {
    fn default() -> Self {
        Self { buckets: Vec::new(), each: 1, filled: 0 }
    }
}

impl TrendCourse {
    /// Takes the value that holds from `at` on.
    pub fn push(&mut self, at: u64, value: u64) {
        if let Some(last) = self.buckets.last_mut().filter(|_| self.filled < self.each) {
            last.take(Bucket::of(at, value));
            self.filled += 1;
            return;
        }
        if self.buckets.len() >= MOST {
            // Neighbours are merged pairwise, so lows and highs survive any number of halvings.
            self.join();
        }
        self.buckets.push(Bucket::of(at, value));
        self.filled = 1;
    }

    fn join(&mut self) {
        self.buckets = self
            .buckets
            .chunks(2)
            .map(|pair| {
                let mut joined = pair[0];
                pair[1..].iter().for_each(|later| joined.take(*later));
                joined
            })
            .collect();
        self.each = self.each.saturating_mul(2);
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    pub fn highest(&self) -> Option<u64> {
        self.buckets.iter().map(|bucket| bucket.highest).max()
    }

    pub fn lowest(&self) -> Option<u64> {
        self.buckets.iter().map(|bucket| bucket.lowest).min()
    }
}

impl Bucket {
    fn of(at: u64, value: u64) -> Self {
        Self { from: at, until: at, lowest: value, highest: value, last: value }
    }

    fn take(&mut self, later: Self) {
        self.until = self.until.max(later.until);
        self.lowest = self.lowest.min(later.lowest);
        self.highest = self.highest.max(later.highest);
        self.last = later.last;
    }
}
