//! Lists the modules that test the public interface of `plimsoll-host`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

mod hostile_machine;
mod mutants;
