//! Tracks the stream captures in progress, and the graphs that contain finished captures.
//!
//! Pools keep the memory of a capture as long as any graph made from the capture exists.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

use plimsoll_nostd::lock::Lock;
use plimsoll_pool::CapturedGraph;

/// Handle of a CUgraph or CUgraphExec; two live ones never have the same address.
pub(crate) type GraphHandle = usize;

// DECISION: each capture has a number. Graphs built node by node need none, because ggml makes all its graphs
// by capture.
#[derive(Debug, Default)]
struct CaptureTable {
    /// Captures under way, by their stream.
    under_way: Vec<(usize, CapturedGraph)>,
    /// Captures that a live handle may make the card replay.
    seen: Vec<(GraphHandle, CapturedGraph)>,
}

impl CaptureTable {
    fn end(&mut self, stream: usize) -> Option<CapturedGraph> {
        let index = self.under_way.iter().position(|(capturing, _)| *capturing == stream)?;
        Some(self.under_way.swap_remove(index).1)
    }

    /// `to` has seen every capture that `from` has.
    fn spread(&mut self, from: GraphHandle, to: GraphHandle) {
        let seen: Vec<CapturedGraph> = self.of(from).collect();
        for graph in seen {
            self.add(to, graph);
        }
    }

    fn add(&mut self, handle: GraphHandle, graph: CapturedGraph) {
        if !self.seen.contains(&(handle, graph)) {
            self.seen.push((handle, graph));
        }
    }

    fn of(&self, handle: GraphHandle) -> impl Iterator<Item = CapturedGraph> {
        let seen = self.seen.iter().filter(move |(of, _)| *of == handle);
        seen.map(|(_, graph)| *graph)
    }

    /// Takes a handle out and returns the captures that no handle has seen any more.
    fn forget(&mut self, handle: GraphHandle) -> Vec<CapturedGraph> {
        let mut gone: Vec<CapturedGraph> = self.of(handle).collect();
        self.seen.retain(|(of, _)| *of != handle);
        gone.retain(|graph| !self.seen.iter().any(|(_, seen)| seen == graph));
        gone
    }
}

static TABLE: Lock<CaptureTable> = Lock::new(CaptureTable { under_way: Vec::new(), seen: Vec::new() });

/// Number of captures in progress, counted separately from the table, so that the check on every path costs
/// one load.
static CAPTURING: AtomicU32 = AtomicU32::new(0);

/// True if any stream of the process is being captured. Then nothing may be waited for or given back.
pub(crate) fn capturing() -> bool {
    CAPTURING.load(Acquire) > 0
}

/// The captures that are under way.
pub(crate) fn under_way() -> Vec<CapturedGraph> {
    TABLE.hold().under_way.iter().map(|(_, graph)| *graph).collect()
}

/// Enters a capture that is about to begin on this stream.
pub(crate) fn begin(stream: usize, graph: CapturedGraph) {
    // The counter first: whoever reads it before the driver begins must hold back already.
    CAPTURING.fetch_add(1, AcqRel);
    TABLE.hold().under_way.push((stream, graph));
}

/// Takes out the capture on this stream, and lets the graph that came of it have seen it.
pub(crate) fn end(stream: usize, created: Option<GraphHandle>) -> Option<CapturedGraph> {
    let mut table = TABLE.hold();
    let graph = table.end(stream)?;
    if let Some(handle) = created {
        table.add(handle, graph);
    }
    Some(graph)
}

/// Counts a capture as over; true if it was the last one.
pub(crate) fn ended() -> bool {
    CAPTURING.fetch_sub(1, AcqRel) == 1
}

/// `to` was made of `from`, or has it as a part.
pub(crate) fn spread(from: GraphHandle, to: GraphHandle) {
    TABLE.hold().spread(from, to);
}

/// Lets `to` have seen what `from` has and nothing else. Returns the captures that are gone by that.
pub(crate) fn replace(from: GraphHandle, to: GraphHandle) -> Vec<CapturedGraph> {
    let mut table = TABLE.hold();
    let new: Vec<CapturedGraph> = table.of(from).collect();
    let mut gone = table.forget(to);
    for graph in &new {
        table.add(to, *graph);
    }
    gone.retain(|graph| !new.contains(graph));
    gone
}

/// Forgets a handle that the driver destroys. Returns the captures that are gone by that.
pub(crate) fn forget(handle: GraphHandle) -> Vec<CapturedGraph> {
    TABLE.hold().forget(handle)
}

/// The capture that a handle came of, as a number for the trace; 0 if it is not known.
pub(crate) fn number(handle: GraphHandle) -> u64 {
    TABLE.hold().of(handle).last().map_or(0, |graph| graph.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: GraphHandle = 0x10;
    const EXEC: GraphHandle = 0x20;

    fn captured(number: u64, handle: GraphHandle) -> CaptureTable {
        let mut table = CaptureTable::default();
        table.under_way.push((7, CapturedGraph(number)));
        let graph = table.end(7).unwrap();
        table.add(handle, graph);
        table
    }

    #[test]
    fn a_capture_lives_as_long_as_anything_that_was_made_of_it() {
        let mut table = captured(1, GRAPH);
        table.spread(GRAPH, EXEC);
        assert_eq!(table.forget(GRAPH), &[]);
        assert_eq!(table.forget(EXEC), &[CapturedGraph(1)]);
        assert_eq!(table.forget(EXEC), &[]);
    }

    #[test]
    fn a_graph_with_a_child_has_seen_what_the_child_has() {
        let mut table = captured(1, GRAPH);
        table.add(0x30, CapturedGraph(2));
        table.spread(GRAPH, 0x30);
        assert_eq!(table.of(0x30).collect::<Vec<_>>(), [CapturedGraph(2), CapturedGraph(1)]);
        table.spread(0x30, 0x30);
        assert_eq!(table.forget(0x30), &[CapturedGraph(2)]);
        assert_eq!(table.forget(GRAPH), &[CapturedGraph(1)]);
    }

    #[test]
    fn a_stream_that_never_began_a_capture_ends_none() {
        assert_eq!(CaptureTable::default().end(7), None);
    }
}
