//! Creates the file of API keys on Linux, readable by its owner alone.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

/// Modes of the written file, with and without API keys in it.
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Options that create a file for this user alone.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(SECRET)
}

pub(super) fn set_readers(file: &File, has_secrets: bool) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(if has_secrets { SECRET } else { PUBLIC }))
}
