//! Tests a server's memory for leaks: growth with the number of requests, as opposed to a warm-up allocation.
//!
//! Each sample is measured after a round of the same requests, with no request in flight. The first quarter
//! of the samples counts as warm-up.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod blocks;
// DECISION: a sign test on the increments between equal blocks of samples decides, and the median increment
// is the slope. A single large allocation is one increment, whereas it would distort a fit through the levels
// (least squares, Theil-Sen). A figure that falls back, or rises ever more slowly, is not a leak.
mod judge;
mod series;
mod sign;

pub use judge::{Trend, TrendGrowth, TrendTest, judge, steps};
pub use series::{TrendPoint, TrendSeries, TrendStep};
