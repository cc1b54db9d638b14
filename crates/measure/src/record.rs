//! File format of `plimsoll measure watch` recordings: memory figures of a machine over time.
//!
//! A recording is JSON lines in one gzip stream. A sample lists only the figures that changed, as
//! differences.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod about;
// DECISION: each line is written with one call, so a SIGKILL costs at most one sample. Above 20 MB per day,
// less important figures are written less often (`Encoder`). Recordings come from unknown users, so
// everything read is bounded.
mod encode;
mod figure;
mod read;
mod summary;

pub use about::{About, CardAbout};
pub use encode::{Encoder, Look};
pub use figure::{Figure, Group, Pace, Unit};
pub use read::{ReadRecordError, Source};
pub use summary::{Event, Move, Reported, Summary, summarise};

#[cfg(test)]
mod tests;
