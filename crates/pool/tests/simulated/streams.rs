//! Simulates the course of time on a card: streams, events, captures and graphs.
//!
//! Work on a stream starts when the previous work has ended, and ends after its duration. An event is the
//! time at which the work before it ends.

use std::collections::BTreeMap;

use plimsoll_pool::{CapturedGraph, DeviceEvent, Stream};

/// Addresses `start..end`.
type AddressRange = (u64, u64);

#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    now: u64,
    busy: BTreeMap<Stream, u64>,
    uses: Vec<WorkInFlight>,
    events: BTreeMap<DeviceEvent, u64>,
    next_event: u64,
    captures: BTreeMap<Stream, (CapturedGraph, Vec<AddressRange>)>,
    graphs: BTreeMap<CapturedGraph, Vec<AddressRange>>,
}

/// Submitted work that is not finished.
#[derive(Clone, Copy, Debug)]
struct WorkInFlight {
    range: AddressRange,
    stream: Stream,
    until: u64,
}

impl WorkInFlight {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.range.0 < end && start < self.range.1
    }
}

impl Streams {
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn advance(&mut self, microseconds: u64) {
        self.now = self.now.saturating_add(microseconds);
    }

    pub(super) fn drain(&mut self) {
        let last = self.busy.values().max().copied().unwrap_or_default();
        self.now = self.now.max(last);
    }

    /// Start of work that is submitted now.
    fn start(&self, stream: Stream) -> u64 {
        self.busy.get(&stream).copied().unwrap_or_default().max(self.now)
    }

    pub(super) fn delay(&mut self, stream: Stream, until: u64) {
        let start = self.start(stream).max(until);
        // The stream is busy with waiting: work behind it starts no earlier.
        self.busy.insert(stream, start);
    }

    pub(super) fn submit(&mut self, stream: Stream, microseconds: u64, ranges: &[AddressRange]) {
        // In order: work starts when the stream is free, and never in the past.
        let until = self.start(stream).saturating_add(microseconds);
        self.busy.insert(stream, until);
        let now = self.now;
        // Finished work can conflict with nothing; without this the list would grow with the simulation.
        self.uses.retain(|used| used.until > now);
        let uses = ranges.iter().map(|&range| WorkInFlight { range, stream, until });
        self.uses.extend(uses);
    }

    /// Another stream with work that still uses the range when work on `stream` would start.
    pub(super) fn conflict(&self, stream: Stream, start: u64, end: u64) -> Option<Stream> {
        let begins = self.start(stream);
        let other =
            |used: &&WorkInFlight| used.stream != stream && used.until > begins && used.overlaps(start, end);
        self.uses.iter().find(other).map(|used| used.stream)
    }

    /// A stream with work that uses the range now.
    pub(super) fn in_flight(&self, start: u64, end: u64) -> Option<Stream> {
        let using = |used: &&WorkInFlight| used.until > self.now && used.overlaps(start, end);
        self.uses.iter().find(using).map(|used| used.stream)
    }

    pub(super) fn record(&mut self, stream: Stream) -> DeviceEvent {
        let event = DeviceEvent(self.next_event);
        self.next_event += 1;
        let busy = self.busy.get(&stream).copied().unwrap_or_default();
        // The end of the last work is fixed now; later work of the stream does not move the event.
        self.events.insert(event, busy);
        event
    }

    pub(super) fn end_of(&self, event: DeviceEvent) -> Option<u64> {
        self.events.get(&event).copied()
    }

    pub(super) fn forget(&mut self, event: DeviceEvent) -> bool {
        self.events.remove(&event).is_some()
    }

    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    pub(super) fn any_capture(&self) -> bool {
        !self.captures.is_empty()
    }

    pub(super) fn capturing(&self, stream: Stream) -> bool {
        self.captures.contains_key(&stream)
    }

    pub(super) fn begin_capture(&mut self, stream: Stream, graph: CapturedGraph) {
        self.captures.insert(stream, (graph, Vec::new()));
    }

    /// Keeps what the work would use, if the stream is being captured.
    pub(super) fn capture_work(&mut self, stream: Stream, ranges: &[AddressRange]) -> bool {
        let capture = self.captures.get_mut(&stream);
        capture.is_some_and(|(_, seen)| {
            seen.extend_from_slice(ranges);
            true
        })
    }

    pub(super) fn end_capture(&mut self, stream: Stream) {
        if let Some((graph, seen)) = self.captures.remove(&stream) {
            self.graphs.insert(graph, seen);
        }
    }

    pub(super) fn graph(&self, graph: CapturedGraph) -> Option<Vec<AddressRange>> {
        self.graphs.get(&graph).cloned()
    }

    pub(super) fn destroy_graph(&mut self, graph: CapturedGraph) {
        self.graphs.remove(&graph);
    }
}
