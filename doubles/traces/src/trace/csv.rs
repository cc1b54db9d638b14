//! Reader and writer of RAPIDS RMM's allocation log: `Thread,Time,Action,Pointer,Size,Stream`.
//!
//! Reading stops at the first malformed line. Source: `cpp/include/rmm/mr/logging_resource_adaptor.hpp @ rmm
//! 5d50a37`.

use std::fmt::Write;

use plimsoll_pool::Stream;

use super::{Fault, Trace, TraceBuilder, TraceStep};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";
/// Characters of a faulty field that an error shows.
const SHOWN: usize = 40;

/// Error: a line of the log cannot be read. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct CsvError {
    pub line: usize,
    pub fault: CsvFault,
}

/// Fault of a log line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvFault {
    #[error("the first line of the trace is `{found}`, but it must be the header `{HEADER}`")]
    Header { found: String },
    #[error("the line has {found} fields, but {HEADER} are expected; is the file cut off?")]
    Fields { found: usize },
    #[error("`{found}` is not an action; the actions are allocate, free and allocate failure")]
    Action { found: String },
    #[error("`{found}` is not a pointer; write it as 0x7f00")]
    Pointer { found: String },
    #[error("`{found}` is not a size; write a number of bytes")]
    Size { found: String },
    #[error("`{found}` is not a stream; write it as 0x0")]
    Stream { found: String },
    #[error("{0}")]
    Step(Fault),
}

impl Trace {
    /// Reads RAPIDS RMM's log.
    pub fn from_csv(text: &[u8]) -> Result<Self, CsvError> {
        let mut builder = TraceBuilder::default();
        for (index, line) in lines(text).enumerate() {
            let read = match index {
                0 => header(line),
                _ => step(line, &mut builder),
            };
            read.map_err(|fault| CsvError { line: index + 1, fault })?;
        }
        Ok(builder.finish())
    }
}

/// The lines without their ends. An empty rest after the last line end is not a line, but an empty file has
/// one line.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Only one newline: an empty line in the middle of a file is damage and must be reported.
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn header(line: &[u8]) -> Result<(), CsvFault> {
    if line == HEADER.as_bytes() {
        return Ok(());
    }
    Err(CsvFault::Header { found: shown(line) })
}

fn step(line: &[u8], builder: &mut TraceBuilder) -> Result<(), CsvFault> {
    // DECISION: the time is ignored, because RMM's clock does not separate calls in the same microsecond.
    // Pointers and streams are hexadecimal.
    let [_thread, _time, action, pointer, size, stream] = fields(line)?;
    let size = || decimal(size).ok_or_else(|| CsvFault::Size { found: shown(size) });
    let pointer = || hexadecimal(pointer).ok_or_else(|| CsvFault::Pointer { found: shown(pointer) });
    let stream = || hexadecimal(stream).map(Stream).ok_or_else(|| CsvFault::Stream { found: shown(stream) });
    match action {
        b"allocate" => builder.allocate(pointer()?, size()?, stream()?),
        b"free" => builder.free(pointer()?, Some(size()?), stream()?),
        b"allocate failure" | b"allocate_failure" => {
            size()?;
            builder.refuse();
            Ok(())
        }
        other => return Err(CsvFault::Action { found: shown(other) }),
    }
    .map_err(CsvFault::Step)
}

fn fields(line: &[u8]) -> Result<[&[u8]; 6], CsvFault> {
    let mut fields = [&[][..]; 6];
    let mut found = 0;
    for field in line.split(|&byte| byte == b',') {
        // Further fields are counted and not stored, so that the error can name their number.
        if let Some(place) = fields.get_mut(found) {
            *place = field.trim_ascii();
        }
        found += 1;
    }
    match found {
        6 => Ok(fields),
        _ => Err(CsvFault::Fields { found }),
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// `0x7f00`, `7f00`, and the `(nil)` that printf writes for a null pointer.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text == b"(nil)" {
        return Some(0);
    }
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn shown(text: &[u8]) -> String {
    // The file is foreign: what an error shows of it is bounded and escaped.
    let cut = text.get(..SHOWN).unwrap_or(text);
    let text = String::from_utf8_lossy(cut).escape_debug().to_string();
    if cut.len() < SHOWN { text } else { text + "…" }
}

/// The trace as RAPIDS RMM's log, with the step's number for the time and the block's number for the pointer.
pub fn csv(trace: &Trace) -> String {
    let mut text = String::from(HEADER);
    text.push('\n');
    let mut sizes = vec![0; usize::try_from(trace.blocks()).unwrap_or_default()];
    for (time, step) in trace.steps().iter().enumerate() {
        let (action, block, stream) = match *step {
            TraceStep::Allocate { block, size, stream } => {
                if let Some(place) = usize::try_from(block).ok().and_then(|at| sizes.get_mut(at)) {
                    *place = size;
                }
                ("allocate", block, stream)
            }
            TraceStep::Free { block, stream } => ("free", block, stream),
        };
        let size = usize::try_from(block).ok().and_then(|at| sizes.get(at)).copied();
        // Writing to a string cannot fail. Numbers from 1: a null pointer is no block.
        let _ = writeln!(
            text,
            "1,{time},{action},{:#x},{},{:#x}",
            u64::from(block) + 1,
            size.unwrap_or_default(),
            stream.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Trace, CsvError> {
        Trace::from_csv(format!("{HEADER}\n{lines}").as_bytes())
    }

    #[test]
    fn rmms_own_lines_are_read() {
        let trace = read(concat!(
            "1,10:22:33.123456,allocate,0x7f0000000000,1024,0x0\r\n",
            "2,10:22:33.123456,allocate failure,(nil),99999,0x2\n",
            "1,10:22:33.123457,allocate_failure,0x0,99999,0x0\n",
            "1,10:22:33.123458,free,0x7f0000000000,1024,0x2\n",
        ))
        .unwrap();
        assert_eq!((trace.steps().len(), trace.peak_live(), trace.refused()), (2, 1024, 2));
        assert_eq!(trace.steps()[1], TraceStep::Free { block: 0, stream: Stream(2) });
    }

    #[test]
    fn every_fault_names_its_line_and_the_remedy() {
        for (lines, stated) in [
            ("1,0,allocate,0x1,512", "line 2: the line has 5 fields, but"),
            ("1,0,allocate,0x1,512,0x0\n\n", "line 3: the line has 1 fields, but"),
            ("1,0,grow,0x1,512,0x0", "line 2: `grow` is not an action; the actions are allocate, free"),
            ("1,0,allocate,zz,512,0x0", "line 2: `zz` is not a pointer; write it as 0x7f00"),
            ("1,0,allocate,0x1,-5,0x0", "line 2: `-5` is not a size; write a number of bytes"),
            ("1,0,allocate,0x1,5,?", "line 2: `?` is not a stream; write it as 0x0"),
            ("1,0,free,0x1,5,0x0", "line 2: the block is freed but was never allocated; a trace must start"),
            ("1,0,allocate,0x1,18446744073709551615,0x0", "line 2: the block is larger than"),
        ] {
            let error = read(lines).unwrap_err().to_string();
            assert!(error.starts_with(stated), "{error}");
        }
        let long = "x".repeat(100_000);
        let error = Trace::from_csv(long.as_bytes()).unwrap_err().to_string();
        assert!(
            error.len() < 200 && error.starts_with("line 1: the first line of the trace is `xxx"),
            "{error}"
        );
        assert!(Trace::from_csv(b"").is_err());
    }

    #[test]
    fn csv_traces_round_trip() {
        let text =
            "1,0,allocate,0x1,512,0x0\n1,1,allocate,0x2,7,0x3\n1,2,free,0x1,512,0x0\n1,3,free,0x2,7,0x3\n";
        let trace = Trace::from_csv(format!("{HEADER}\n{text}").as_bytes()).unwrap();
        assert_eq!(csv(&trace), format!("{HEADER}\n{text}"));
        assert_eq!(Trace::from_csv(csv(&trace).as_bytes()), Ok(trace));
    }
}
