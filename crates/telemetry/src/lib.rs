//! Records memory use over time, and tests by statistics whether it leaks or only warms up.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod record;
pub mod trend;
