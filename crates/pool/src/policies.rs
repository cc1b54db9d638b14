//! GPU memory allocator policies, those of ggml and Plimsoll's own, one file each.

mod ggml_legacy;
mod ggml_vmm;
mod ours;

pub use ggml_legacy::{GgmlLegacy, GgmlLegacyOptions};
pub use ggml_vmm::GgmlVmm;
pub use ours::{Ours, OursOptions};
