//! Who uses what of a region: the blocks, what was touched of late, and what graphs have seen.
//!
//! DECISION: what a graph has seen is pinned as one prefix, up to the highest address that was live while it was
//! captured. For stack-like traffic that is exactly what the graph can touch, and it costs one number for a graph. A
//! block counts as touched when it is given back; until then it is live, and that says more.

use alloc::vec::Vec;

use super::blocks::Blocks;
use super::touched::{Touched, Windows};
use crate::device::Graph;
use crate::policy::Trim;

#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) blocks: Blocks,
    /// Since the last [`Traffic::mark`].
    touched: Touched,
    windows: Windows,
    pins: Vec<Pin>,
}

/// A graph has seen everything below `high`.
#[derive(Clone, Copy, Debug)]
struct Pin {
    graph: Graph,
    high: u64,
    capturing: bool,
}

impl Traffic {
    pub(super) fn new(addresses: u64) -> Self {
        Self {
            blocks: Blocks::new(addresses),
            touched: Touched::default(),
            windows: Windows::default(),
            pins: Vec::new(),
        }
    }

    /// `start..end` was given back, and until now work may have been submitted that uses it.
    pub(super) fn touch(&mut self, start: u64, end: u64) {
        self.touched.add(start, end);
    }

    pub(super) fn close_window(&mut self) {
        self.mark();
        self.windows.close();
    }

    /// Whether a piece may be given back, as far as the CPU knows: nothing in it is live, no graph has seen it and,
    /// where idle memory is to rest for a while, nothing of it was live of late.
    pub(super) fn may_go(&self, trim: Trim, start: u64, end: u64) -> bool {
        let pinned = self.pins.iter().any(|pin| start < pin.high);
        let rested = match trim {
            Trim::Idle => !self.touched.overlaps(start, end) && !self.windows.overlap(start, end),
            Trim::All => true,
        };
        !pinned && rested && self.blocks.idle(start, end)
    }

    pub(super) fn capture_begin(&mut self, graph: Graph) {
        self.mark();
        match self.pins.iter_mut().find(|pin| pin.graph == graph) {
            Some(pin) => pin.capturing = true,
            None => self.pins.push(Pin {
                graph,
                high: 0,
                capturing: true,
            }),
        }
    }

    pub(super) fn capture_end(&mut self, graph: Graph) {
        self.mark();
        let live = self.blocks.top();
        let open = |pin: &&mut Pin| pin.graph == graph && pin.capturing;
        for pin in self.pins.iter_mut().filter(open) {
            pin.high = pin.high.max(live);
            pin.capturing = false;
        }
    }

    pub(super) fn graph_destroyed(&mut self, graph: Graph) {
        self.mark();
        self.pins.retain(|pin| pin.graph != graph);
    }

    /// Tells whoever needs to know what was touched since the last mark.
    fn mark(&mut self) {
        let touched = core::mem::take(&mut self.touched);
        self.windows.add(touched);
        for pin in self.pins.iter_mut().filter(|pin| pin.capturing) {
            pin.high = pin.high.max(touched.high());
        }
    }
}
