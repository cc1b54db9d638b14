//! Explanations of results: sources of numbers, reasons of decisions, and hints.
//!
//! The code that decides also builds the reason, at the same time; reasons are never reconstructed later.
//! Text, JSON, HTTP errors and pictures all show the same tree of reasons.

mod hint;
mod reason;
mod source;

pub use hint::{Advice, Hint};
pub use reason::{Fact, Reason};
pub use source::Source;
