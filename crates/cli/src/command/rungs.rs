//! Command-line options of guard, the preloaded library that limits GPU memory. `plimsoll run` and `plimsoll
//! serve` share them.
//!
//! They choose the remedies for refused allocations and the memory pool.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll_base::Bytes;
use plimsoll_config::{GuardSettings, OnOom, PoolChoice, reserve_size, word};
use serde::de::DeserializeOwned;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "When an allocation does not fit")]
pub(crate) struct OomLadder {
    /// Free the idle memory of guard's own pools, then retry
    #[arg(long)]
    reuse: bool,
    /// Build an allocation that is refused in one piece from chunks of this size, e.g. 2MiB
    #[arg(long, value_name = "SIZE", value_parser = reserve_size)]
    chunk: Option<Bytes>,
    /// Ask plimsoll serve to make room: idle models on that card are unloaded, and the budget is raised
    #[arg(long)]
    reclaim: bool,
    /// Wait up to this many seconds for memory to become free
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    /// Put what does not fit on the card into host memory, up to this size
    #[arg(long, value_name = "SIZE", value_parser = reserve_size)]
    spill: Option<Bytes>,
    /// With --spill: total memory that the program will allocate on each card, so that its first allocations
    /// (weights) overflow and not its last (KV cache). By default, this size is planned for llama.cpp's
    /// programs
    #[arg(long, value_name = "SIZE", value_parser = reserve_size, requires = "spill")]
    need: Option<Bytes>,
    /// With --spill: keep this much of the budget for allocations that are smaller than this size
    #[arg(long, value_name = "SIZE", requires = "spill")]
    keep: Option<Bytes>,
    /// Answer a refused allocation with managed memory, which moves pages to and from the card
    #[arg(long, value_name = "HOW", value_parser = words::<OnOom>(&["managed"]))]
    on_oom: Option<OnOom>,
    /// Replacement for ggml's legacy pool: guard's own, or none
    #[arg(long, value_name = "POOL", help_heading = "Pools", value_parser = words::<PoolChoice>(&["ours", "leave"]))]
    pool: Option<PoolChoice>,
    /// Report to the program that the cards have no virtual memory management, so that ggml uses its legacy
    /// pool
    #[arg(long, help_heading = "Pools")]
    hide_vmm: bool,
}

/// A parser of an option's words, each read as in a configuration file.
pub(crate) fn words<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    known: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(known)
        .try_map(|text| word(&text).ok_or("this is not a valid value for the option"))
}

impl OomLadder {
    pub(crate) fn params(&self) -> GuardSettings {
        // An absent flag must be `None`, not `Some(false)`, which would override the configuration file.
        let stated = |flag: bool| flag.then_some(true);
        GuardSettings {
            reuse: stated(self.reuse),
            chunk: self.chunk,
            reclaim: stated(self.reclaim),
            wait: self.wait,
            spill: self.spill,
            need: self.need,
            keep: self.keep,
            pool: self.pool,
            on_oom: self.on_oom,
            hide_vmm: stated(self.hide_vmm),
            // Budget, mode and contexts come from other options, which `run` and `serve` define differently.
            ..GuardSettings::default()
        }
    }
}
