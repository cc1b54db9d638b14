//! Tracks what uses an address range: live blocks, recent blocks, and CUDA graphs.

use alloc::vec::Vec;

use super::blocks::BlockStack;
use super::recent_use::{TouchedRange, UseWindows};
use crate::device::CapturedGraph;
use crate::policy::Trim;

#[derive(Clone, Debug)]
pub(super) struct RegionUsage {
    pub(super) blocks: BlockStack,
    /// Since the last [`RegionUsage::mark`].
    touched: TouchedRange,
    windows: UseWindows,
    pins: Vec<GraphPin>,
}

// DECISION: a graph pins one prefix of the region, up to the highest address that was live during its
// capture. For use like a stack this is exact, and it takes one number for each graph.
/// Memory pinned by a graph: everything below `high`.
#[derive(Clone, Copy, Debug)]
struct GraphPin {
    graph: CapturedGraph,
    high: u64,
    capturing: bool,
}

impl RegionUsage {
    pub(super) fn new(addresses: u64) -> Self {
        Self {
            blocks: BlockStack::new(addresses),
            touched: TouchedRange::default(),
            windows: UseWindows::default(),
            pins: Vec::new(),
        }
    }

    /// Enters a free of `start..end`, which submitted work may still use.
    pub(super) fn touch(&mut self, start: u64, end: u64) {
        self.touched.add(start, end);
    }

    pub(super) fn close_window(&mut self) {
        self.mark();
        self.windows.close();
    }

    /// True if a piece may be released, as far as the CPU can tell. It has no live block, no graph uses it
    /// and, for idle memory, it was not used recently.
    pub(super) fn may_go(&self, trim: Trim, start: u64, end: u64) -> bool {
        // A prefix is pinned: everything below the highest address that the graph has seen.
        let pinned = self.pins.iter().any(|pin| start < pin.high);
        let rested = match trim {
            Trim::Idle => !self.touched.overlaps(start, end) && !self.windows.overlap(start, end),
            Trim::All => true,
        };
        !pinned && rested && self.blocks.idle(start, end)
    }

    pub(super) fn capture_begin(&mut self, graph: CapturedGraph) {
        self.mark();
        match self.pins.iter_mut().find(|pin| pin.graph == graph) {
            Some(pin) => pin.capturing = true,
            None => self.pins.push(GraphPin { graph, high: 0, capturing: true }),
        }
    }

    pub(super) fn capture_end(&mut self, graph: CapturedGraph) {
        self.mark();
        let live = self.blocks.top();
        let open = |pin: &&mut GraphPin| pin.graph == graph && pin.capturing;
        for pin in self.pins.iter_mut().filter(open) {
            // Blocks that are live at the end of the capture were allocated during it or before it; the graph
            // may use both.
            pin.high = pin.high.max(live);
            pin.capturing = false;
        }
    }

    pub(super) fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.mark();
        self.pins.retain(|pin| pin.graph != graph);
    }

    /// Passes the use since the last mark on to windows and open captures.
    fn mark(&mut self) {
        let touched = core::mem::take(&mut self.touched);
        self.windows.add(touched);
        for pin in self.pins.iter_mut().filter(|pin| pin.capturing) {
            // A block that was freed during the capture is baked into the graph as well.
            pin.high = pin.high.max(touched.high());
        }
    }
}
