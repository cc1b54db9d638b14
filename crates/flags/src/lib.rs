//! llama-server's command-line flags: the table, the options as written, and the model parameters that they set.
//!
//! The flags are data ([`table`]). [`Options`] keeps what was typed; [`Wish`] is its meaning for memory.
#![forbid(unsafe_code)]

mod failure;
mod options;
mod origin;
mod program;
pub mod table;
mod warning;
mod wish;

pub use failure::{FlagError, FlagProblem, quoted};
pub use options::{Options, Setting, Value, truth};
pub use origin::Origin;
pub use program::Program;
pub use warning::Warning;
pub use wish::{BufferOverride, FlashAttention, GpuLayers, Parallel, SplitMode, Wish};
