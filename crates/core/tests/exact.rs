//! The default plan against what llama.cpp b10605 said of itself under the phantom backend (`data/exact`), and the logs
//! of both builds as they were.
//!
//! `cargo test -p plimsoll-core --test exact -- --nocapture` prints the table.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::BTreeMap;

use plimsoll_core::bytes::Bytes;
use plimsoll_core::flags::{Options, Program, Wish};
use plimsoll_core::model::gguf::{Draft, Header};
use plimsoll_core::model::{Dialect, Model, synth};
use plimsoll_core::place::Card;
use plimsoll_core::plan::exact::{BufferKind, Place, RefusalKind, Search, Transcript, exact};
use plimsoll_core::plan::{Engine, EngineKind, Plan, PlanRequest, plan};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    build: u32,
    rows: Vec<Row>,
}

/// One configuration, and the lines of the engine's log that tell of it.
#[derive(Deserialize)]
struct Row {
    model: String,
    draft: Option<String>,
    projector: Option<String>,
    program: String,
    cards: usize,
    args: String,
    log: Vec<String>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../../../data/exact/b10605.json")).unwrap()
}

fn model(name: &str) -> Model {
    let draft = synth::specimen(name).unwrap_or_else(|| synth::shape(name).unwrap().files(1).remove(0));
    read(&draft)
}

fn read(draft: &Draft) -> Model {
    let bytes = draft.header();
    let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
}

/// Everything that a request borrows.
struct Asked {
    model: Model,
    draft: Option<Model>,
    projector: Option<Model>,
    wish: Wish,
    program: Program,
    cards: Vec<Card>,
}

impl Asked {
    fn of(row: &Row, models: &mut BTreeMap<String, Model>) -> Self {
        let mut named = |name: &String| models.entry(name.clone()).or_insert_with(|| model(name)).clone();
        let argv: Vec<String> = row.args.split_whitespace().map(str::to_owned).collect();
        let program = Program::from_name(&row.program).unwrap();
        let card = |i| format!("name=card{i},total=80GiB,cc=8.9").parse().unwrap();
        Self {
            model: named(&row.model),
            draft: row.draft.as_ref().map(&mut named),
            projector: row.projector.as_ref().map(&mut named),
            wish: Options::from_argv(&argv).unwrap().wish(program).unwrap(),
            program,
            cards: (0..row.cards).map(card).collect(),
        }
    }

    fn request(&self, build: u32) -> PlanRequest<'_> {
        PlanRequest {
            model: &self.model,
            draft: self.draft.as_ref(),
            projector: self.projector.as_ref(),
            wish: &self.wish,
            engine: Engine {
                kind: EngineKind::LlamaCpp,
                build: Some(build),
            },
            program: self.program,
            cards: &self.cards,
        }
    }
}

/// How near the default plan has to come.
#[derive(Debug, PartialEq)]
enum Class {
    Dense,
    Routed,
    Hybrid,
    /// It says that it does not know, and offers to ask.
    Asks,
}

fn class(plan: &Plan, model: &Model) -> Class {
    let offers = |reason: &&plimsoll_core::explain::Reason| reason.text.contains("plimsoll plan --exact");
    if plan.reasons.iter().any(|reason| offers(&reason)) {
        Class::Asks
    } else if model.hyper.recurrent.is_some() {
        Class::Hybrid
    } else if model.hyper.experts.is_some() {
        Class::Routed
    } else {
        Class::Dense
    }
}

fn mib(bytes: Bytes) -> f64 {
    f64::from(u32::try_from(bytes.get() >> 10).unwrap()) / 1024.0
}

/// Weights, cache and compute buffer of a card.
fn terms(plan: &Plan, card: usize) -> [Bytes; 3] {
    let terms = &plan.cards[card].terms;
    [terms.weights.known(), terms.kv.known(), terms.compute.known()]
}

fn show(numbers: [Bytes; 3]) -> String {
    numbers.map(|bytes| format!("{:.2}", mib(bytes))).join(" ")
}

#[test]
fn the_default_plan_is_as_near_as_it_says_on_every_recorded_row() {
    let recorded = recorded();
    let mut models = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut architectures = std::collections::BTreeSet::new();
    println!(
        "| model | cards | flags | engine: weights, cache, compute | default plan | off by, MiB | class |"
    );
    println!("|---|---|---|---|---|---|---|");
    for row in &recorded.rows {
        let asked = Asked::of(row, &mut models);
        let request = asked.request(recorded.build);
        let estimate = plan(&request).unwrap_or_else(|error| panic!("{} {}: {error}", row.model, row.args));
        let transcript = Transcript::read(&row.log.join("\n"));
        let said = exact(&request, &transcript, "llama-server", Ok(None)).unwrap();
        let class = class(&estimate, &asked.model);
        architectures.insert(asked.model.architecture.clone());
        for card in 0..row.cards {
            let (ours, theirs) = (terms(&estimate, card), terms(&said, card));
            let off =
                ours.iter()
                    .zip(theirs)
                    .map(|(a, b)| mib(*a) - mib(b))
                    .fold(
                        0.0,
                        |worst: f64, off: f64| {
                            if off.abs() > worst.abs() { off } else { worst }
                        },
                    );
            let all: Bytes = theirs.into_iter().sum();
            let room = match class {
                Class::Dense => 1.0,
                Class::Routed => 16.0,
                Class::Hybrid => (mib(all) / 50.0).max(1.0),
                Class::Asks => f64::INFINITY,
            };
            let flags = [Some(row.args.clone()), row.draft.clone(), row.projector.clone()];
            let flags = flags.into_iter().flatten().collect::<Vec<_>>().join(" + ");
            println!(
                "| {} | {card} | `{flags}` | {} | {} | {off:+.2} | {class:?} |",
                row.model,
                show(theirs),
                show(ours)
            );
            if off.abs() > room {
                wrong.push(format!(
                    "{} {flags} card {card}: engine {}, planned {}",
                    row.model,
                    show(theirs),
                    show(ours)
                ));
            }
        }
    }
    assert!(recorded.rows.len() >= 150, "{} rows", recorded.rows.len());
    assert!(architectures.len() >= 12, "{architectures:?}");
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
