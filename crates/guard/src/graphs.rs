//! Which captures live on in which graphs.
//!
//! DECISION: a capture gets a number, and the number lives as long as anything that was made of it: the graph, its clones, the
//! graphs that have it as a child, and what is instantiated from any of them. Pools pin what they handed out during a capture
//! until its number is gone. Graphs that are built node by node have no number: only ggml has memory of these pools, and it makes all its
//! graphs of captures. Everything is keyed by the driver's handles; a handle that is not known has seen nothing.
//!
//! Who waits for the card or gives memory back asks [`capturing`] first: neither is allowed meanwhile.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

use plimsoll_pool::Graph;

use crate::ggml::pools;
use crate::lock::Lock;
use crate::spill::quiet;

/// A handle of the driver's: a CUgraph or a CUgraphExec, which never have the same address while both live.
pub(crate) type Source = usize;

#[derive(Debug, Default)]
struct Table {
    /// Captures under way, by their stream.
    captures: Vec<(usize, Graph)>,
    /// What each live handle may make the card touch.
    seen: Vec<(Source, Graph)>,
}

impl Table {
    fn end(&mut self, stream: usize) -> Option<Graph> {
        let index = self
            .captures
            .iter()
            .position(|(capturing, _)| *capturing == stream)?;
        Some(self.captures.swap_remove(index).1)
    }

    /// `to` has seen what `from` has.
    fn spread(&mut self, from: Source, to: Source) {
        let seen: Vec<Graph> = self.of(from).collect();
        for graph in seen {
            self.add(to, graph);
        }
    }

    fn add(&mut self, source: Source, graph: Graph) {
        if !self.seen.contains(&(source, graph)) {
            self.seen.push((source, graph));
        }
    }

    fn of(&self, source: Source) -> impl Iterator<Item = Graph> {
        let seen = self.seen.iter().filter(move |(of, _)| *of == source);
        seen.map(|(_, graph)| *graph)
    }

    /// Takes a handle out and returns the captures that nothing is left of.
    fn forget(&mut self, source: Source) -> Vec<Graph> {
        let mut gone: Vec<Graph> = self.of(source).collect();
        self.seen.retain(|(of, _)| *of != source);
        gone.retain(|graph| !self.seen.iter().any(|(_, seen)| seen == graph));
        gone
    }
}

static TABLE: Lock<Table> = Lock::new(Table {
    captures: Vec::new(),
    seen: Vec::new(),
});

static CAPTURING: AtomicU32 = AtomicU32::new(0);

/// Whether any stream of the process is being captured. Then nothing may be waited for or given back.
pub(crate) fn capturing() -> bool {
    CAPTURING.load(Acquire) > 0
}

/// The captures that are under way.
pub(crate) fn open() -> Vec<Graph> {
    TABLE.hold().captures.iter().map(|(_, graph)| *graph).collect()
}

/// A capture is about to begin on this stream. When this returns, no pool is giving anything back and nothing is waited for.
pub(crate) fn begin(stream: usize) -> Graph {
    let graph = Graph(crate::trace::number());
    CAPTURING.fetch_add(1, AcqRel);
    TABLE.hold().captures.push((stream, graph));
    pools::each(|pool| pool.capture_begin(graph));
    quiet::let_waits_end();
    graph
}

/// The capture on this stream has ended, with this graph or without one.
pub(crate) fn end(stream: usize, source: Option<Source>) -> Option<Graph> {
    let mut table = TABLE.hold();
    let graph = table.end(stream)?;
    if let Some(source) = source {
        table.add(source, graph);
    }
    drop(table);
    pools::each(|pool| pool.capture_end(graph, source.is_some()));
    if CAPTURING.fetch_sub(1, AcqRel) == 1 {
        pools::settle();
    }
    Some(graph)
}

/// `to` was made of `from`, or has it as a part.
pub(crate) fn spread(from: Source, to: Source) {
    TABLE.hold().spread(from, to);
}

/// `to` does now what `from` does, and nothing else.
pub(crate) fn replace(from: Source, to: Source) {
    let mut table = TABLE.hold();
    let new: Vec<Graph> = table.of(from).collect();
    let gone = table.forget(to);
    for graph in &new {
        table.add(to, *graph);
    }
    drop(table);
    unpin(&gone, &new);
}

/// The driver has destroyed it.
pub(crate) fn destroyed(source: Source) {
    let gone = TABLE.hold().forget(source);
    unpin(&gone, &[]);
}

/// A number for the trace: the capture that a handle came of; 0 if it is not known.
pub(crate) fn number(source: Source) -> u64 {
    TABLE.hold().of(source).last().map_or(0, |graph| graph.0)
}

fn unpin(gone: &[Graph], but: &[Graph]) {
    for graph in gone.iter().filter(|graph| !but.contains(graph)) {
        pools::each(|pool| pool.graph_destroyed(*graph));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: Source = 0x10;
    const EXEC: Source = 0x20;

    fn captured(number: u64, source: Source) -> Table {
        let mut table = Table::default();
        table.captures.push((7, Graph(number)));
        let graph = table.end(7).unwrap();
        table.add(source, graph);
        table
    }

    #[test]
    fn a_capture_lives_as_long_as_anything_that_was_made_of_it() {
        let mut table = captured(1, GRAPH);
        table.spread(GRAPH, EXEC);
        assert_eq!(table.forget(GRAPH), &[]);
        assert_eq!(table.forget(EXEC), &[Graph(1)]);
        assert_eq!(table.forget(EXEC), &[]);
    }

    #[test]
    fn a_graph_with_a_child_has_seen_what_the_child_has() {
        let mut table = captured(1, GRAPH);
        table.add(0x30, Graph(2));
        table.spread(GRAPH, 0x30);
        assert_eq!(table.of(0x30).collect::<Vec<_>>(), [Graph(2), Graph(1)]);
        table.spread(0x30, 0x30);
        assert_eq!(table.forget(0x30), &[Graph(2)]);
        assert_eq!(table.forget(GRAPH), &[Graph(1)]);
    }

    #[test]
    fn a_stream_that_never_began_a_capture_ends_none() {
        assert_eq!(Table::default().end(7), None);
    }
}
