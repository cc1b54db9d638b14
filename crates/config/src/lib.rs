//! Reads configuration files: Plimsoll's own TOML, llama-server's `--models-preset` INI and llama-swap's
//! YAML.
//!
//! All three formats are read into one [`Configuration`]; the rest of the program does not depend on the
//! format.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod before_load;
mod card_variables;
mod command;
mod compose;
mod container;
mod depth;
mod duration;
mod engine_flags;
mod engine_kind;
mod exposure;
mod failure;
mod filters;
mod guard;
mod key;
mod listen;
mod llama_swap;
mod log;
mod native;
mod parse;
mod pattern;
mod ports;
mod preset;
mod proxy_address;
mod roster;
mod serve_settings;
mod serve_values;
mod shell;
mod yaml;

pub use before_load::ReclaimBeforeLoad;
pub use depth::TooLarge;
pub use duration::parse as parse_duration;
pub use engine_flags::{LeftOutFlag, flags_left_out, llama_server_in, own_llama_server};
pub use engine_kind::{CardPart, CommandKind, Freeing, SglangReserve};
pub use failure::{ConfigError, ConfigMistakes, ConfigProblem};
pub use filters::{DerivedFilters, RequestFilters};
pub use guard::{GuardMode, GuardSettings, GuardedCard, OnOom, PoolChoice};
pub use key::{ConfiguredKey, KeyRight, KeySecret};
pub use listen::{listen_address, listen_addresses};
pub use log::{LogFormat, LogLevel};
pub use native::{ChangeFlagsError, PUBLISHED_SCHEMA, WrittenFlags, schema};
pub use parse::{LONGEST_CONFIGURATION, parse, parse_all, parse_each, word};
pub use pattern::fits_pattern;
pub use proxy_address::ProxyAddress;
pub use roster::{
    CHECK, Configuration, ConfiguredModel, ConfiguredPlacement, Launch, PID, PORT, RefusedModel, UnfitModel,
};
pub use serve_settings::ServeSettings;
pub use serve_values::{reserve_size, web_origin};

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_config;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
