//! Windows' half: the libraries' file names. A thread in the program loads them, by any path.

use std::path::Path;

/// The command that builds them.
pub(super) const CHORE: &str = "cargo xtask windows";
pub(super) const GUARD: &str = "plimsoll_guard.dll";
pub(super) const PHANTOM: &str = "plimsoll_phantom.dll";

pub(super) fn can_be_preloaded(_: &Path) -> bool {
    true
}
