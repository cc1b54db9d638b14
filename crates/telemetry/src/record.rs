//! File format of `plimsoll watch` recordings: memory figures of a machine over time.
//!
//! DECISION: a recording is JSON lines in one gzip stream, which `zcat FILE` prints. Each line is flushed and
//! written with one call, so a SIGKILL costs at most the sample that was being written. A sample lists only
//! the figures that changed, as differences from their last value. Figures are declared when they first
//! appear, because processes come and go. If a busy machine's recording would exceed 20 MB per day, the less
//! important figures are written less often ([`Encoder`]).
//!
//! Recordings are attached to bug reports by unknown users: everything read is bounded, and no content can
//! cause a panic.

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
