//! Run-time pool sizes at growing prompt depth.
//!
//! DECISION: each stream of a card has its own pools, as in ggml. Both policies run on every graph, whichever
//! the card uses: ggml's legacy pool (no virtual memory management) and its VMM pool. They are
//! `plimsoll-pool`'s exact models, on a card of unlimited size. A `depth` line is written whenever a graph
//! raises a high-water mark or goes deeper; nothing runs without a report. The requests themselves go to the
//! file of `PLIMSOLL_PHANTOM_TRACE`, which `plimsoll replay` reads.
//!
//! | field | is |
//! |---|---|
//! | `device`, `stream` | the card, and which of its streams, counted from 0 |
//! | `tokens` | the most columns of a product in the graph |
//! | `cells` | the most cells of cache that an attention of the graph saw: the depth |
//! | `live` | the most bytes lent at once, so far |
//! | `legacy`, `vmm` | bytes that each pool holds |
//! | `legacy_driver` | driver memory for `legacy`: large requests in whole 2 MiB, small ones share 2 MiB |
//! | `graphs` | graphs so far |
//! | `estimated` | requests so far whose size is an estimate |
//! | `cublas` | cuBLAS products so far: the first loads a workspace and modules, which no pool counts |

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_pool::demand::Rules;
use plimsoll_pool::replay::{GRANULE, Scopes, driver_takes};
use plimsoll_pool::{GgmlLegacy, GgmlLegacyOptions, GgmlVmm, Policy};

use crate::abi::Graph;
use crate::demand::{self, Requests, fusion};
use crate::kinds::Op;
use crate::phantom::{CardState, Phantom};
use crate::tensor::View;

/// Bound against a damaged graph: more nodes than any model has.
const MOST_NODES: usize = 1 << 20;

static STREAMS: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Depth {
    phantom: &'static Phantom,
    card: &'static CardState,
    rules: Rules,
    number: u64,
    legacy: Scopes<GgmlLegacy>,
    vmm: Scopes<GgmlVmm>,
    requests: Requests,
    seen: Seen,
}

/// Figures of the last line.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    cells: u64,
    live: u64,
    legacy: u64,
    vmm: u64,
    graphs: u64,
    estimated: u64,
    cublas: u64,
    tokens: u64,
}

impl Depth {
    pub(crate) fn new(phantom: &'static Phantom, card: &'static CardState) -> Self {
        let options = GgmlLegacyOptions {
            flush: !card.rules.engine.copies(),
            ..GgmlLegacyOptions::default()
        };
        Self {
            phantom,
            card,
            rules: card.rules,
            number: STREAMS.fetch_add(1, Relaxed),
            legacy: Scopes::new(GgmlLegacy::new(options), 256),
            vmm: Scopes::new(GgmlVmm::default(), GRANULE),
            requests: Requests::default(),
            seen: Seen::default(),
        }
    }

    /// Runs the pools on one graph, which the engine takes for computed.
    pub(crate) fn compute(&mut self, graph: &Graph) {
        // Without a report, the pools would slow down every graph for nothing.
        if !self.phantom.report.is_open() {
            return;
        }
        self.requests.clear();
        let (tokens, cells) = gather(graph, self.rules, &mut self.requests);
        self.phantom.report.requests(self.number, self.requests.steps());
        for &step in self.requests.steps() {
            self.legacy.step(step);
            self.vmm.step(step);
        }
        let now = Seen {
            cells: cells.max(self.seen.cells),
            live: self.legacy.live(),
            legacy: self.legacy.policy().reserved(),
            vmm: self.vmm.policy().reserved(),
            graphs: self.seen.graphs + 1,
            estimated: self.seen.estimated + self.requests.estimated,
            cublas: self.seen.cublas + self.requests.cublas,
            tokens,
        };
        // Of cuBLAS only the first use counts: its workspace is allocated once.
        let marks = |seen: Seen| (seen.cells, seen.live, seen.legacy, seen.vmm, seen.cublas > 0);
        let changed = marks(now) != marks(self.seen);
        self.seen = now;
        if changed {
            self.say();
        }
    }

    fn say(&self) {
        let Seen {
            cells,
            live,
            legacy,
            vmm,
            graphs,
            estimated,
            cublas,
            tokens,
        } = self.seen;
        let mut line = String::new();
        let _ = write!(
            line,
            "{{\"event\":\"depth\",\"device\":\"{}\",\"stream\":{},\"tokens\":{tokens},\"cells\":{cells},\"live\":{live},",
            self.card.card.device_name(),
            self.number,
        );
        let driver = driver_takes(self.legacy.policy().idle());
        let _ = write!(
            line,
            "\"legacy\":{legacy},\"legacy_driver\":{driver},\"vmm\":{vmm},\"graphs\":{graphs},\"estimated\":{estimated},\"cublas\":{cublas}}}"
        );
        self.phantom.report.line(format_args!("{line}"));
    }
}

/// Adds what every node asks for; returns the most columns of a product, and the most cells of an attention.
fn gather(graph: &Graph, rules: Rules, requests: &mut Requests) -> (u64, u64) {
    let nodes = nodes(graph);
    // Products that a fused kernel spares are found first, because they come before their activation.
    let spared: BTreeSet<usize> = nodes
        .iter()
        .filter(|node| node.op() == Op::Glu)
        .filter_map(|node| fusion::spared(*node, rules.capability))
        .map(|product| core::ptr::from_ref(product.raw()).addr())
        .collect();
    let (mut tokens, mut cells) = (0, 0);
    for node in nodes {
        match node.op() {
            Op::MulMat => tokens = tokens.max(node.ne(1)),
            Op::FlashAttnExt => cells = cells.max(node.source(1).map_or(0, |k| k.ne(1))),
            // Without flash attention, the masked softmax has one column per cell of the cache.
            Op::SoftMax if node.source(1).is_some() => cells = cells.max(node.ne(0)),
            _ => {}
        }
        if !spared.contains(&core::ptr::from_ref(node.raw()).addr()) {
            demand::of(rules, node, requests);
        }
    }
    (tokens, cells)
}

fn nodes(graph: &Graph) -> Vec<View<'_>> {
    let count = usize::try_from(graph.nodes_used).unwrap_or(0).min(MOST_NODES);
    if graph.nodes.is_null() {
        return Vec::new();
    }
    let node = |index| {
        // SAFETY: a graph has as many nodes as it says, each null or a live tensor.
        unsafe { View::of(*graph.nodes.wrapping_add(index)) }
    };
    (0..count).filter_map(node).collect()
}
