//! Explains results to users: where a number comes from, why a decision was made, and what the user can
//! change.
//!
//! A reason is built by the code that decides, at the time of the decision. Text, JSON, HTTP errors and
//! pictures show the same tree of reasons.

mod hint;
mod reason;
mod source;

pub use hint::{Advice, Hint, SpillAdvice, SpillWay};
pub use reason::{Fact, Reason};
pub use source::Source;
