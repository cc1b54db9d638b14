//! What a model was asked to do: llama-server's flags, from argv, environment, preset INI, llama-swap YAML and
//! our own TOML.

mod wish;

pub use wish::{BufferOverride, FlashAttention, GpuLayers, Parallel, SplitMode, Wish};
