//! Windows' half: who may read a file is inherited from its folder.

use std::fs::{File, OpenOptions};
use std::io;

pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

pub(super) fn set_readers(_: &File, _: bool) -> io::Result<()> {
    Ok(())
}
