//! How the course of a machine's memory is written down and read back: the format behind `plimsoll watch`.
//!
//! DECISION: an append-only row of frames, each with its length before and a CRC-32 behind it, each written with one call. A
//! frame is whole or it is the torn tail, which is dropped; so a SIGKILL costs at most the sample that was being written. A
//! sample names only the figures that have changed, by the distance from the one before, as the difference to their last
//! value: two or three bytes each. Which figures there are is declared when they first appear, because processes come and
//! go. Where a machine is so lively that a day would pass the size promised, slow figures are written less often
//! ([`Encoder`]), never the fast ones.
//!
//! A record is also what strangers send with a bug report: everything read is bounded, and nothing in it can panic.

mod about;
mod encode;
mod figure;
mod frame;
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
