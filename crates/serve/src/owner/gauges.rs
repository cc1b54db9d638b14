//! What the pages of guarded engines say, for `/metrics`.

use plimsoll_base::{Bytes, Card, CardId};
use plimsoll_probe::guard::read_tree;
use plimsoll_scheduler::{DepthView, Snapshot};
use plimsoll_wire::page::CardSnapshot;
use plimsoll_wire::tree::{TreeCardSnapshot, key};

use super::Owner;
use super::talk::label;
use crate::route::{Exposition, Kind};

/// One model on one card.
struct Row {
    model: String,
    card: String,
    held: Held,
}

/// What is kept for each run.
fn write_claims(page: &mut Exposition, snapshot: &Snapshot) {
    let name = "plimsoll_claim_bytes";
    page.family(name, Kind::Gauge, "What a model may take of a card");
    for model in &snapshot.models {
        for share in &model.claim {
            let labels = [("model", model.name.as_str()), ("card", share.card.as_str())];
            page.sample(name, &labels, share.bytes.get());
        }
    }
}

type DepthGauge = (&'static str, &'static str, fn(&DepthView) -> u64);

const DEPTHS: [DepthGauge; 4] = [
    (
        "plimsoll_depth_admitted_tokens",
        "What a model's requests may reach together, or have reached",
        |depth| depth.admitted,
    ),
    (
        "plimsoll_depth_covered_tokens",
        "The depth that a model's claim covers",
        |depth| depth.covered,
    ),
    (
        "plimsoll_depth_full_tokens",
        "The deepest that a model can get",
        |depth| depth.full,
    ),
    (
        "plimsoll_depth_bytes_per_token",
        "What a token of depth is taken to add, as planned or as it was seen",
        |depth| depth.bytes_per_token.get(),
    ),
];

/// How deep runs are, where that costs anything.
fn write_depths(page: &mut Exposition, snapshot: &Snapshot) {
    for (name, help, value) in DEPTHS {
        page.family(name, Kind::Gauge, help);
        for model in &snapshot.models {
            if let Some(depth) = &model.depth {
                page.sample(name, &[("model", &model.name)], value(depth));
            }
        }
    }
    let name = "plimsoll_prompt_overflows_total";
    page.family(
        name,
        Kind::Counter,
        "Requests whose prompt was counted to be longer than the context",
    );
    for model in &snapshot.models {
        page.sample(name, &[("model", &model.name)], model.overflows);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    allocated: Bytes,
    reserved: Bytes,
    idle: Bytes,
    spilled: Bytes,
    peak: Bytes,
    /// What its processes share.
    tree: Option<TreeCardSnapshot>,
    refusals: u64,
}

impl Held {
    /// At a time, where that is known.
    fn peak(&self) -> Bytes {
        self.tree.map_or(self.peak, |tree| Bytes::new(tree.peak))
    }

    fn budget(&self) -> Option<Bytes> {
        self.tree?.budget.map(Bytes::new)
    }
}

impl From<&CardSnapshot> for Held {
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

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.allocated += other.allocated;
        self.reserved += other.reserved;
        self.idle += other.idle;
        self.spilled += other.spilled;
        self.peak += other.peak;
        self.tree = self.tree.or(other.tree);
        self.refusals += other.refusals;
    }
}

type Gauge = (&'static str, &'static str, fn(&Held) -> Option<Bytes>);

const GAUGES: [Gauge; 6] = [
    (
        "plimsoll_guard_allocated_bytes",
        "What a guarded engine holds of a card",
        |held| Some(held.allocated),
    ),
    (
        "plimsoll_guard_reserved_bytes",
        "The part of it that guard's pools hold",
        |held| Some(held.reserved),
    ),
    (
        "plimsoll_guard_idle_bytes",
        "The part of that which is idle",
        |held| Some(held.idle),
    ),
    (
        "plimsoll_guard_spilled_bytes",
        "What lies in host memory because it did not fit",
        |held| Some(held.spilled),
    ),
    (
        "plimsoll_guard_peak_bytes",
        "The most that a guarded engine has held of a card",
        |held| Some(held.peak()),
    ),
    (
        "plimsoll_guard_budget_bytes",
        "What a guarded engine may hold of a card",
        |held| held.budget(),
    ),
];

impl Owner {
    /// Writes the gauges of all runs that are up.
    pub(super) fn write_gauges(&self, page: &mut Exposition) {
        let rows = self.rows();
        for (name, help, value) in GAUGES {
            page.family(name, Kind::Gauge, help);
            for row in &rows {
                if let Some(bytes) = value(&row.held) {
                    page.sample(name, &[("model", &row.model), ("card", &row.card)], bytes.get());
                }
            }
        }
        let name = "plimsoll_guard_refusals_total";
        page.family(name, Kind::Counter, "Requests for memory that guard refused");
        for row in &rows {
            let labels = [("model", row.model.as_str()), ("card", &row.card)];
            page.sample(name, &labels, row.held.refusals);
        }
        let name = "plimsoll_growth_bytes_per_token";
        page.family(name, Kind::Gauge, "What a token of depth was seen to add");
        let snapshot = self.state.borrow().scheduler.snapshot(self.now());
        for model in &snapshot.models {
            if let Some(growth) = model.growth {
                page.sample(name, &[("model", &model.name)], growth.bytes_per_token.get());
            }
        }
        write_claims(page, &snapshot);
        write_depths(page, &snapshot);
    }

    fn rows(&self) -> Vec<Row> {
        let cards: Vec<&Card> = self.terms.cards().collect();
        let runs: Vec<_> = self.state.borrow().runs.values().cloned().collect();
        let rows = runs.iter().flat_map(|run| {
            let tree = run.guarded().and_then(|guarded| read_tree(guarded.pages()));
            let held: Vec<(CardId, Held)> = self.sums(run, |card, number| Held {
                tree: tree.as_ref().and_then(|tree| tree.card(key(card.uuid, number))),
                ..Held::from(card)
            });
            held.into_iter().map(|(card, held)| Row {
                model: run.entry.name.clone(),
                card: label(&cards, &card),
                held,
            })
        });
        rows.collect()
    }
}
