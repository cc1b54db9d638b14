//! Log input of `plimsoll doctor`, from a file or a pipe, read once in blocks with bounded memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_doctor::{Diagnosis, LineSource, LogReader, diagnose};
use plimsoll_probe::sysroot::Sysroot;
use serde_json::{Value, json};

use super::{Findings, machine};
use crate::report::ErrorReport;

/// A log that shows another cause alone than together with the others.
pub(super) struct LogAlone {
    path: PathBuf,
    diagnosis: Diagnosis,
}

impl LogAlone {
    pub(super) fn in_words(&self) -> String {
        let (path, reason) = (self.path.display(), &self.diagnosis.reason.text);
        format!("{path} alone shows {reason}\nhint: plimsoll doctor {path}\n")
    }

    pub(super) fn as_json(&self) -> Value {
        let Diagnosis { cause, confidence, .. } = &self.diagnosis;
        json!({ "log": self.path, "cause": cause, "confidence": confidence })
    }
}

/// Confidence from which a log alone contradicts the verdict of all.
const SURE: f64 = 0.6;

/// Of several logs those that tell of another failure: logs of different programs have no common cause.
pub(super) fn alone(paths: &[PathBuf], of_all: &Diagnosis) -> Result<Vec<LogAlone>, ErrorReport> {
    // A pipe was read to its end.
    let files = paths.iter().filter(|path| path.is_file() && paths.len() > 1);
    let read = files.map(|path| {
        let diagnosis = diagnose(&self::read(std::slice::from_ref(path), None)?.reader.finish());
        Ok(LogAlone { path: path.clone(), diagnosis })
    });
    let differs = |log: &LogAlone| log.diagnosis.confidence >= SURE && log.diagnosis.cause != of_all.cause;
    let all: Result<Vec<LogAlone>, ErrorReport> = read.collect();
    Ok(all?.into_iter().filter(differs).collect())
}

// Logs of several GiB occur; 1 MiB keeps both the system calls and the memory small.
const BLOCK: usize = 1 << 20;

/// Reads logs in their order; with a captured tree, that machine's memory and logs are evidence too.
pub(super) fn read(paths: &[PathBuf], sysroot: Option<&Path>) -> Result<Findings, ErrorReport> {
    let mut reader = LogReader::new();
    let mut seen = Vec::new();
    if let Some(folder) = sysroot {
        let found = machine::look(&Sysroot::captured(folder).map_err(ErrorReport::input)?);
        reader = found.reader;
        seen = found.seen;
    }
    for path in paths {
        // The number of a line is enough where there is one log.
        if paths.len() > 1 {
            reader.file(&path.to_string_lossy());
        }
        let fail = |error| ErrorReport::input(ErrorReport::of_file("cannot read the log", path)(error));
        // `-` cannot be opened by name; `/dev/stdin` fails where stdin is a socket, as under systemd.
        if path == Path::new("-") {
            feed(&mut reader, LineSource::Log, io::stdin().lock()).map_err(fail)?;
        } else {
            feed(&mut reader, LineSource::Log, File::open(path).map_err(fail)?).map_err(fail)?;
        }
    }
    Ok(Findings { reader, seen, status: None })
}

/// Feeds the reader until the end of the stream.
pub(super) fn feed(reader: &mut LogReader, source: LineSource, mut from: impl Read) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match from.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(length) => reader.feed(source, &block[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
