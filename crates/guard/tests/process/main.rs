//! Guard as it is used: preloaded into real processes, in front of a `libcuda.so.1` that has as many bytes as a test allows.

#[allow(dead_code, reason = "the skeleton: its users are being written")]
mod artefact;
mod ggml;
mod preload;
mod spill;
