//! Tests of the public interface.

mod cases;
mod session;
mod wasm;
