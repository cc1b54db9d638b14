//! Tests of the layouts of cache allocations, which guard compares with a program's requests to the byte.

use plimsoll_base::{Bytes, CacheOverflow, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model};
use plimsoll_planner::{CardPlan, DividedCard, EngineBuild, Plan, PlanRequest, guard_budget, plan};
use plimsoll_specimens::{shape, specimen};

fn planned(name: &str, flags: &str, cards: &[&str]) -> Plan {
    let cards: Vec<Card> = cards.iter().map(|card| card.parse().unwrap()).collect();
    planned_on(name, flags, &cards)
}

fn planned_on(name: &str, flags: &str, cards: &[Card]) -> Plan {
    let draft = specimen(name).unwrap_or_else(|| shape(name).unwrap().files(1).remove(0));
    let header = draft.header();
    let length = u64::try_from(header.len()).unwrap() + draft.data_length().get();
    let model = Model::from_headers(&[Header::read(&header, length, Dialect::Ggml).unwrap()]).unwrap();
    let words: Vec<String> =
        flags.split_ascii_whitespace().chain(["-ngl", "99"]).map(str::to_owned).collect();
    let options = Options::from_argv(&words).unwrap();
    let request = PlanRequest {
        model: &model,
        draft: None,
        projector: None,
        params: &options.params(ProgramKind::LlamaServer).unwrap(),
        engine: EngineBuild::LLAMA_CPP,
        program: ProgramKind::LlamaServer,
        cards,
        contexts: &[],
        processor: None,
    };
    plan(&request).unwrap()
}

fn cards(name: &str, flags: &str, cards: &[&str]) -> Vec<CardPlan> {
    planned(name, flags, cards).cards
}

fn hints(name: &str, flags: &str, cards: &[&str]) -> Vec<String> {
    planned(name, flags, cards).hints.iter().map(ToString::to_string).collect()
}

#[test]
fn the_end_of_the_cache_is_the_last_advice_with_the_depth_at_full_speed() {
    let card = ["name=X,total=8GiB,free=8GiB,cc=9.0"];
    let hints = hints("l8", "-c 65536 -np 1 -fa on", &card);
    let stated = hints.last().unwrap();
    // As guard said on an H200 under this budget (`data/measured/h200-spill-depth-0.5.0.json`).
    assert!(stated.contains("the first 21504 tokens of a conversation are at full speed"), "{stated}");
    // K and V of 32 layers, 2048 bytes each.
    assert!(
        stated.contains("each new token reads 125 MiB over the bus for every 1000 further tokens"),
        "{stated}"
    );
    assert!(
        !self::hints("l8", "-c 65536 -np 1 -fa on", &["name=X,total=4GiB,cc=9.0"])
            .concat()
            .contains("--spill")
    );
    assert_eq!(self::hints("l8", "-c 4096 -np 1 -fa on", &card), [""; 0]);
}

/// The overflow of a model under a budget on an H200.
fn overflow(name: &str, flags: &str, budget: Bytes) -> CacheOverflow {
    let card: Card = "name=NVIDIA H200,total=141GiB,cc=9.0".parse().unwrap();
    let card = card.guarded(budget);
    let plan = planned_on(name, flags, std::slice::from_ref(&card));
    DividedCard::new(&card, &plan.cards[0], plan.cards[0].peak).unwrap().overflow().unwrap()
}

#[test]
fn the_depth_at_full_speed_is_what_guard_printed_under_the_same_budget() {
    let file = include_str!("../../../data/measured/h200-spill-depth-0.5.0.json");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    for case in file["cases"].as_array().unwrap() {
        let text = |key: &str| case[key].as_str().unwrap();
        let flags = format!("{} -fa on", text("flags"));
        let overflow = overflow(text("model"), &flags, text("budget").parse().unwrap());
        let printed = case["positions"].as_u64().unwrap();
        // Half a granule of a tensor whose position has 2048 bytes. The hybrid's plan is 22 MiB less than it
        // asked for, which is one granule of each tensor.
        let most = if text("case") == "hybrid" { 1024 } else { 512 };
        assert!(
            overflow.tokens.abs_diff(printed) <= most,
            "{}: {} of {printed}",
            text("case"),
            overflow.tokens
        );
    }
}

#[test]
fn the_smallest_share_keeps_its_promise() {
    let card: Card = "name=X,total=80GiB,cc=9.0".parse().unwrap();
    let plan = planned_on("l8", "-c 65536 -np 1 -fa on", std::slice::from_ref(&card));
    let peak = plan.cards[0].peak;
    let cache = DividedCard::new(&card, &plan.cards[0], peak).unwrap();
    for spill in [Bytes::gib(1), Bytes::gib(4), Bytes::gib(64)] {
        let least = cache.least(spill);
        let card = card.clone().guarded(guard_budget(&card, least));
        let plan = planned_on("l8", "-c 65536 -np 1 -fa on", std::slice::from_ref(&card));
        let overflow =
            DividedCard::new(&card, &plan.cards[0], plan.cards[0].peak).unwrap().overflow().unwrap();
        assert!(overflow.on_host <= spill, "{spill}: {overflow:?}");
        assert!(overflow.tokens >= 4096, "{spill}: {overflow:?}");
    }
    assert!(cache.least(Bytes::gib(4)) + Bytes::mib(3900) < peak);
}

#[test]
fn the_price_of_further_positions_is_what_an_engine_took() {
    let run = include_str!("../../../data/measured/h200-spill-exchange-0.5.0.json");
    let serve = include_str!("../../../data/measured/h200-serve-spill-0.5.0.json");
    for (file, way, depths) in [(run, "exchange", &[30_000, 60_000][..]), (serve, "served", &[30_000])] {
        let measured: serde_json::Value = serde_json::from_str(file).unwrap();
        let decode = |way: &str, depth: u64| {
            let mut rows = measured["rows"].as_array().unwrap().iter();
            let row = rows.find(|row| row["case"] == "f16" && row["way"] == way).unwrap();
            let mut results = row["results"].as_array().unwrap().iter();
            results.find(|result| result["depth"] == depth).unwrap()["decode"].as_f64().unwrap()
        };
        for &depth in depths {
            let beyond = (depth - measured["positions"].as_u64().unwrap()) as f64 / 1000.0;
            let seconds =
                1.0 / decode("bare", depth) + beyond * measured["ms_per_1000"].as_f64().unwrap() / 1000.0;
            let ratio = decode(way, depth) * seconds;
            assert!((0.85..1.15).contains(&ratio), "{way}, {depth}: {ratio}");
        }
    }
}

const CARD: &[&str] = &["name=X,total=80GiB,cc=9.0"];

/// The layouts of one card as guard gets them, and the planned bytes of its caches.
fn layouts(name: &str, flags: &str) -> (Vec<String>, u64) {
    let card = cards(name, flags, CARD).remove(0);
    (card.caches.iter().map(ToString::to_string).collect(), card.terms.kv.known().get())
}

#[test]
fn a_dense_model_has_one_allocation_with_all_layers() {
    let (caches, kv) = layouts("l8", "-c 65536 -np 1 -fa on");
    assert_eq!(caches, ["1:65536:32x2048/134217728,2048/134217728"]);
    assert_eq!(kv, 8192 << 20);
    let (caches, kv) = layouts("l8", "-c 65536 -np 4 -fa on -ctk q8_0 -ctv q4_0");
    assert_eq!(caches, ["4:16384:32x1088/71303168,576/37748736"]);
    assert_eq!(kv, 32 * (71_303_168 + 37_748_736));
}

#[test]
fn a_transposed_value_has_no_rows() {
    let (caches, _) = layouts("l8", "-c 4096 -np 1 -fa off");
    assert_eq!(caches, ["1:4096:32x2048/8388608,0/8388608"]);
}

#[test]
fn windows_and_recurrent_states_are_left_out() {
    for (name, flags) in [("gemma3-4b", "-c 32768 -np 1 -fa on"), ("qwen35-9b", "-c 32768 -np 1 -fa on")] {
        let (caches, kv) = layouts(name, flags);
        let size = |text: &String| plimsoll_wire::cache::CacheLayout::read(text).unwrap().size();
        let divisible: u64 = caches.iter().map(size).sum();
        assert!(divisible > 0 && divisible < kv, "{name}: {caches:?} of {kv}");
    }
    let (caches, kv) = layouts("gemma3-4b", "-c 32768 -np 1 -fa on --swa-full");
    let size = |text: &String| plimsoll_wire::cache::CacheLayout::read(text).unwrap().size();
    assert_eq!(caches.len(), 2, "the layers with a window are an allocation of their own");
    assert_eq!(caches.iter().map(size).sum::<u64>(), kv);
}

#[test]
fn each_card_has_the_layers_that_are_on_it_and_host_memory_none() {
    let two = cards(
        "l8",
        "-c 8192 -np 1 -fa on -ts 1,1",
        &["name=A,total=24GiB,cc=8.6", "name=B,total=24GiB,cc=8.6"],
    );
    for card in &two {
        assert_eq!(card.caches.iter().map(|cache| cache.size()).sum::<u64>(), card.terms.kv.known().get());
    }
    assert_eq!(cards("l8", "-c 8192 -nkvo", CARD)[0].caches, []);
}

#[test]
fn the_weights_of_a_server_are_one_allocation_on_each_card() {
    for (name, flags) in
        [("l8", "-c 4096 -fa on"), ("l8", "-c 4096 -fa on -ngl 12"), ("q30", "-c 4096 -fa on")]
    {
        let card = cards(name, flags, CARD).remove(0);
        assert_eq!(card.weights_allocation, card.terms.weights.bytes, "{name} {flags}");
    }
    // The first requests of llama.cpp 0.5.0 on an H200 (`data/measured/h200-requests-0.5.0.json`).
    for (name, requested) in [("l8", 4_876_918_784), ("gemma3-4b", 2_609_734_912)] {
        let allocation = cards(name, "-c 8192 -fa on", CARD).remove(0).weights_allocation;
        assert_eq!(allocation.map(|bytes| bytes.get()), Some(requested), "{name}");
    }
    let two = ["name=X,total=80GiB,cc=9.0", "name=X,total=80GiB,cc=9.0"];
    let cards = cards("l8", "-c 4096 -fa on", &two);
    assert!(cards.iter().all(|card| card.weights_allocation == card.terms.weights.bytes));
    assert_eq!(self::cards("l8", "-c 4096", &["name=ram,kind=host,total=64GiB"])[0].weights_allocation, None);
}
