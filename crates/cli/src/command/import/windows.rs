//! Creates the file of API keys on Windows, where its folder decides who may read it.

use std::fs::{File, OpenOptions};
use std::io;

pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

pub(super) fn set_readers(_: &File, _: bool) -> io::Result<()> {
    Ok(())
}
