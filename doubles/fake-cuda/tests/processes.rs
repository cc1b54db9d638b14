//! Tests of the fake driver with real processes: the C programs of `programs/`, built with `cc`, which bind
//! the driver in different ways.

mod life;
mod neighbours;
mod stage;
