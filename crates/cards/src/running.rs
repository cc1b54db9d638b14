//! What only the running system answers, and no file that could be captured.

#[cfg(unix)]
mod linux;
#[cfg(unix)]
mod render_node;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use linux::{host, memory_regions, page, process_name};
#[cfg(windows)]
pub(crate) use windows::{host, memory_regions, page, process_name};
