//! Writes a process's trace file, with one record for each memory event, if `PLIMSOLL_GUARD_TRACE` is set.

use core::ffi::{CStr, c_int};
use core::fmt::Write;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU16, AtomicU64};

use plimsoll_wire::env;
use plimsoll_wire::trace::{TraceHeader, TraceRecord};

pub(crate) use plimsoll_wire::trace::TraceKind;

use crate::descriptor::FileIdentity;
use crate::say::say;
use crate::state::address_map::AddressMap;
use crate::state::{CardIndex, page};
use crate::text::Text;
use crate::{clock, process};

/// Fields of a trace record, without kind and time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TraceEvent {
    pub(crate) card: u8,
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) pool: u8,
    pub(crate) detail: u8,
    /// The handle of the stream; the trace numbers them.
    pub(crate) stream: usize,
}

impl TraceEvent {
    pub(crate) fn on(card: CardIndex) -> Self {
        Self { card: card.number(), ..Self::default() }
    }

    /// The event of a block or a graph by its number, with the bytes that are concerned.
    pub(crate) fn of(self, id: u64, size: u64) -> Self {
        Self { id, size, ..self }
    }

    #[inline]
    pub(crate) fn emit(self, kind: TraceKind) {
        // DECISION: each record is one `write(2)` to a file opened for append. So a killed process loses no
        // records, and no thread waits for a lock. Records of two threads may be out of order.
        let file = FILE.load(Acquire);
        if file != CLOSED {
            record(file, kind, self);
        }
    }
}

const CLOSED: i32 = -1;

static FILE: AtomicI32 = AtomicI32::new(CLOSED);
static IDENTITY: FileIdentity = FileIdentity::new();
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Begins the trace, if one is configured.
pub(crate) fn open() {
    let Some(path) = process::variable(env::GUARD_TRACE).and_then(|path| path.to_str().ok()) else {
        return;
    };
    let process = process::number();
    let mut name = Text::new();
    let named = write!(name, "{path}.{process}").is_ok();
    let file = name.as_c().filter(|_| named).map_or(CLOSED, create);
    let started = clock::now();
    let header = TraceHeader::new(process, page().count.load(Relaxed), started, clock::unix());
    if file < 0 || !put(file, &header.to_bytes()) {
        say!("cannot write the trace {path}.{process}; this process is not traced");
        return;
    }
    IDENTITY.remember(file);
    STARTED.store(started, Relaxed);
    FILE.store(file, Release);
}

/// Creates the file anew; [`CLOSED`] on failure.
///
/// The name is predictable and may lie in a folder that others can write to. O_EXCL makes sure that the file
/// is ours alone and no link. The file of an earlier process with this number is removed first, and never
/// written into.
fn create(name: &CStr) -> c_int {
    const OWNER_ONLY: libc::mode_t = 0o600;
    let flags =
        libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: a C string; unlink removes a link, not the file that it leads to. O_CREAT takes the mode.
    unsafe {
        libc::unlink(name.as_ptr());
        libc::open(name.as_ptr(), flags, OWNER_ONLY)
    }
}

/// True while a trace is written.
pub(crate) fn on() -> bool {
    FILE.load(Relaxed) != CLOSED
}

#[cold]
fn record(file: i32, kind: TraceKind, event: TraceEvent) {
    let record = TraceRecord {
        time: clock::now().saturating_sub(STARTED.load(Relaxed)),
        id: event.id,
        size: event.size,
        kind: kind.code(),
        card: event.card,
        pool: event.pool,
        detail: event.detail,
        stream: stream(event.stream),
        thread: thread(),
    };
    // The number may mean another file by now, which is not ours to write to (see `descriptor`).
    let written = IDENTITY.is(file) && put(file, &record.to_bytes());
    if !written && FILE.swap(CLOSED, AcqRel) != CLOSED {
        say!("writing to the trace failed; the trace ends here");
    }
}

fn put(file: i32, bytes: &[u8]) -> bool {
    // SAFETY: the bytes can be read.
    let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written) == Ok(bytes.len())
}

/// A new number for a block or a graph.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Consecutive numbers for handles, in the order of their first use.
#[derive(Debug)]
struct DenseNumbers {
    known: AddressMap<u16>,
    last: AtomicU16,
}

impl DenseNumbers {
    const fn new() -> Self {
        Self { known: AddressMap::new(), last: AtomicU16::new(0) }
    }

    fn of(&self, key: u64) -> u16 {
        self.known.find(key).unwrap_or_else(|| {
            let number = self.last.fetch_add(1, Relaxed).saturating_add(1);
            self.known.insert(key, number);
            number
        })
    }
}

fn stream(handle: usize) -> u16 {
    /// CU_STREAM_LEGACY is the default stream's other name.
    const LEGACY: usize = 1;
    static STREAMS: DenseNumbers = DenseNumbers::new();
    match handle {
        0 | LEGACY => 0,
        handle => STREAMS.of(u64::try_from(handle).unwrap_or(0)),
    }
}

fn thread() -> u16 {
    static THREADS: DenseNumbers = DenseNumbers::new();
    THREADS.of(u64::try_from(process::thread()).unwrap_or(0)).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbered_as_they_come_and_keep_their_numbers() {
        assert_eq!((stream(0), stream(1)), (0, 0));
        let (first, second) = (stream(0x7000), stream(0x8000));
        assert_ne!(first, second);
        assert_eq!((stream(0x7000), stream(0x8000)), (first, second));
    }
}
