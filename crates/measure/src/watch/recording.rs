//! Writer of a memory recording's file: one write for each sample.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::collector::Collector;
use crate::record::{About, Encoder, Source};

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("cannot create the record `{}`: {error}", path.display())]
    Create { path: PathBuf, error: io::Error },
    #[error("the file `{}` already exists; name another file with -o, or remove this one", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write to the record `{}`: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    bytes: Vec<u8>,
    start: Instant,
}

impl Recording {
    /// Starts a record in a new file.
    pub fn begin(path: &Path, about: &About) -> Result<Self, RecordingError> {
        // It holds command lines and messages of the kernel, which other users may be kept from.
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists { path: path.to_owned() },
            _ => RecordingError::Create { path: path.to_owned(), error },
        })?;
        let mut bytes = Vec::new();
        let encoder = Encoder::begin(about, &mut bytes);
        let mut recording = Self { path: path.to_owned(), file, encoder, bytes, start: Instant::now() };
        recording.flush()?;
        Ok(recording)
    }

    /// Samples at this interval until an error occurs.
    pub async fn go_on(
        &mut self,
        collector: &mut Collector,
        every: Duration,
    ) -> Result<Infallible, RecordingError> {
        let mut ticks = interval(every);
        // A late sample is not followed by a burst of others, which would have the same values.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.sample(collector).await?;
        }
    }

    /// Takes one sample.
    pub async fn sample(&mut self, collector: &mut Collector) -> Result<(), RecordingError> {
        let (look, stated) = collector.look().await;
        let now = self.now();
        // Events first: a reader that stops at a sample then knows what led to it.
        for (source, text) in stated {
            self.encoder.event(now, source, &text, &mut self.bytes);
        }
        self.encoder.sample(now, &look, &mut self.bytes);
        self.flush()
    }

    pub fn note(&mut self, source: Source, text: &str) -> Result<(), RecordingError> {
        let now = self.now();
        self.encoder.event(now, source, text, &mut self.bytes);
        self.flush()
    }

    /// Ends the record.
    pub fn end(mut self, status: &str) -> Result<(), RecordingError> {
        let now = self.now();
        self.encoder.end(now, status, &mut self.bytes);
        self.flush()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn flush(&mut self) -> Result<(), RecordingError> {
        // One write for the whole tick: a SIGKILL between two writes would leave half a sample.
        let written = self.file.write_all(&self.bytes);
        // Cleared after a failure too: a full disk must not make the buffer grow.
        self.bytes.clear();
        written.map_err(|error| RecordingError::Write { path: self.path.clone(), error })
    }
}
