//! GPU memory allocator policies, such as those of ggml, PyTorch, RMM and Plimsoll, one file each.

mod direct;
mod ggml_legacy;
mod ggml_vmm;
mod ours;
mod pytorch;
mod rmm;

pub use direct::Direct;
pub use ggml_legacy::{GgmlLegacy, GgmlLegacyOptions};
pub use ggml_vmm::GgmlVmm;
pub use ours::{Ours, OursOptions};
pub use pytorch::{Pytorch, PytorchMode};
pub use rmm::RmmPool;
