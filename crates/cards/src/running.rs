//! Answers questions that need a system call and so cannot be read from captured files: host memory, page
//! size, Intel's memory regions.

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
