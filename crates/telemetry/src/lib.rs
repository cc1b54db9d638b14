//! Recordings of memory over time, and the statistical test that tells a leak from warm-up.
#![forbid(unsafe_code)]

pub mod record;
pub mod trend;
