//! Provides guard's shared-memory pages for tests: written by hand, or by the real guard library over a fake
//! driver.

pub(crate) mod hand_written;
pub(crate) mod real;
