//! Explanations: sources of numbers, reasons of decisions, hints.
//!
//! A reason is built while deciding, never reconstructed afterwards; text, JSON, HTTP errors and pictures
//! all render the same tree.

mod hint;
mod reason;
mod source;

pub use hint::{Advice, Hint};
pub use reason::{Fact, Reason};
pub use source::Source;
