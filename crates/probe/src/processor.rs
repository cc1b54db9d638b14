//! Instruction sets of this machine's processor.

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use linux::processor;
#[cfg(windows)]
pub use windows::processor;
