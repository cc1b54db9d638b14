//! Reads the log for `plimsoll doctor` from a file or a pipe, once, in blocks, with bounded memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_cards::Sysroot;
use plimsoll_doctor::{LineSource, LogReader, diagnose};

use super::several::LogAlone;
use super::{Findings, machine};
use crate::report::ErrorReport;

/// Of several logs the diagnosis of each alone, without those that were a pipe.
pub(super) fn each(paths: &[PathBuf]) -> Result<Vec<LogAlone>, ErrorReport> {
    // A pipe was read to its end.
    let files = paths.iter().filter(|path| path.is_file() && paths.len() > 1);
    let read = files.map(|path| {
        let mut reader = LogReader::new();
        reader.file(&path.to_string_lossy());
        feed_file(&mut reader, path)?;
        Ok(LogAlone { path: path.clone(), diagnosis: diagnose(&reader.finish()) })
    });
    read.collect()
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
        feed_file(&mut reader, path)?;
    }
    Ok(Findings { reader, seen, cards: Vec::new(), status: None })
}

fn feed_file(reader: &mut LogReader, path: &Path) -> Result<(), ErrorReport> {
    let fail = |error| ErrorReport::input(ErrorReport::of_file("cannot read the log", path)(error));
    // `-` cannot be opened by name; `/dev/stdin` fails where stdin is a socket, as under systemd.
    if path == Path::new("-") {
        feed(reader, LineSource::Log, io::stdin().lock()).map_err(fail)
    } else {
        feed(reader, LineSource::Log, File::open(path).map_err(fail)?).map_err(fail)
    }
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
