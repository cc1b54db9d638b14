//! Real processes on the fake driver: the C programs of `programs/`, built with `cc`, each bound in its own
//! way.

#![expect(clippy::unwrap_used, reason = "a stage that cannot be built fails the test")]

mod life;
mod neighbours;
mod stage;
