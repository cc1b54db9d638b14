//! Memory pages of guard (the preloaded library) for tests: written by hand, or by the real library over a
//! fake driver.

pub(crate) mod hand_written;
pub(crate) mod real;
