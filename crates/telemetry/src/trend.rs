//! Statistical test for memory leaks: growth with the number of requests, as opposed to a warm-up allocation.
//!
//! DECISION: the samples are divided into equal blocks, and the increments between blocks are examined. A
//! sign test on the increments decides, and the median increment is the slope. A single allocation is one
//! increment no matter how large it is, so it hardly changes the count of rising blocks or the median. A fit
//! through the levels (least squares, Theil-Sen) would be distorted by such an increment. Blocks that do not
//! rise count against growth, so a high-water mark, which rises a few times and never falls, is not a leak.
//!
//! The test assumes no shape of noise. Increments of stationary noise are negatively correlated, which makes
//! leaks harder to report. Increments of a random walk are independent, which makes the test exact. Two kinds
//! of rising figures are not reported as leaks. One rises and falls back (a collected heap), so its net
//! growth is too small. The other rises ever more slowly (a cache that fills), which its later half shows.
//! The first quarter of the samples is warm-up and is not judged.
//!
//! All samples must be taken under the same conditions: with no request in flight, after rounds of the same
//! requests.

mod blocks;
mod course;
mod judge;
mod series;
mod sign;

pub use course::{Bucket, TrendCourse};
pub use judge::{Trend, TrendGrowth, TrendTest, judge, steps};
pub use series::{TrendPoint, TrendSeries, TrendStep};
