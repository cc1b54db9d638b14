//! Guard pages for tests: written by hand, or by a real guard over a fake driver.

pub(crate) mod hand_written;
pub(crate) mod real;
