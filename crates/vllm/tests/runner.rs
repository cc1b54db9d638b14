//! Lists the modules that test the public interface of `plimsoll-vllm`. `src/lib.rs` includes this file, so
//! that they and the unit tests are one binary.

mod answers;
pub(crate) mod checkpoint;
mod hostile;
mod logs;
