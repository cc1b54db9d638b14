//! Computes the memory that vLLM takes for a model: the weights on each card, the KV cache, and what a card
//! needs besides.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod cache;
mod command;
mod company;
mod config;
mod fields;
mod header;
mod layers;
mod plan;
mod profile;
mod shards;
mod weights;

pub use cache::{CacheLayout, CacheSettings, CacheType, StateHistory};
pub use command::{CommandError, ServeCommand};
pub use company::{CONTEXT, Neighbour, Start, Together, together};
pub use config::{Attention, ModelConfig, StateShape};
pub use fields::ConfigError;
pub use header::{DType, Header, HeaderError, Tensor};
pub use layers::Layer;
pub use plan::{Answers, PlanError, Term, Utilisation, VllmPlan};
pub use profile::{Profile, Range};
pub use shards::{ShardsError, shards};
pub use weights::{LoadedAs, weights};

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_vllm;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
