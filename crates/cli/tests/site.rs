//! Tests of the planner behind a page, whose replies are those of the command line.

mod cases;
mod session;
mod wasm;
