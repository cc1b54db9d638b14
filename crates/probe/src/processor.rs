//! Finds out which instruction sets this machine's processor has.

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use linux::processor;
#[cfg(windows)]
pub use windows::processor;
