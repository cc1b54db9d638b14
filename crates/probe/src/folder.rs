//! Private folder of this process, in memory where the system has such a file system, and removed with its
//! owner.

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use linux::{OwnedFolder, page_folders};
#[cfg(windows)]
pub use windows::OwnedFolder;
