//! Writes files that survive a restart of the daemon, readable only by its user.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_base::{Bytes, Order};
use plimsoll_probe::own_file;

/// A longer file was not written by this program.
pub(super) const LONGEST: Bytes = Bytes::mib(1);
/// Files of other configurations beside this one.
const MOST_FILES: usize = 32;

/// A file of one configuration; without a state folder nothing is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct StateFile(Option<PathBuf>);

impl StateFile {
    /// The file of this kind, which is the beginning of its name.
    pub(super) fn of(configuration: &Path, kind: &str) -> Self {
        let of_user = || Some(plimsoll_file::user_base("XDG_STATE_HOME", ".local/state")?.join("plimsoll"));
        let base = plimsoll_file::absolute("STATE_DIRECTORY").or_else(of_user);
        let mut hasher = DefaultHasher::new();
        fs::canonicalize(configuration).unwrap_or_else(|_| configuration.to_owned()).hash(&mut hasher);
        Self(base.map(|base| base.join(format!("{kind}-{:016x}.json", hasher.finish()))))
    }

    /// Its bytes; none of a file that others may write.
    pub(super) fn read(&self) -> Vec<u8> {
        self.0.as_deref().and_then(|path| own_file::read(path, LONGEST).ok()).unwrap_or_default()
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let Some((path, folder)) = self.0.as_deref().and_then(|path| Some((path, path.parent()?))) else {
            return Ok(());
        };
        let written = own_file::write(path, bytes);
        forget_oldest(path, folder);
        written
    }

    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        Self(Some(path))
    }
}

/// Removes the files of the same kind of configurations that wrote one longest ago.
fn forget_oldest(path: &Path, folder: &Path) {
    let kind =
        |path: &Path| Some(path.file_name()?.to_str()?.strip_suffix(".json")?.split_once('-')?.0.to_owned());
    let own = kind(path);
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<(SystemTime, PathBuf)> = files
        .filter(|path| own.is_some() && kind(path) == own)
        .filter_map(|path| Some((path.symlink_metadata().ok()?.modified().ok()?, path)))
        .collect();
    files.order();
    for (_, path) in files.iter().rev().skip(MOST_FILES) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_many_configurations_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..100 {
            let path = folder.path().join(format!("failures-{number}.json"));
            StateFile::at(path).write(b"x").unwrap();
        }
        fs::write(folder.path().join("other.json"), "").unwrap();
        StateFile::at(folder.path().join("needs-0.json")).write(b"x").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST_FILES + 2);
    }
}
