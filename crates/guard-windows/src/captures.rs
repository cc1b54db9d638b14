//! Stream captures under way, and the graphs that replay what was captured.
//!
//! Guard's pools keep the memory of a capture until the last graph that was made of it is destroyed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use plimsoll_pool::CapturedGraph;

use crate::blocks::hold;
use crate::driver::Handle;
use crate::pools;

/// A stream, or a graph or what was instantiated of it, by its address.
type Address = usize;

#[derive(Debug)]
struct Captures {
    under_way: Vec<(Address, CapturedGraph)>,
    /// Captures that a live graph replays.
    seen: Vec<(Address, CapturedGraph)>,
}

static CAPTURES: Mutex<Captures> = Mutex::new(Captures { under_way: Vec::new(), seen: Vec::new() });
/// Captures under way, outside of the lock: every free reads it.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// True if any stream is being captured. Then nothing may be freed or waited for.
pub(crate) fn capturing() -> bool {
    COUNT.load(Acquire) > 0
}

pub(crate) fn under_way() -> Vec<CapturedGraph> {
    hold(&CAPTURES).under_way.iter().map(|(_, graph)| *graph).collect()
}

/// Enters a capture that is about to begin. When this returns, no pool is giving anything back.
pub(crate) fn begin(stream: Handle) {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let graph = CapturedGraph(NUMBERS.fetch_add(1, Relaxed));
    COUNT.fetch_add(1, AcqRel);
    hold(&CAPTURES).under_way.push((stream.addr(), graph));
    pools::each(|pool| pool.capture_begin(graph));
}

/// Ends the capture on a stream, with the graph that came of it or without one.
pub(crate) fn end(stream: Handle, made: Option<Handle>) {
    let mut captures = hold(&CAPTURES);
    let Some(index) = captures.under_way.iter().position(|(of, _)| *of == stream.addr()) else { return };
    let (_, graph) = captures.under_way.swap_remove(index);
    captures.seen.extend(made.map(|made| (made.addr(), graph)));
    drop(captures);
    pools::each(|pool| pool.capture_end(graph, made.is_some()));
    COUNT.fetch_sub(1, AcqRel);
}

/// `to` was made of `from` and replays the same.
pub(crate) fn spread(from: Handle, to: Handle) {
    let mut captures = hold(&CAPTURES);
    let seen: Vec<CapturedGraph> = captures.of(from.addr());
    captures.seen.extend(seen.into_iter().map(|graph| (to.addr(), graph)));
}

/// `to` replays what `from` does and nothing else from now on.
pub(crate) fn replace(from: Handle, to: Handle) {
    let mut captures = hold(&CAPTURES);
    let new = captures.of(from.addr());
    let old = captures.of(to.addr());
    captures.seen.retain(|(handle, _)| *handle != to.addr());
    captures.seen.extend(new.into_iter().map(|graph| (to.addr(), graph)));
    let gone = captures.without_graph(old);
    drop(captures);
    unpin(&gone);
}

/// Forgets a graph that is about to be destroyed: the next one may get its address.
pub(crate) fn destroyed(handle: Handle) {
    let mut captures = hold(&CAPTURES);
    let old = captures.of(handle.addr());
    captures.seen.retain(|(of, _)| *of != handle.addr());
    let gone = captures.without_graph(old);
    drop(captures);
    unpin(&gone);
}

fn unpin(gone: &[CapturedGraph]) {
    for graph in gone {
        pools::each(|pool| pool.graph_destroyed(*graph));
    }
}

impl Captures {
    fn of(&self, handle: Address) -> Vec<CapturedGraph> {
        let seen = self.seen.iter().filter(|(of, _)| *of == handle);
        seen.map(|(_, graph)| *graph).collect()
    }

    /// Those of `captures` that no graph replays any more.
    fn without_graph(&self, captures: Vec<CapturedGraph>) -> Vec<CapturedGraph> {
        let is_seen = |graph: &CapturedGraph| self.seen.iter().any(|(_, seen)| seen == graph);
        captures.into_iter().filter(|graph| !is_seen(graph)).collect()
    }
}
