//! Recordings of memory use over time, and the statistical test that distinguishes a leak from warm-up.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod record;
pub mod trend;
