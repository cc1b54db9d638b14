//! llama-server's command-line flags: a table of all flags, their parser, and the parameters that they set.
//!
//! [`Options`] stores the flags as typed; [`ModelParams`] has the parameters that affect memory.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod device;
mod engine;
mod failure;
mod given;
mod number;
mod options;
mod origin;
mod params;
mod program;
pub mod table;
mod value;
mod warning;

pub use device::{CARD_INTERFACES, device_number};
pub use engine::{EngineBuild, EngineKind, ParseEngineError};
pub use failure::{FlagError, FlagProblem, joined, quoted};
pub use given::GivenFlag;
pub use options::{Options, Setting, is_variable};
pub use origin::FlagOrigin;
pub use params::{
    BufferOverride, FlashAttention, GpuLayers, ModelParams, NgramTokens, Parallel, RemoteSource, SplitMode,
};
pub use program::{ParseProgramError, ProgramKind};
pub use value::{FlagValue, truth};
pub use warning::Warning;
