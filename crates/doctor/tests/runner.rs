//! Lists the modules that test the public interface of `plimsoll-doctor`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

mod corpus;
mod diagnose;
mod mutants;
