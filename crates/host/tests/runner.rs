//! Tests of the public interface of this crate; `src/lib.rs` includes this file.

mod hostile_machine;
