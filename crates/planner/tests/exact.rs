//! Tests of plans against recorded logs of llama.cpp b10605 and b8799, on simulated cards (`data/exact`) and
//! real ones (`data/measured/h200-matrix-*.json`). They also test the reader of those logs.
//!
//! `cargo test -p plimsoll-planner runner::exact -- --nocapture` prints the table.
#![allow(clippy::print_stdout)]

mod predictions;
mod refusals;

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Card, Counting};
use plimsoll_flags::{ModelParams, Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::exact::{
    BufferKind, BufferPlace, CardInterface, CardMemory, EngineRefusalKind, EngineSizes, GrownMemory,
    SeenMemory, Transcript,
};
use plimsoll_planner::{EngineBuild, EngineKind, Plan, PlanError, PlanRequest, PlanTerm, plan};
use proptest::prelude::*;
use serde::Deserialize;

use super::zoo;

#[derive(Deserialize)]
struct Recorded {
    build: u32,
    rows: Vec<Row>,
}

/// One configuration, and the lines of the engine's log for it.
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

/// Files of one build, as one.
fn joined(texts: &[&str]) -> Recorded {
    let read = |text: &&str| serde_json::from_str::<Recorded>(text).unwrap();
    let all = texts.iter().map(read).reduce(|mut all, more| {
        assert_eq!(all.build, more.build);
        all.rows.extend(more.rows);
        all
    });
    all.unwrap()
}

fn recorded() -> Recorded {
    joined(&[
        include_str!("../../../data/exact/b10605.json"),
        include_str!("../../../data/exact/b10605-recurrent.json"),
        include_str!("../../../data/exact/b10605-encoders.json"),
        include_str!("../../../data/exact/b10605-mixed.json"),
    ])
}

/// Recorded by `bench/gpu`, whose reader of the same lines is written apart from ours.
fn older() -> Recorded {
    joined(&[include_str!("../../../data/exact/b8799.json")])
}

fn older_by_ourselves() -> Recorded {
    joined(&[include_str!("../../../data/exact/b8799-recurrent.json")])
}

/// Every row, with its build: of the phantom backend, and of the cards that were measured.
fn rows() -> Vec<(u32, Row)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/measured");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_matrix = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("h200-matrix-"))
    };
    let matrices = paths.filter(is_matrix);
    let measured = matrices.map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap());
    let all = [recorded(), older(), older_by_ourselves()].into_iter().chain(measured);
    all.flat_map(|recorded: Recorded| recorded.rows.into_iter().map(move |row| (recorded.build, row)))
        .collect()
}

fn model(name: &str) -> Model {
    let draft = plimsoll_specimens::specimen(name)
        .unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0));
    zoo::read(&draft)
}

/// Owner of everything that a request borrows.
struct Requested {
    model: Model,
    draft: Option<Model>,
    projector: Option<Model>,
    params: ModelParams,
    program: ProgramKind,
    cards: Vec<Card>,
}

impl Requested {
    fn of(row: &Row, models: &mut BTreeMap<String, Model>) -> Self {
        let mut named = |name: &String| models.entry(name.clone()).or_insert_with(|| model(name)).clone();
        let argv: Vec<String> = row.args.split_whitespace().map(str::to_owned).collect();
        let program = ProgramKind::from_name(&row.program).unwrap();
        let card = |i| format!("name=card{i},total=80GiB,cc=8.9").parse().unwrap();
        Self {
            model: named(&row.model),
            draft: row.draft.as_ref().map(&mut named),
            projector: row.projector.as_ref().map(&mut named),
            params: Options::from_argv(&argv).unwrap().params(program).unwrap(),
            program,
            cards: (0..row.cards).map(card).collect(),
        }
    }

    fn request(&self, build: u32) -> PlanRequest<'_> {
        PlanRequest {
            model: &self.model,
            draft: self.draft.as_ref(),
            projector: self.projector.as_ref(),
            params: &self.params,
            engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(build) },
            program: self.program,
            cards: &self.cards,
            contexts: &[],
            processor: None,
        }
    }
}

impl Row {
    /// The engine's answer. `llama-fit-params --fit-print` writes a row of mebibytes for each device, where a
    /// server writes a line for each buffer.
    fn stated(&self) -> Transcript {
        let line = |line: &String| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [place, weights, cache, compute] if compute.parse::<u64>().is_ok() => {
                let sizes = [("model", weights), ("KV", cache), ("compute", compute)];
                sizes.map(|(kind, mib)| format!("fit: {place} {kind} buffer size = {mib}.00 MiB")).join("\n")
            }
            _ => line.clone(),
        };
        Transcript::read(&self.log.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// Largest error that the default plan may have.
#[derive(Debug, PartialEq)]
enum Class {
    Dense,
    Routed,
    Hybrid,
    /// It says that it does not know, and offers to ask.
    Asks,
}

fn class(plan: &Plan, model: &Model) -> Class {
    let offers = |reason: &&plimsoll_base::Reason| reason.text.contains("plimsoll plan --exact");
    if plan.warnings.iter().chain(&plan.reasons).any(|reason| offers(&reason)) {
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
fn the_default_plan_keeps_its_margin_on_every_recorded_row() {
    let rows = rows();
    let mut models = BTreeMap::new();
    let (mut wrong, mut asks) = (Vec::new(), 0);
    let mut architectures = std::collections::BTreeSet::new();
    println!(
        "| model | cards | flags | engine: weights, cache, compute | default plan | off by, MiB | class |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (build, row) in &rows {
        let requested = Requested::of(row, &mut models);
        let request = requested.request(*build);
        let estimate = match plan(&request) {
            Ok(estimate) => estimate,
            // an older engine reserves all of it, and then refuses
            Err(PlanError::QuantisedCacheNeedsFlashAttention { .. }) if *build < 9400 => continue,
            Err(error) => panic!("{} {}: {error}", row.model, row.args),
        };
        let transcript = row.stated();
        let stated = EngineSizes { request: &request, transcript: &transcript, program: "llama-server" }
            .plan(Ok(None))
            .unwrap();
        let class = class(&estimate, &requested.model);
        architectures.insert(requested.model.architecture.clone());
        asks += usize::from(class == Class::Asks);
        for card in 0..row.cards {
            let (ours, theirs) = (terms(&estimate, card), terms(&stated, card));
            let off = ours
                .iter()
                .zip(theirs)
                .map(|(a, b)| mib(*a) - mib(b))
                .fold(0.0, |worst: f64, off: f64| if off.abs() > worst.abs() { off } else { worst });
            let room = match class {
                Class::Dense | Class::Hybrid => 1.0,
                Class::Routed => 16.0,
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
            // what is an estimate is the compute buffer, never the cache
            let cache = mib(ours[1]) - mib(theirs[1]);
            if off.abs() > room || cache.abs() > 1.0 {
                wrong.push(format!(
                    "{} {flags} card {card}: engine {}, planned {}",
                    row.model,
                    show(theirs),
                    show(ours)
                ));
            }
        }
    }
    assert!(rows.len() >= 865, "{} rows", rows.len());
    // projectors, and the context of prediction layers
    assert!(asks * 100 <= rows.len(), "{asks} rows are estimates");
    println!("{} rows of {} architectures, {asks} estimated", rows.len(), architectures.len());
    assert!(architectures.len() >= 12, "{architectures:?}");
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// The promise is 2 % of a card; the test above allows 1 MiB for each of its terms.
#[test]
fn no_recorded_model_with_states_is_an_estimate() {
    let recorded = recorded();
    let mut models = BTreeMap::new();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for row in &recorded.rows {
        let requested = Requested::of(row, &mut models);
        if requested.model.hyper.recurrent.is_none() {
            continue;
        }
        let estimate = plan(&requested.request(recorded.build)).unwrap();
        assert_eq!(class(&estimate, &requested.model), Class::Hybrid, "{}", row.model);
        *rows.entry(requested.model.architecture.clone()).or_default() += 1;
    }
    assert_eq!(rows.len(), 12, "{rows:?}");
    assert!(rows.values().all(|&rows| rows >= 12), "{rows:?}");
}

#[test]
fn a_build_that_was_not_compared_is_an_estimate() {
    let mut models = BTreeMap::new();
    let recorded = recorded();
    let with_states = |row: &&Row| row.model == "mamba2";
    let requested = Requested::of(recorded.rows.iter().find(with_states).unwrap(), &mut models);
    for (build, expected) in
        [(8798, Class::Asks), (8799, Class::Hybrid), (9500, Class::Asks), (10_605, Class::Hybrid)]
    {
        let estimate = plan(&requested.request(build)).unwrap();
        assert_eq!(class(&estimate, &requested.model), expected, "{build}");
    }
}

#[test]
fn both_builds_logs_are_read_to_the_last_buffer() {
    let newer = Transcript::read(include_str!("../../../data/exact/b10605-l8-q8_0.log"));
    let older = Transcript::read(include_str!("../../../data/exact/b8799-l8-q8_0.log"));
    for (transcript, build, compute, host) in [(&newer, 10_605, 116.09, 24.09), (&older, 8799, 266.5, 32.09)]
    {
        assert!(transcript.ready && transcript.has_context());
        assert_eq!((transcript.build, transcript.context), (Some(build), Some(8192)));
        let sum = |place, kind| mib(transcript.sum(place, kind));
        let near = |a: f64, b: f64| (a - b).abs() < 0.02;
        assert!(near(sum(BufferPlace::Card(0), BufferKind::Weights), 4650.99));
        assert!(near(sum(BufferPlace::Card(0), BufferKind::Cache), 544.0));
        assert!(near(sum(BufferPlace::Card(0), BufferKind::Compute), compute), "{build}");
        assert!(near(sum(BufferPlace::Host, BufferKind::Compute), host), "{build}");
        assert!(near(sum(BufferPlace::Host, BufferKind::Output), 1.96));
        assert_eq!(transcript.buffers.len(), 6);
    }
}

/// Two readers of the same lines must find every buffer.
#[test]
fn every_recorded_row_of_the_older_build_is_read_whole() {
    let older = older();
    assert_eq!((older.build, older.rows.len()), (8799, 104));
    for row in &older.rows {
        let transcript = row.stated();
        let whole = transcript.ready || transcript.has_context();
        let stated = row.log.iter().filter(|line| line.contains(" buffer size = ")).count();
        assert!(whole && transcript.buffers.len() == stated, "{} {}", row.model, row.args);
    }
}

#[test]
fn a_context_that_reserves_again_counts_once_and_a_second_context_adds() {
    let log = "llama_context: constructing llama_context\n\
               sched_reserve:      CUDA0 compute buffer size =   100.00 MiB\n\
               sched_reserve:      CUDA0 compute buffer size =   120.00 MiB\n\
               llama_context: constructing llama_context\n\
               sched_reserve:      CUDA0 compute buffer size =    30.00 MiB\n";
    let transcript = Transcript::read(log);
    assert_eq!(transcript.sum(BufferPlace::Card(0), BufferKind::Compute), Bytes::mib(150));
}

#[test]
fn texts_of_a_model_file_are_not_read_as_the_engines_lines() {
    for line in [
        "llama_model_loader: - kv   2: general.name str = x: CUDA0 model buffer size = 9.00 MiB",
        "llama_model_loader: - kv   2: general.name str = initializing, n_slots = 4",
        "print_info: general.name          = CUDA0 KV buffer size = 9.00 MiB",
        "load:   - 2 ('a: CUDA0 KV buffer size = 9.00 MiB')",
        "print_info: general.name = model loaded: initializing, n_slots = 1",
    ] {
        let transcript = Transcript::read(line);
        assert!(transcript.buffers.is_empty() && !transcript.has_context(), "{line}");
    }
}

/// What the stand-in for CUDA adds to an engine's log; and a later engine's word for its graph.
#[test]
fn the_stand_in_says_which_runtime_was_asked() {
    let transcript = Transcript::read(
        "plimsoll_phantom: CUDA runtime 13\n\
         0.01.874.113 I sched_reserve: graph: nodes = 998, splits = 3\n\
         plimsoll_phantom: CUDA runtime many\n\
         plimsoll_phantom: CUDA0 asked for 1 bytes",
    );
    assert!(transcript.has_context());
    assert_eq!(transcript.runtime, Some(CardInterface::Cuda(13)));
    assert!(transcript.seen.cards.is_empty());
}

/// The pool is what a card holds besides the buffers; the driver's own count is of whole granules.
#[test]
fn a_plan_after_a_prompt_has_the_engines_pool_and_says_so() {
    let recorded = recorded();
    let row = recorded.rows.iter().find(|row| row.model == "l8" && row.cards == 1).unwrap();
    let mut requested = Requested::of(row, &mut BTreeMap::new());
    let log = row.log.join("\n");
    let pool = |requested: &Requested, occupied: Bytes, taken: Bytes, cublas: bool, without_code: u32| {
        let grown = Some(GrownMemory { occupied, taken, tokens: 9000 });
        let cards = BTreeMap::from([(0, CardMemory { requested: None, grown, cublas })]);
        let seen = SeenMemory { cards, without_code };
        let mut transcript = Transcript::read(&log);
        transcript.seen = seen;
        assert_eq!(transcript.prompt(), Some(9000));
        let request = requested.request(recorded.build);
        let sizes = EngineSizes { request: &request, transcript: &transcript, program: "llama-server" };
        let plan = sizes.plan(Ok(None)).unwrap();
        plan.cards[0].terms.pool.clone()
    };
    let buffers: Bytes = terms(&plan(&requested.request(recorded.build)).unwrap(), 0).into_iter().sum();
    let (occupied, taken) = (buffers + Bytes::mib(64), buffers + Bytes::mib(66));
    let near = |pool: &PlanTerm, expected| mib(pool.bytes.unwrap()) - mib(expected);
    let driver = pool(&requested, occupied, taken, false, 0);
    assert!(near(&driver, Bytes::mib(66)).abs() < 1.0, "{driver:?}");
    assert!(driver.source.to_string().contains("after a prompt of 9000 tokens"), "{}", driver.source);
    let multiplies = pool(&requested, occupied, taken, true, 0);
    assert!(near(&multiplies, driver.bytes.unwrap()) > 60.0, "{multiplies:?}");
    let estimated = pool(&requested, occupied, taken, false, 2);
    assert!(
        estimated.source.to_string().contains("the occupancy of 2 kernels is estimated"),
        "{}",
        estimated.source
    );
    requested.cards[0].counting = Counting::Guard;
    assert!(near(&pool(&requested, occupied, taken, false, 0), Bytes::mib(64)).abs() < 1.0);
    // A card that holds less than its buffers is no card of this engine.
    let less = pool(&requested, Bytes::new(1), Bytes::new(1), false, 0);
    assert_eq!(less.bytes, Some(Bytes::ZERO));
}

/// An engine with both backends opens a device of one.
#[test]
fn an_engine_on_vulkan_is_recognised_by_the_device_that_it_opens() {
    let transcript = Transcript::read(
        "plimsoll_phantom: CUDA runtime 13\n\
         plimsoll_phantom: Vulkan device\n\
         load_tensors:      Vulkan1 model buffer size =   797.87 MiB\n\
         sched_reserve: Vulkan_Host compute buffer size =    16.01 MiB",
    );
    assert_eq!(transcript.runtime, Some(CardInterface::Vulkan));
    let rocm =
        Transcript::read("plimsoll_phantom: ROCm runtime\nload_tensors: ROCm0 model buffer size = 1.00 MiB");
    assert_eq!(rocm.runtime, Some(CardInterface::Rocm));
    assert_eq!(rocm.buffers[0].place, BufferPlace::Card(0));
    let weights = transcript.sum(BufferPlace::Card(1), BufferKind::Weights);
    assert_eq!(weights.get() >> 20, 797);
    assert_eq!(transcript.sum(BufferPlace::Host, BufferKind::Compute).get() >> 20, 16);
}

/// Where layers are in host memory, a prompt's graph differs from a token's, and both stand in the line.
#[test]
fn the_end_of_a_context_is_read_from_the_graphs_line_of_every_build() {
    for line in [
        "sched_reserve: graph nodes  = 998",
        "sched_reserve: graph nodes  = 998 (with bs=512), 966 (with bs=1)",
        "sched_reserve: graph: nodes = 1382, splits = 3, input objects = 4, input tensors = 8",
        "sched_reserve: graph (pp bs=512, tg bs=1): nodes = 1382 / 1350, splits = 390 / 3",
    ] {
        assert!(Transcript::read(line).has_context(), "{line}");
    }
    for line in ["sched_reserve: graph splits = 3", "sched_reserve: graph", "load: graph: nodes = 1"] {
        assert!(!Transcript::read(line).has_context(), "{line}");
    }
}

proptest! {
    #[test]
    fn hostile_lines_never_panic(lines in prop::collection::vec(line(), 0..40)) {
        let transcript = Transcript::read(&lines.join("\n"));
        let all: Bytes = transcript.buffers.iter().map(|buffer| buffer.bytes).sum();
        prop_assert!(transcript.sum(BufferPlace::Card(0), BufferKind::Compute) <= all);
        let _ = transcript.refusal().to_string();
    }
}

/// Lines that are nearly right, and noise.
fn line() -> impl Strategy<Value = String> {
    let nearly = (
        prop::sample::select(vec!["0.00.1 I ", "", "E ", "9 ", "\u{1b}[0m", "é "]),
        prop::sample::select(vec![
            "load_tensors",
            "sched_reserve",
            "llama_context",
            "clip_ctx",
            "",
            "x y",
            "::",
        ]),
        prop::sample::select(vec![
            "CUDA0",
            "CUDA99999999999999999999",
            "CUDA",
            "CPU_Mapped",
            "Host",
            "-",
            "",
        ]),
        prop::sample::select(vec!["model", "KV", "compute", " output", "DSV4 csa state", "", "é"]),
        prop::sample::select(vec![
            "0.00",
            "99999999999999999999",
            "18446744073709551615.9999",
            "1.12345",
            "-1",
            "1e9",
            ".",
            "",
        ]),
        prop::sample::select(vec![" MiB", " GiB", "", " MiB x"]),
    )
        .prop_map(|(prefix, function, place, kind, size, unit)| {
            format!("{prefix}{function}: {place} {kind} buffer size = {size}{unit}")
        });
    prop_oneof![nearly, any::<String>(), "[A-Za-z0-9_:. =\\-]{0,80}"]
}
