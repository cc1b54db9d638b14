//! File format of `plimsoll watch` recordings: memory figures of a machine over time.
//!
//! DECISION: a file is an append-only sequence of frames. Each frame begins with its length, ends with a
//! CRC-32, and is written with one call. So after a SIGKILL only the last frame can be incomplete; it is
//! dropped, and at most one sample is lost. A sample lists only the figures that changed, as differences to
//! their last value: two or three bytes each. Figures are declared when they first appear, because processes
//! start and end. On a machine so busy that a day would exceed 20 MB, slow figures are written less often
//! ([`Encoder`]), never the fast ones.
//!
//! DECISION: JSON lines with zstd were rejected. Measured on a busy host with 102 figures, a sample takes 55
//! bytes in this format (9.4 MB a day) and 84 bytes as JSON in a zstd stream that is flushed after each
//! sample (14.5 MB), which leaves no room for machines with many processes. A zstd stream also has no
//! checksum per sample and needs a bound on its expansion.
//!
//! Recordings are attached to bug reports by unknown users: everything read is bounded, and no content can
//! cause a panic.

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
