//! Tests of `diagnose` through the public interface: logs, damaged input, and the order in which bytes
//! arrive.

mod cache_hints;
mod followed;
mod formats;
mod hostile;
mod innocent;
mod logs;
mod long_lines;
mod remedies;
mod sceptic;
mod told;
mod training;
mod vllm_share;
