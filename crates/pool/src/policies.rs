//! Lists the models of GPU memory allocators that can be compared: ggml's legacy pool and Plimsoll's own.

mod ggml_legacy;
mod ours;

pub use ggml_legacy::{GgmlLegacy, GgmlLegacyOptions};
pub use ours::{Ours, OursOptions};
