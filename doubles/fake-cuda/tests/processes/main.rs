//! Tests of the fake driver with real processes: the C programs of `programs/`, built with `cc`, which bind
//! the driver in different ways.

#![expect(clippy::unwrap_used, reason = "a stage that cannot be built fails the test")]

mod life;
mod neighbours;
mod stage;
