//! Simulates time on the fake GPU: when enqueued work is done, and the memory that it uses until then.
//!
//! An operation takes effect when it is enqueued. It completes `delay=` later, after the previous work of its
//! stream and of the legacy stream. The clock counts microseconds or, with `clock=queries`, the queries for
//! completion, so that a test can determine by calls alone when work is done.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::{Context, Graph, Stream};
use crate::call::{DefaultStream, default_stream};
use crate::code::{Code, INVALID_HANDLE, Outcome, STREAM_CAPTURE_IMPLICIT};
use crate::driver::{Driver, driver};
use crate::log::violation;
use crate::operation::Operation;
use crate::settings::settings;

#[derive(Debug)]
pub(crate) struct Work {
    start: Instant,
    /// Questions so far.
    queries: u64,
    pub(crate) streams: BTreeMap<Stream, StreamState>,
    pending: Vec<Pending>,
}

#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) context: Context,
    /// It waits for the legacy stream, which waits for it.
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    /// When all of its work is done.
    pub(crate) finish: u64,
    /// The graph that its work goes to instead.
    pub(crate) capture: Option<Graph>,
}

/// Work that is not done, as far as it matters: what it touches.
#[derive(Debug)]
struct Pending {
    stream: Stream,
    context: Context,
    finish: u64,
    touches: Vec<Touch>,
}

/// A range of addresses, and whether it is written.
pub(crate) type Touch = (Range<u64>, bool);

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whose work to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Stream(Stream),
    Context(Context),
    /// Until this time.
    Time(u64),
    Everything,
}

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: Stream = Stream(1);
const PER_THREAD: Stream = Stream(2);

impl Work {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), queries: 0, streams: BTreeMap::new(), pending: Vec::new() }
    }

    pub(crate) fn now(&self) -> u64 {
        if settings().by_queries {
            self.queries
        } else {
            u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
        }
    }

    /// A question about completion.
    pub(crate) fn ask(&mut self) -> u64 {
        self.queries += 1;
        self.now()
    }

    /// The first stream with unfinished work on a range.
    pub(crate) fn using(&self, range: &Range<u64>) -> Option<Stream> {
        self.unfinished(range).map(|work| work.stream).next()
    }

    /// A stream whose work on a range will not be done when `stream` gets that far.
    pub(crate) fn using_after(&self, range: &Range<u64>, stream: Stream) -> Option<Stream> {
        let reached = self.streams.get(&stream).map_or(0, |state| state.finish);
        self.unfinished(range)
            .filter(|work| work.stream != stream && work.finish > reached)
            .map(|work| work.stream)
            .next()
    }

    fn unfinished<'a>(&'a self, range: &'a Range<u64>) -> impl Iterator<Item = &'a Pending> {
        let now = self.now();
        let touches = |work: &Pending| work.touches.iter().any(|(touched, _)| overlap(touched, range));
        self.pending.iter().filter(move |work| work.finish > now && touches(work))
    }

    /// A stream whose work is not done at `start`, and conflicts with a touch.
    fn racing(&self, (range, write): &Touch, start: u64) -> Option<Stream> {
        let conflicts = |(touched, written): &Touch| (*write || *written) && overlap(touched, range);
        let racing = |work: &&Pending| work.finish > start && work.touches.iter().any(conflicts);
        self.pending.iter().find(racing).map(|work| work.stream)
    }

    /// Holds a stream back.
    pub(crate) fn wait_until(&mut self, stream: Stream, time: u64) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.finish = state.finish.max(time);
        }
    }

    fn finish_of(&self, scope: Scope) -> u64 {
        let of = |wanted: &dyn Fn(&Stream, &StreamState) -> bool| {
            let wanted = self.streams.iter().filter(|(stream, state)| wanted(stream, state));
            wanted.map(|(_, state)| state.finish).max().unwrap_or(0)
        };
        match scope {
            Scope::Stream(stream) => of(&|other, _| *other == stream),
            Scope::Context(context) => of(&|_, state| state.context == context),
            Scope::Time(time) => time,
            Scope::Everything => of(&|_, _| true),
        }
    }
}

/// Waits, without the lock, until the work is done.
pub(crate) fn synchronise(scope: Scope) -> Outcome {
    loop {
        let left = {
            let mut driver = driver()?;
            let work = &mut driver.work;
            let (now, finish) = (work.now(), work.finish_of(scope));
            if settings().by_queries {
                work.queries = finish.max(now);
            }
            match finish.saturating_sub(work.now()) {
                0 => return driver.trim_pools(),
                left => left,
            }
        };
        thread::sleep(Duration::from_micros(left));
    }
}

impl Driver {
    pub(crate) fn open_stream(&mut self, context: Context, blocking: bool) -> Stream {
        let stream = Stream(self.new_handle());
        let state = StreamState { context, blocking, priority: 0, finish: 0, capture: None };
        self.work.streams.insert(stream, state);
        stream
    }

    pub(crate) fn close_streams_of(&mut self, context: Context) {
        self.work.streams.retain(|_, state| state.context != context);
        self.work.pending.retain(|work| work.context != context);
    }

    /// The stream that a handle means in this call.
    pub(crate) fn stream(&self, handle: Stream) -> Result<Stream, Code> {
        let handle = match (handle, default_stream()) {
            (Stream(0), DefaultStream::Legacy) => LEGACY,
            (Stream(0), DefaultStream::PerThread) => PER_THREAD,
            _ => handle,
        };
        if handle != LEGACY && handle != PER_THREAD {
            let known = self.work.streams.contains_key(&handle);
            return if known { Ok(handle) } else { Err(INVALID_HANDLE) };
        }
        let opened = &self.contexts.open[&self.current()?];
        Ok(if handle == LEGACY { opened.legacy } else { opened.per_thread })
    }

    pub(crate) fn is_legacy(&self, stream: Stream) -> bool {
        let context = self.work.streams[&stream].context;
        self.contexts.open.get(&context).is_some_and(|opened| opened.legacy == stream)
    }

    /// The streams that an operation in `stream` comes after, and that later ones in them come after.
    fn tied_to(&self, stream: Stream) -> Vec<Stream> {
        let own = &self.work.streams[&stream];
        let legacy = self.is_legacy(stream);
        let tied = self.work.streams.iter().filter(|(other, state)| {
            let through_legacy = legacy && state.blocking || own.blocking && self.is_legacy(**other);
            **other == stream || state.context == own.context && through_legacy
        });
        tied.map(|(other, _)| *other).collect()
    }

    /// Enqueues an operation, or captures it.
    pub(crate) fn submit(&mut self, handle: Stream, operation: Operation) -> Outcome {
        let stream = self.stream(handle)?;
        let card = self.contexts.open[&self.current()?].card;
        self.check(&operation, card)?;
        if let Some(graph) = self.work.streams[&stream].capture {
            return self.capture_operation(graph, operation);
        }
        if self.is_legacy(stream) && self.invalidate_blocking_captures(stream) {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        self.execute(&operation)?;
        self.enqueue(stream, operation.reach(), operation.delay());
        Ok(())
    }

    /// Adds work that ends so much after everything before it.
    pub(crate) fn enqueue(&mut self, stream: Stream, touches: Vec<Touch>, delay: u64) {
        let now = self.work.now();
        self.work.pending.retain(|work| work.finish > now);
        let before = self.tied_to(stream).iter().map(|tied| self.work.streams[tied].finish).max();
        let start = before.unwrap_or(0).max(now);
        self.expect_no_race(stream, &touches, start);
        let Some(state) = self.work.streams.get_mut(&stream) else {
            return;
        };
        let (context, finish) = (state.context, start + delay);
        state.finish = finish;
        if finish > now {
            self.work.pending.push(Pending { stream, context, finish, touches });
        }
    }

    /// Notes work that begins while conflicting work of another stream is not done.
    fn expect_no_race(&self, stream: Stream, touches: &[Touch], start: u64) {
        for touch in touches {
            if let Some(other) = self.work.racing(touch, start) {
                let (range, _) = touch;
                violation(
                    "race",
                    format_args!(
                        "stream {:#x} works on {:#x}..{:#x} while stream {:#x} still does",
                        stream.0, range.start, range.end, other.0
                    ),
                );
            }
        }
    }
}
