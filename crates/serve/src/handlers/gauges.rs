//! Writes Prometheus gauges for `/metrics`: memory granted to engines, tokens in use, memory counted by guard
//! (the preloaded library).

use std::rc::Rc;

use plimsoll_base::{Bytes, CardId};
use plimsoll_cards::KernelCard;
use plimsoll_probe::guard::read_tree;
use plimsoll_scheduler::{DepthView, SchedulerSnapshot};
use plimsoll_wire::page::CardSnapshot;
use plimsoll_wire::tree::{TreeCardSnapshot, key};

use super::guard::GuardHandler;
use plimsoll_route::{Exposition, MetricKind};
use plimsoll_runtime::{Extension, Runtime};

#[derive(Debug)]
pub(super) struct Gauges {
    guard: Rc<GuardHandler>,
}

/// Figures of guard for one model on one card.
struct GuardRow {
    model: String,
    card: String,
    occupied: GuardedMemory,
}

type DepthGauge = (&'static str, &'static str, fn(&DepthView) -> u64);

const DEPTHS: [DepthGauge; 4] = [
    (
        "plimsoll_depth_admitted_tokens",
        "Tokens of prompts and answers that a model's admitted requests can reach together",
        |depth| depth.admitted,
    ),
    ("plimsoll_depth_covered_tokens", "Tokens of context for which a model's memory is reserved", |depth| {
        depth.covered
    }),
    ("plimsoll_depth_full_tokens", "Largest number of tokens in a model's context", |depth| depth.full),
    (
        "plimsoll_depth_bytes_per_token",
        "Memory that each token in use adds, as planned or as observed",
        |depth| depth.bytes_per_token.get(),
    ),
];

fn write_depths(page: &mut Exposition, snapshot: &SchedulerSnapshot) {
    for (name, help, value) in DEPTHS {
        page.family(name, MetricKind::Gauge, help);
        for model in &snapshot.models {
            if let Some(depth) = &model.depth {
                page.sample(name, &[("model", &model.name)], value(depth));
            }
        }
    }
    let name = "plimsoll_prompt_overflows_total";
    page.family(name, MetricKind::Counter, "Requests whose prompt was longer than the context");
    for model in &snapshot.models {
        page.sample(name, &[("model", &model.name)], model.overflows);
    }
}

/// Of cards without a model a figure that is unknown has no sample. Names may be equal, ids are not.
fn write_other_cards(page: &mut Exposition, cards: &[KernelCard]) {
    type CardFigure = fn(&KernelCard) -> Option<Bytes>;
    let figures: [(&str, &str, CardFigure); 2] = [
        ("plimsoll_other_card_total_bytes", "Memory of a card that no model is placed on", |card| card.total),
        ("plimsoll_other_card_free_bytes", "Free memory of a card that no model is placed on", |card| {
            card.free
        }),
    ];
    for (name, help, figure) in figures.iter().filter(|_| !cards.is_empty()) {
        page.family(name, MetricKind::Gauge, help);
        for card in cards {
            if let Some(bytes) = figure(card) {
                page.sample(name, &[("card", &card.name), ("id", card.id.as_str())], bytes.get());
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct GuardedMemory {
    allocated: Bytes,
    reserved: Bytes,
    idle: Bytes,
    spilled: Bytes,
    peak: Bytes,
    /// Figures that its processes share.
    tree: Option<TreeCardSnapshot>,
    refusals: u64,
}

impl GuardedMemory {
    /// The peak of all processes together if it is known, else the sum of their peaks.
    fn peak(&self) -> Bytes {
        self.tree.map_or(self.peak, |tree| Bytes::new(tree.peak))
    }

    fn budget(&self) -> Option<Bytes> {
        self.tree?.budget.map(Bytes::new)
    }
}

impl From<&CardSnapshot> for GuardedMemory {
    fn from(card: &CardSnapshot) -> Self {
        Self {
            allocated: Bytes::new(card.allocated),
            reserved: Bytes::new(card.reserved),
            idle: Bytes::new(card.idle),
            spilled: Bytes::new(card.spilled),
            peak: Bytes::new(card.peak),
            tree: None,
            refusals: card.ooms,
        }
    }
}

impl std::ops::AddAssign for GuardedMemory {
    fn add_assign(&mut self, other: Self) {
        self.allocated += other.allocated;
        self.reserved += other.reserved;
        self.idle += other.idle;
        self.spilled += other.spilled;
        self.peak += other.peak;
        // Shared by all processes, so it is not added up.
        self.tree = self.tree.or(other.tree);
        self.refusals += other.refusals;
    }
}

type MetricGauge = (&'static str, &'static str, fn(&GuardedMemory) -> Option<Bytes>);

const GAUGES: [MetricGauge; 6] = [
    ("plimsoll_guard_allocated_bytes", "Memory of a card that a guarded engine holds", |occupied| {
        Some(occupied.allocated)
    }),
    ("plimsoll_guard_reserved_bytes", "Memory of a card that guard's pools have reserved", |occupied| {
        Some(occupied.reserved)
    }),
    ("plimsoll_guard_idle_bytes", "Memory of a card that is idle in guard's pools", |occupied| {
        Some(occupied.idle)
    }),
    ("plimsoll_guard_spilled_bytes", "Memory spilled to the host because it did not fit", |occupied| {
        Some(occupied.spilled)
    }),
    ("plimsoll_guard_peak_bytes", "Peak memory of a card that a guarded engine held", |occupied| {
        Some(occupied.peak())
    }),
    ("plimsoll_guard_budget_bytes", "Memory of a card that a guarded engine may hold", |occupied| {
        occupied.budget()
    }),
];

impl Extension for Gauges {
    fn write_metrics(&self, runtime: &Runtime, page: &mut Exposition) {
        write_other_cards(page, &runtime.other_cards());
        let rows = self.rows(runtime);
        for (name, help, value) in GAUGES {
            page.family(name, MetricKind::Gauge, help);
            for row in &rows {
                // Without a budget there is no figure; a zero would look like an exhausted one.
                if let Some(bytes) = value(&row.occupied) {
                    page.sample(name, &[("model", &row.model), ("card", &row.card)], bytes.get());
                }
            }
        }
        let name = "plimsoll_guard_refusals_total";
        page.family(name, MetricKind::Counter, "Requests for memory that guard refused");
        for row in &rows {
            let labels = [("model", row.model.as_str()), ("card", &row.card)];
            // They start again with each process, like every counter of a page.
            page.sample(name, &labels, row.occupied.refusals);
        }
        let name = "plimsoll_growth_bytes_per_token";
        page.family(name, MetricKind::Gauge, "Observed growth of memory with each token in use");
        let snapshot = runtime.state.snapshot();
        for model in &snapshot.models {
            if let Some(growth) = model.growth {
                page.sample(name, &[("model", &model.name)], growth.bytes_per_token.get());
            }
        }
        write_depths(page, &snapshot);
    }
}

impl Gauges {
    pub(super) fn new(guard: Rc<GuardHandler>) -> Self {
        Self { guard }
    }

    fn rows(&self, runtime: &Runtime) -> Vec<GuardRow> {
        // Pages are files; they are read only when the metrics are asked for.
        let runs = runtime.state.runs();
        let rows = runs.iter().flat_map(|run| {
            let tree = self.guard.of(run.id).and_then(|guarded| read_tree(guarded.pages()));
            let occupied: Vec<(CardId, GuardedMemory)> =
                self.guard.sums(runtime, run, |card, number| GuardedMemory {
                    // Peak and budget are those of all processes together, which only the tree knows.
                    tree: tree.as_ref().and_then(|tree| tree.card(key(card.uuid, number))),
                    ..GuardedMemory::from(card)
                });
            occupied.into_iter().map(|(card, occupied)| GuardRow {
                model: run.entry.name.clone(),
                card: runtime.settings.label(&card),
                occupied,
            })
        });
        rows.collect()
    }
}
