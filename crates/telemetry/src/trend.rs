//! Leak test: growth with the number of requests, as opposed to a warm-up allocation.
//!
//! DECISION: a sign test on the increments between equal blocks of looks, and the median increment as the
//! slope. A one-shot allocation is one increment whatever its size, so it moves neither the count of rising
//! blocks nor the median; a fit through the levels (least squares, Theil-Sen) is bent by it. Blocks that do
//! not rise count against growth, so that a high-water mark, which never falls, is no leak. The test needs no
//! shape of noise: increments of stationary noise are negatively correlated, which makes it err on the quiet
//! side, those of a random walk are independent, which makes it exact. What rises and comes back (a collected
//! heap) fails on its net growth, what rises ever slower (a cache that fills) on its later half. The first
//! quarter of the looks is warm-up and is not judged.
//!
//! Looks are assumed to be alike: taken when nothing is in flight, after rounds of the same requests.

mod blocks;
mod course;
mod judge;
mod series;
mod sign;

pub use course::{Bucket, TrendCourse};
pub use judge::{Trend, TrendGrowth, TrendTest, judge, steps};
pub use series::{TrendPoint, TrendSeries, TrendStep};
