//! File format of `plimsoll watch` recordings: memory figures of a machine over time.
//!
//! A sample lists only the figures that changed, as differences. Recordings come from unknown users, so
//! everything read is bounded.
//!
//! DECISION: a recording is JSON lines in one gzip stream. Each line is written with one call, so a SIGKILL
//! costs at most one sample. Above 20 MB per day, less important figures are written less often
//! ([`Encoder`]).

mod about;
mod encode;
mod figure;
mod read;
mod redact;
mod summary;

pub use about::{About, CardAbout};
pub use encode::{Encoder, Look};
pub use figure::{Figure, Group, Pace, Unit};
pub use read::{Entry, ReadRecordError, Reader, Source, When};
pub use redact::Redaction;
pub use summary::{Event, Move, Shot, Summary, Told, summarise};

#[cfg(test)]
mod tests;
