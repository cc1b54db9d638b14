//! File format of `plimsoll watch`: memory figures of a machine over time.
//!
//! DECISION: an append-only sequence of frames, each with its length before it and a CRC-32 behind it, each written with
//! one call. A frame is whole or it is the torn tail, which is dropped, so a SIGKILL costs at most the sample that was
//! being written. A sample lists only the figures that changed, as differences to their last value: two or three bytes
//! each. Figures are declared when they first appear, because processes come and go. On a machine so busy that a day
//! would exceed 20 MB, slow figures are written less often ([`Encoder`]), never the fast ones.
//!
//! DECISION: no JSON lines with zstd. Measured on a busy host with 102 figures, a sample takes 55 bytes here (9.4 MB a
//! day) and 84 bytes as JSON in a zstd stream that is flushed after each sample (14.5 MB), which leaves no room for
//! machines with many processes. A zstd stream also has no checksum per sample and needs a bound on its expansion.
//!
//! Records come with bug reports from strangers: everything read is bounded, and no content can cause a panic.

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
