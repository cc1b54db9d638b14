//! Reads and writes private files: written atomically, and refused if other users can read them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use plimsoll_file::Replacement;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::IdentityError;

/// Largest file that is read.
const LONGEST: Bytes = Bytes::mib(4);

/// Reads a file of JSON that belongs to this user, or to root, and that others cannot read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, IdentityError> {
    let failed = |error| IdentityError::Read { path: path.to_owned(), error };
    let file = plimsoll_file::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let is_owned = about.uid() == geteuid().as_raw() || about.uid() == 0;
    if !is_owned || about.mode() & 0o077 != 0 {
        return Err(IdentityError::NotPrivate(path.to_owned()));
    }
    let text = plimsoll_file::read_open(file, LONGEST).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| IdentityError::Content { path: path.to_owned(), error })
}

/// Writes a file of JSON in one step, for this user alone; a power cut leaves the old one or this one.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), IdentityError> {
    let failed = |error| IdentityError::Write { path: path.to_owned(), error };
    let mut text = serde_json::to_vec_pretty(content).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    let private = Replacement { sync: true, ..Replacement::OWN };
    plimsoll_file::replace(path, &text, private).map_err(failed)
}

/// Makes a folder of this user alone, if it is not there.
pub(crate) fn make_folder(path: &Path) -> Result<(), IdentityError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| IdentityError::Write { path: path.to_owned(), error })
}

/// Lock of a folder against other processes, released when dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    pub(crate) fn take(folder: &Path) -> Result<Self, IdentityError> {
        let path: PathBuf = folder.join("lock");
        let failed = |error| IdentityError::Write { path: path.clone(), error };
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(Self { _file: file })
    }
}
