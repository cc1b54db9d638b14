//! Makes a private folder for each engine, which holds its socket and a replacement for /tmp.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_probe::folder::OwnedFolder;
use plimsoll_process::confinement::EngineUser;

const PREFIX: &str = "plimsoll-engine-";
/// A longer path leaves too little room for the name of a socket (`sun_path`, unix(7)).
const LONGEST_BASE: usize = 60;

/// The folder of one engine, which only its user may enter.
#[derive(Debug)]
pub(super) struct PrivateFolder(RemovedFolder);

/// A folder that is removed with this.
#[derive(Debug)]
pub(super) struct RemovedFolder(pub(super) PathBuf);

impl PrivateFolder {
    /// The folder that holds those of all engines.
    pub(super) fn root(user: Option<&EngineUser>) -> io::Result<OwnedFolder> {
        let usual = std::env::temp_dir();
        // The daemon's own TMPDIR may be closed to the other user.
        if user.is_some() || usual.as_os_str().len() > LONGEST_BASE {
            OwnedFolder::create_in(Path::new("/tmp"), PREFIX)
        } else {
            OwnedFolder::create_in(&usual, PREFIX)
        }
    }

    pub(super) fn create(root: &OwnedFolder, name: &str, user: Option<&EngineUser>) -> io::Result<Self> {
        let folder = Self(RemovedFolder(root.part(name)?));
        let tmp = folder.path().join("tmp");
        DirBuilder::new().mode(0o700).create(&tmp)?;
        if let Some(user) = user {
            hand_over(user, folder.path())?;
            user.own(&tmp)?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.0
    }
}

/// Gives a folder to the engine's user, who may pass through the one above it and not list it.
pub(super) fn hand_over(user: &EngineUser, folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::set_permissions(above, Permissions::from_mode(0o711))?;
    }
    user.own(folder)
}

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        // An engine may have left many files, and the thread that serves must not wait for the disk.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || fs::remove_dir_all(path))),
            Err(_) => drop(fs::remove_dir_all(path)),
        }
    }
}
