//! Reader of allocation traces written by guard, the preloaded library (`plimsoll_wire::trace`).

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_pool::Stream;
use plimsoll_wire::trace::{MAGIC, TraceHeader, TraceKind, TraceRecord, VERSION};

use super::{Fault, Trace, TraceBuilder};

/// Choice of the allocator whose requests are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedRequest {
    /// In the process's own order.
    pub card: u8,
    /// 0 is the driver, n the n-th pool that guard serves.
    pub pool: u8,
}

impl fmt::Display for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pool {
            0 => write!(f, "the driver of card {}", self.card),
            pool => write!(f, "pool {pool} of card {}", self.card),
        }
    }
}

/// Error: a trace cannot be read; with the offset of the fault in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {fault}")]
pub struct TraceRecordError {
    pub offset: usize,
    pub fault: RecordFault,
}

/// Fault of a record or of the trace's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    #[error("this is not a trace; record one with plimsoll run --trace FILE")]
    Header,
    #[error(
        "the trace has format version {found}, but this version of plimsoll reads {VERSION}; use the version that recorded it"
    )]
    Version { found: u32 },
    #[error(
        "each record of the trace should have {} bytes, but the header states {found}; the header is damaged",
        TraceRecord::SIZE
    )]
    RecordSize { found: u32 },
    #[error("event type {found} does not exist; the trace is damaged")]
    Kind { found: u8 },
    #[error("{0}")]
    Step(Fault),
    #[error("the trace has no request to {0}; omit --card and --pool, or give other values")]
    NotRequested(RecordedRequest),
}

impl Trace {
    /// True if a file begins with the magic number of guard's traces.
    pub fn is_record(file: &[u8]) -> bool {
        file.starts_with(&MAGIC)
    }

    /// Reads the requests to one allocator; without a choice those to the one with the most.
    pub fn from_record(file: &[u8], requested: Option<RecordedRequest>) -> Result<Self, TraceRecordError> {
        // DECISION: a file holds the requests to all allocators of a process; a replay uses the chosen one,
        // or the one with the most allocations. An incomplete last record is dropped; any other fault ends
        // the reading.
        header(file).map_err(|fault| TraceRecordError { offset: 0, fault })?;
        let requested = match requested {
            Some(requested) => requested,
            None => busiest(file),
        };
        let mut builder = TraceBuilder::default();
        let mut heard = false;
        for (offset, record) in records(file) {
            let of = RecordedRequest { card: record.card, pool: record.pool };
            let at = |fault| TraceRecordError { offset, fault };
            let kind = TraceKind::of(record.kind).ok_or(at(RecordFault::Kind { found: record.kind }))?;
            if of == requested {
                // Frees alone do not count: a source without allocations has no trace to replay.
                heard |= kind == TraceKind::Alloc;
                step(kind, &record, &mut builder).map_err(|fault| at(RecordFault::Step(fault)))?;
            }
        }
        if !heard && records(file).next().is_some() {
            return Err(TraceRecordError {
                offset: TraceHeader::SIZE,
                fault: RecordFault::NotRequested(requested),
            });
        }
        Ok(builder.finish())
    }
}

fn header(file: &[u8]) -> Result<(), RecordFault> {
    let header = file.first_chunk().map(TraceHeader::from_bytes).ok_or(RecordFault::Header)?;
    if header.magic != MAGIC {
        return Err(RecordFault::Header);
    }
    if header.version != VERSION {
        return Err(RecordFault::Version { found: header.version });
    }
    match usize::try_from(header.record) {
        Ok(TraceRecord::SIZE) => Ok(()),
        _ => Err(RecordFault::RecordSize { found: header.record }),
    }
}

/// The whole records of a file and where they begin.
fn records(file: &[u8]) -> impl Iterator<Item = (usize, TraceRecord)> {
    // A process that was killed leaves a part of a record, which is no fault.
    let (records, _torn) = file.get(TraceHeader::SIZE..).unwrap_or_default().as_chunks();
    (TraceHeader::SIZE..).step_by(TraceRecord::SIZE).zip(records.iter().map(TraceRecord::from_bytes))
}

fn busiest(file: &[u8]) -> RecordedRequest {
    let mut allocations: BTreeMap<RecordedRequest, u64> = BTreeMap::new();
    for (_, record) in records(file).filter(|(_, record)| record.kind == TraceKind::Alloc.code()) {
        let of = RecordedRequest { card: record.card, pool: record.pool };
        *allocations.entry(of).or_default() += 1;
    }
    let most = allocations.into_iter().max_by_key(|&(_, count)| count);
    most.map_or(RecordedRequest { card: 0, pool: 0 }, |(requested, _)| requested)
}

fn step(kind: TraceKind, record: &TraceRecord, builder: &mut TraceBuilder) -> Result<(), Fault> {
    let stream = Stream(u64::from(record.stream));
    match kind {
        TraceKind::Alloc => builder.allocate(record.id, record.size, stream),
        // Without the size: a pool frees what it held for the block, which may be more than was asked for.
        TraceKind::Free => builder.free(record.id, None, stream),
        TraceKind::Oom => {
            builder.refuse();
            Ok(())
        }
        TraceKind::Map
        | TraceKind::Unmap
        | TraceKind::CaptureBegin
        | TraceKind::CaptureEnd
        | TraceKind::GraphLaunch
        | TraceKind::Sync
        | TraceKind::Spill
        | TraceKind::Pin
        | TraceKind::Unpin => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: TraceKind, id: u64, size: u64, pool: u8) -> TraceRecord {
        TraceRecord { time: 0, id, size, kind: kind.code(), card: 0, pool, detail: 0, stream: 0, thread: 0 }
    }

    fn file(records: &[TraceRecord]) -> Vec<u8> {
        let mut file = TraceHeader::new(1, 1, 0, 0).to_bytes().to_vec();
        for record in records {
            file.extend(record.to_bytes());
        }
        file
    }

    fn recorded() -> Vec<u8> {
        file(&[
            record(TraceKind::Alloc, 1, 1 << 20, 0),
            record(TraceKind::Alloc, 2, 512, 1),
            record(TraceKind::CaptureBegin, 9, 0, 0),
            record(TraceKind::Free, 2, 768, 1),
            record(TraceKind::Alloc, 3, 1024, 1),
            record(TraceKind::Oom, 0, 4096, 1),
        ])
    }

    #[test]
    fn the_source_with_the_most_allocations_is_read() {
        let trace = Trace::from_record(&recorded(), None).unwrap();
        assert_eq!((trace.steps().len(), trace.peak_live(), trace.refused()), (3, 1024, 1));
        let driver = Some(RecordedRequest { card: 0, pool: 0 });
        let trace = Trace::from_record(&recorded(), driver).unwrap();
        assert_eq!((trace.steps().len(), trace.peak_live()), (1, 1 << 20));
    }

    #[test]
    fn a_torn_last_record_is_cut_off_and_an_empty_trace_is_one() {
        let whole = recorded();
        for torn in 1..TraceRecord::SIZE {
            let trace = Trace::from_record(&whole[..whole.len() - torn], None).unwrap();
            assert_eq!(trace.refused(), 0);
        }
        assert_eq!(Trace::from_record(&file(&[]), None), Ok(Trace::default()));
    }

    #[test]
    fn every_fault_names_its_offset_and_the_remedy() {
        let damaged = |at: usize, byte: u8| {
            let mut file = recorded();
            file[at] = byte;
            Trace::from_record(&file, None).unwrap_err().to_string()
        };
        for (stated, error) in [
            ("offset 0: this is not a trace; record one", damaged(0, b'X')),
            ("offset 0: the trace has format version 9, but", damaged(8, 9)),
            (
                "offset 0: each record of the trace should have 32 bytes, but the header states 31",
                damaged(12, 31),
            ),
            ("offset 128: event type 77 does not exist;", damaged(128 + 24, 77)),
            ("offset 160: the block is freed but was never allocated", damaged(160 + 8, 77)),
        ] {
            assert!(error.starts_with(stated), "{error}");
        }
        let error = Trace::from_record(&recorded(), Some(RecordedRequest { card: 3, pool: 1 })).unwrap_err();
        assert_eq!(
            error.to_string(),
            "offset 64: the trace has no request to pool 1 of card 3; omit --card and --pool, or give other values"
        );
    }
}
