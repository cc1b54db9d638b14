//! The options of guard that `run` and `serve` share: the rungs of the ladder, and what becomes of pools.

use clap::{Args, ValueEnum};
use plimsoll_base::Bytes;
use plimsoll_config::GuardWish;
use plimsoll_wire::options::GgmlPoolMode as Pool;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "When a request for memory does not fit")]
pub(crate) struct Rungs {
    /// Give back what guard's own pools hold idle, and ask again
    #[arg(long)]
    reuse: bool,
    /// Build a request that is refused in one piece from chunks of this size
    #[arg(long, value_name = "SIZE")]
    chunk: Option<Bytes>,
    /// Ask plimsoll to make room: under `serve`, idle models on that card leave and the budget is raised
    #[arg(long)]
    reclaim: bool,
    /// Wait up to so many seconds for room
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    /// Let up to this much of what does not fit lie in host memory
    #[arg(long, value_name = "SIZE")]
    spill: Option<Bytes>,
    /// With --spill: what the program asks of each card in all, so that what it asks for first overflows (weights) and not what
    /// comes last (KV cache, scratch); llama.cpp's programs are planned without it
    #[arg(long, value_name = "SIZE", requires = "spill")]
    need: Option<Bytes>,
    /// With --spill: the same by hand: a request of more than this leaves this much to smaller ones
    #[arg(long, value_name = "SIZE", requires = "spill")]
    keep: Option<Bytes>,
    /// Answer a refused request with managed memory, the whole of it (as llama.cpp PR 22158 would)
    #[arg(long, value_name = "HOW")]
    on_oom: Option<OnOom>,
    /// What becomes of ggml's legacy pool: served by guard, made of managed memory, or left alone
    #[arg(long, value_name = "WHOSE", help_heading = "Pools")]
    pool: Option<PoolChoice>,
    /// Tell the program that its cards have no virtual memory management, so that ggml takes its legacy pool
    #[arg(long, help_heading = "Pools")]
    hide_vmm: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnOom {
    Managed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PoolChoice {
    Ours,
    Managed,
    Leave,
}

impl Rungs {
    pub(crate) fn wish(&self) -> GuardWish {
        let said = |flag: bool| flag.then_some(true);
        GuardWish {
            reuse: said(self.reuse),
            chunk: self.chunk,
            reclaim: said(self.reclaim),
            wait: self.wait,
            spill: self.spill,
            need: self.need,
            keep: self.keep,
            pool: self.pool.map(|pool| match pool {
                PoolChoice::Ours => Pool::Ours,
                PoolChoice::Managed => Pool::Managed,
                PoolChoice::Leave => Pool::Leave,
            }),
            on_oom_managed: self.on_oom.map(|OnOom::Managed| true),
            hide_vmm: said(self.hide_vmm),
            ..GuardWish::default()
        }
    }
}
