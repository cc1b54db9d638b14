//! Tests of plans against public logs of vLLM: weights, tokens of the cache, and the longest context.
//!
//! `data/vllm/logs.json` has the figures, with their addresses. Half of the rows were put aside, by a hash of
//! their address, until the code was final; `set` tells them apart.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_vllm::{CacheLayout, CacheSettings, ModelConfig, ServeCommand, StateHistory, VllmPlan, weights};
use serde_json::Value;

use crate::runner::checkpoint::checkpoint;

/// One log, with the model that it is of.
struct Log {
    row: Value,
    config: Value,
}

fn data(name: &str) -> Value {
    let folder = format!("{}/../../data/vllm", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap()).unwrap()
}

fn logs() -> Vec<Log> {
    let configs = data("configs");
    let rows = data("logs").as_array().unwrap().clone();
    let of = |row: Value| {
        let config = configs[row["shape"].as_str().unwrap()]["config"].clone();
        assert!(config.is_object(), "{row}");
        Log { row, config }
    };
    rows.into_iter().map(of).collect()
}

impl Log {
    fn bytes(&self, field: &str) -> Option<Bytes> {
        Some(self.row[field].as_str()?.parse().unwrap())
    }

    fn model(&self) -> ModelConfig {
        ModelConfig::read(&self.config.to_string()).unwrap()
    }

    fn command(&self) -> ServeCommand {
        let words: Vec<String> =
            self.row["flags"].as_str().unwrap().split_whitespace().map(str::to_owned).collect();
        ServeCommand::read(&words).unwrap()
    }

    fn layout(&self) -> CacheLayout {
        let command = self.command();
        let settings = CacheSettings {
            tensor_parallel: command.tensor_parallel.unwrap_or(1),
            cache_type: command.cache_type,
            block: command.block,
            has_latent_blocks: true,
            batched: command.batched.unwrap_or(2048),
            history: command.history.unwrap_or(StateHistory::Aligned),
            state_number: command.state_number,
            is_one_group: command.is_one_group,
        };
        CacheLayout::new(&self.model(), settings).unwrap()
    }

    fn context(&self) -> u64 {
        self.command().longest.unwrap_or(self.model().longest)
    }

    fn tokens(&self, memory: Bytes) -> u64 {
        let layout = self.layout();
        let blocks = layout.blocks(memory);
        match self.row["minor"].as_u64() {
            Some(minor) if minor >= 23 => layout.tokens(blocks, self.context()),
            _ => layout.tokens_by_groups(blocks),
        }
    }

    /// The plan on the card that the log names.
    fn plan(&self) -> Option<VllmPlan> {
        let total = self.bytes("total")?.whole_mib();
        let name = self.row["card"].as_str().unwrap_or("card");
        let card: CardSpec = format!("name={name},total={total}MiB,free={total}MiB,cc=9.0").parse().unwrap();
        let command = self.command();
        let number = usize::try_from(command.tensor_parallel.unwrap_or(1)).unwrap();
        let cards: Vec<Card> = vec![card.cards[0].clone(); number];
        let tensors = checkpoint(&self.config, self.row["checkpoint"].as_str()?);
        Some(VllmPlan::new(&self.model(), &tensors, &command, &cards).unwrap())
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.row["set"], self.row["source"], self.row["model"])
    }
}

/// Difference in parts of ten thousand.
fn off(found: u64, printed: u64) -> u64 {
    found.abs_diff(printed) * 10_000 / printed.max(1)
}

fn share(name: &str, found: &[(String, bool)]) -> usize {
    let held = found.iter().filter(|(_, holds)| *holds).count();
    println!("{name}: {held} of {}", found.len());
    for (log, _) in found.iter().filter(|(_, holds)| !holds) {
        println!("  not: {log}");
    }
    held * 100 / found.len().max(1)
}

#[test]
fn tokens_of_the_printed_cache_memory_are_those_that_vllm_prints() {
    let (mut exact, mut near, mut shapes) = (Vec::new(), Vec::new(), BTreeSet::new());
    for log in logs() {
        let (Some(memory), Some(printed)) = (log.bytes("cache"), log.row["tokens"].as_u64()) else {
            continue;
        };
        let tokens = log.tokens(memory);
        let name = format!("{}: {tokens} for {printed}", log.name());
        // vLLM prints the memory in hundredths of a GiB, which is the rest of the difference.
        let rounding = 10_000 * 6 / (memory.get() * 1000 / (1 << 30)).max(1);
        let is_exact = off(tokens, printed) <= rounding + 10;
        shapes.extend(is_exact.then(|| log.row["shape"].to_string()));
        exact.push((name.clone(), is_exact));
        near.push((name, off(tokens, printed) <= 1_000));
    }
    assert!(share("tokens within the rounding", &exact) >= 90);
    assert_eq!(share("tokens within 10 %", &near), 100);
    assert!(shapes.len() >= 12, "{shapes:?}");
}

#[test]
fn concurrency_is_the_one_that_vllm_prints() {
    let mut found = Vec::new();
    for log in logs() {
        let (Some(memory), Some(printed)) = (log.bytes("cache"), log.row["concurrency"].as_u64()) else {
            continue;
        };
        let layout = log.layout();
        let hundredths = layout.blocks(memory) * 100 / layout.blocks_of(log.context());
        found.push((format!("{}: {hundredths} for {printed}", log.name()), off(hundredths, printed) <= 150));
    }
    assert!(share("concurrency", &found) >= 90);
}

#[test]
fn a_sequence_needs_what_vllm_says_it_needs() {
    let mut found = Vec::new();
    for log in logs() {
        let Some(printed) = log.bytes("needed") else { continue };
        let needed = log.layout().memory_of(log.context());
        found.push((
            format!("{}: {needed} for {printed}", log.name()),
            off(needed.get(), printed.get()) <= 50,
        ));
    }
    assert!(share("needed", &found) >= 90);
}

#[test]
fn the_longest_context_is_the_one_that_vllm_estimates() {
    let mut found = Vec::new();
    for log in logs() {
        let Some(memory) = log.row["longest"][0].as_str() else { continue };
        let memory: Bytes = memory.parse().unwrap();
        let printed = log.row["longest"][1].as_u64().unwrap();
        let layout = log.layout();
        let longest = layout.longest(layout.blocks(memory), log.context());
        found.push((format!("{}: {longest} for {printed}", log.name()), off(longest, printed) <= 200));
    }
    assert!(share("longest", &found) >= 90);
}

#[test]
fn weights_are_within_three_percent_of_the_printed_ones() {
    let mut found = Vec::new();
    for log in logs() {
        let (Some(printed), Some(form)) = (log.bytes("weights"), log.row["checkpoint"].as_str()) else {
            continue;
        };
        let cards = log.command().tensor_parallel.unwrap_or(1);
        let held = weights(&checkpoint(&log.config, form), &log.model(), cards, None);
        found.push((format!("{}: {held} for {printed}", log.name()), off(held.get(), printed.get()) <= 300));
    }
    assert!(share("weights", &found) >= 90);
}

#[test]
fn the_cache_on_a_named_card_is_near_and_within_the_range() {
    let (mut near, mut within) = (Vec::new(), Vec::new());
    for log in logs() {
        let printed =
            log.bytes("cache").or_else(|| Some(log.layout().token_bytes * log.row["tokens"].as_u64()?));
        let (Some(plan), Some(printed)) = (log.plan(), printed) else { continue };
        let cache = plan.cache;
        let name = format!("{}: {:?} for {printed}", log.name(), (cache.low, cache.likely, cache.high));
        near.push((name.clone(), off(cache.likely.get(), printed.get()) <= 1_000));
        within.push((name, (cache.low..=cache.high).contains(&printed)));
    }
    let (near, within) = (share("near", &near), share("within", &within));
    assert!(near >= 75 && within >= 90, "{near} {within}");
}
