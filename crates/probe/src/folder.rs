//! Makes a private folder for this process, in memory where the system allows it, and removes it at the end.

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use linux::{OwnedFolder, page_folders};
#[cfg(windows)]
pub use windows::OwnedFolder;
