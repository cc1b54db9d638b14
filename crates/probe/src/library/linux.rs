//! Linux' half: the libraries' file names, and paths that LD_PRELOAD can carry.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The command that builds them.
pub(super) const CHORE: &str = "cargo xtask guard";
pub(super) const GUARD: &str = "libplimsoll_guard.so";
pub(super) const PHANTOM: &str = "libplimsoll_phantom.so";

/// False for a path that the loader would split: it knows no escape for a separator in LD_PRELOAD (ld.so(8)).
pub(super) fn can_be_preloaded(path: &Path) -> bool {
    let splits = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    !path.as_os_str().as_bytes().iter().any(splits)
}
