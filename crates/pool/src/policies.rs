//! GPU memory allocator policies, those of ggml and Plimsoll's own, one file each.

mod direct;
mod ggml_legacy;
mod ggml_vmm;
mod ours;

pub use direct::Direct;
pub use ggml_legacy::{GgmlLegacy, GgmlLegacyOptions};
pub use ggml_vmm::GgmlVmm;
pub use ours::{Ours, OursOptions};
