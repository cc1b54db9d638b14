//! What a model was asked to do: llama-server's flags, from argv, environment, preset INI, llama-swap YAML and
//! our own TOML.
//!
//! The flags are data ([`table`]). What was typed is [`Options`]; what it means for memory is [`Wish`]; what a
//! whole file says is a [`Roster`], whichever of the three formats it is written in.

mod before_load;
mod command;
mod depth;
mod duration;
mod failure;
mod guard;
mod llama_swap;
mod native;
mod options;
mod origin;
mod preset;
mod program;
mod roster;
pub mod table;
mod wish;

pub use before_load::ReclaimBeforeLoad;
pub use depth::TooLarge;
pub use failure::{ConfigError, FlagError, FlagProblem, Problem};
pub use guard::{GuardMode, GuardWish, GuardedCard};
pub use native::schema;
pub use options::{Options, Setting, Value};
pub use origin::Origin;
pub use program::Program;
pub use roster::{Entry, Launch, PID, PORT, Roster, ServeSettings, Warning, parse};
pub use wish::{BufferOverride, FlashAttention, GpuLayers, Parallel, SplitMode, Wish};
