//! Tests of `diagnose` through the public interface: logs, damaged input, and the order in which bytes
//! arrive.

mod cache_hints;
mod followed;
mod formats;
mod hints;
mod hostile;
mod innocent;
mod kills;
mod logs;
#[cfg(unix)]
mod long_lines;
mod proof;
mod remedies;
mod reported;
mod room;
mod sceptic;
mod training;
mod vendors;
mod vllm_share;
