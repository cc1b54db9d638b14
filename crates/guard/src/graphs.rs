//! Tells guard's memory pools when a stream capture begins or ends, and when a CUDA graph is destroyed.
//!
//! While a stream is captured, the pools release no memory and wait for nothing.

use plimsoll_pool::CapturedGraph;

use crate::ggml::pools;
use crate::state::captures::{self, GraphHandle};
use crate::{driver_guard, trace};

/// Announces a capture on this stream. When this returns, no pool is giving anything back and nothing is
/// waited for.
pub(crate) fn begin(stream: usize) -> CapturedGraph {
    // DECISION: the pools are notified before the driver starts a capture.
    let graph = CapturedGraph(trace::number());
    captures::begin(stream, graph);
    pools::each(|pool| pool.capture_begin(graph));
    driver_guard::let_waits_end();
    graph
}

/// Ends the capture on this stream, with the graph that came of it or without one.
pub(crate) fn end(stream: usize, created: Option<GraphHandle>) -> Option<CapturedGraph> {
    let graph = captures::end(stream, created)?;
    pools::each(|pool| pool.capture_end(graph, created.is_some()));
    // Pools whose objects ended during the capture could not be given back then.
    if captures::ended() {
        pools::settle();
    }
    Some(graph)
}

/// Records that the graph `to` now does the work of `from` and nothing else.
pub(crate) fn replace(from: GraphHandle, to: GraphHandle) {
    unpin(&captures::replace(from, to));
}

/// Forgets a graph that the driver destroys.
pub(crate) fn destroyed(handle: GraphHandle) {
    unpin(&captures::forget(handle));
}

fn unpin(gone: &[CapturedGraph]) {
    for graph in gone {
        pools::each(|pool| pool.graph_destroyed(*graph));
    }
}
