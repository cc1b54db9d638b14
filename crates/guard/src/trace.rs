//! The trace: what the program asks of its cards' memory, in a file of its own for each process; nothing while none is asked for.
//!
//! One record is one `write(2)` to a file opened for append: a microsecond, no buffer that is lost when the process is killed,
//! no lock that a slow disk would make every thread wait for. Two threads may write in another order than their times say;
//! events of one block never do. The first record that cannot be written ends the trace.

use core::fmt::Write;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU16, AtomicU64};

use plimsoll_wire::env;
use plimsoll_wire::trace::{Header, Record};

pub(crate) use plimsoll_wire::trace::Kind;

use crate::account::blocks::Blocks;
use crate::account::{CardIndex, page};
use crate::say::say;
use crate::text::Text;
use crate::{arm, clock};

/// What a record says beside its kind and time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    pub(crate) card: u8,
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) pool: u8,
    pub(crate) detail: u8,
    /// The handle of the stream; the trace numbers them.
    pub(crate) stream: usize,
}

impl Event {
    pub(crate) fn on(card: CardIndex) -> Self {
        Self {
            card: card.number(),
            ..Self::default()
        }
    }
}

const CLOSED: i32 = -1;

static FILE: AtomicI32 = AtomicI32::new(CLOSED);
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Begins the trace, if there is to be one.
pub(crate) fn open() {
    let Some(path) = arm::variable(env::GUARD_TRACE).and_then(|path| path.to_str().ok()) else {
        return;
    };
    let process = u32::try_from(arm::process()).unwrap_or(0);
    let mut name = Text::new();
    let named = write!(name, "{path}.{process}").is_ok();
    let file = name.as_c().filter(|_| named).map_or(CLOSED, |name| {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_CLOEXEC;
        const OWNER_ONLY: libc::mode_t = 0o600;
        // SAFETY: a C string; O_CREAT takes the mode.
        unsafe { libc::open(name.as_ptr(), flags, OWNER_ONLY) }
    });
    let started = clock::now();
    let header = Header::new(process, page().count.load(Relaxed), started, clock::unix());
    if file < 0 || !put(file, &header.to_bytes()) {
        say!("cannot write the trace {path}.{process}; there will be none");
        return;
    }
    STARTED.store(started, Relaxed);
    FILE.store(file, Release);
}

/// Whether a trace is written.
pub(crate) fn on() -> bool {
    FILE.load(Relaxed) != CLOSED
}

#[inline]
pub(crate) fn emit(kind: Kind, event: Event) {
    let file = FILE.load(Acquire);
    if file != CLOSED {
        record(file, kind, event);
    }
}

#[cold]
fn record(file: i32, kind: Kind, event: Event) {
    let record = Record {
        time: clock::now().saturating_sub(STARTED.load(Relaxed)),
        id: event.id,
        size: event.size,
        kind: code(kind),
        card: event.card,
        pool: event.pool,
        detail: event.detail,
        stream: stream(event.stream),
        thread: thread(),
    };
    if !put(file, &record.to_bytes()) && FILE.swap(CLOSED, AcqRel) != CLOSED {
        say!("cannot write to the trace any more; it ends here");
    }
}

#[allow(clippy::as_conversions, reason = "the code that the enum declares")]
const fn code(kind: Kind) -> u8 {
    kind as u8
}

fn put(file: i32, bytes: &[u8]) -> bool {
    // SAFETY: the bytes can be read.
    let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written) == Ok(bytes.len())
}

/// A number for a block or a graph, never used twice.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Things numbered in the order in which they are met.
#[derive(Debug)]
struct Numbers {
    known: Blocks<u16>,
    last: AtomicU16,
}

impl Numbers {
    const fn new() -> Self {
        Self {
            known: Blocks::new(),
            last: AtomicU16::new(0),
        }
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
    static STREAMS: Numbers = Numbers::new();
    match handle {
        0 | LEGACY => 0,
        handle => STREAMS.of(u64::try_from(handle).unwrap_or(0)),
    }
}

fn thread() -> u16 {
    static THREADS: Numbers = Numbers::new();
    // SAFETY: asks for a number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    THREADS.of(u64::try_from(thread).unwrap_or(0)).saturating_sub(1)
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
