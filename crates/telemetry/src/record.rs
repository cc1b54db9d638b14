//! File format of `plimsoll watch` recordings: memory figures of a machine over time.
//!
//! DECISION: JSON lines in one gzip stream, `zcat FILE` shows them. Each line is flushed and written with one
//! call, so a SIGKILL costs at most the sample that was being written. A sample lists only the figures that
//! changed, as differences to their last value. Figures are declared when they first appear, because
//! processes come and go. On a machine so busy that a day would exceed 20 MB, slow figures are written less
//! often ([`Encoder`]), never the fast ones.
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
