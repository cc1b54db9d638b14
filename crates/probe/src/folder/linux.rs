//! Makes a private folder in a memory file system, shared with child processes and removed after its owner's
//! end.
//!
//! The owner holds a lock on a file in the folder, so a later process can find and remove folders without an
//! owner.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;
use rustix::process::getuid;

use crate::guard::{PAGES, pids};

const LOCK: &str = "owner";
/// Bytes that have to be free: a ledger, and the pages of some hundred processes.
const ROOM: u64 = 1 << 20;
/// Begin of the name of a folder that is not locked yet.
const STARTED: &str = ".new-";
/// Age of a folder that nobody is making or removing any more.
const OLD: Duration = Duration::from_secs(60);

/// Private folder of this process. Dropping it removes it.
#[derive(Debug)]
pub struct OwnedFolder {
    path: PathBuf,
    _lock: File,
}

impl OwnedFolder {
    /// Creates a folder whose name starts with `prefix`, after removing those of dead owners with such names.
    pub fn create(prefix: &str) -> io::Result<Self> {
        // A folder stays while a process under guard (the preloaded library) still writes there.
        let bases = bases();
        let mut result = Err(io::ErrorKind::NotFound.into());
        for base in &bases {
            // A base may be missing, read-only or full (a container with a small /dev/shm), so the next one
            // is tried.
            result = Self::create_in(base, prefix);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The same in a folder of the caller's choice.
    ///
    /// DECISION: a folder gets its name once it is locked, and no name is used twice. So whoever finds one of
    /// these names finds it locked, or its owner is gone.
    pub fn create_in(base: &Path, prefix: &str) -> io::Result<Self> {
        sweep(base, prefix);
        let started = format!("{STARTED}{prefix}");
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(&started).permissions(private).tempdir_in(base)?;
        let lock = File::create_new(folder.path().join(LOCK))?;
        // flock(2) belongs to the open file, so the lock goes with the process even after SIGKILL.
        lock.lock()?;
        has_room(&lock)?;
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy();
        let unique = name.strip_prefix(&started).unwrap_or_default();
        let path = base.join(format!("{prefix}{}-{unique}", std::process::id()));
        fs::rename(folder.path(), &path)?;
        let _ = folder.keep();
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a folder inside, for one child and the processes that it starts.
    pub fn part(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        private().create(&path)?;
        Ok(path)
    }
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        // A process that still writes there keeps its page; it only has no name any more.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Folders in memory first: a page is written with every allocation.
fn bases() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let bases = [Some(PathBuf::from("/dev/shm")), runtime, Some(std::env::temp_dir())];
    bases.into_iter().flatten().collect()
}

/// The folders that hold pages, of every process of this user that has some.
pub fn page_folders() -> Vec<PathBuf> {
    let folders = bases().into_iter().flat_map(|base| folders(&base, PAGES));
    let folders = folders.filter(|folder| is_ours(folder));
    // Pages lie in the folder itself or in a part for each child, so both are listed.
    folders.flat_map(|folder| parts(&folder).into_iter().chain([folder])).collect()
}

/// The folders in `base` that are named so.
fn folders(base: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| entry.path()).collect()
}

fn parts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn is_ours(folder: &Path) -> bool {
    // /dev/shm and /tmp are writable by every user, so a link with our prefix may be a stranger's; it is not
    // followed.
    fs::symlink_metadata(folder).is_ok_and(|about| about.is_dir() && about.uid() == getuid().as_raw())
}

/// Removes the folders of this user whose owners are gone.
fn sweep(base: &Path, prefix: &str) {
    let started = format!("{STARTED}{prefix}");
    for path in folders(base, &started).into_iter().filter(|path| is_ours(path) && is_old(path)) {
        let _ = fs::remove_dir_all(&path);
    }
    for path in folders(base, prefix).into_iter().filter(|path| is_ours(path) && !is_written(path)) {
        // Without the file, its removal has begun, and only a process that was killed leaves it so.
        let is_abandoned = plimsoll_file::open_nofollow(&path.join(LOCK))
            .map_or_else(|_| is_old(&path), |lock| lock.try_lock().is_ok());
        if is_abandoned {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// A process that still runs has a page in it.
fn is_written(folder: &Path) -> bool {
    parts(folder).into_iter().chain([folder.to_owned()]).any(|folder| pids(&folder).any(runs))
}

/// False for a zombie too, which stays for ever where nobody reaps it (a container without an init).
fn runs(pid: u32) -> bool {
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    process.and_then(|process| process.stat().ok()).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Finds out whether guard's pages have room beside this file: a file system in memory may have inodes and no
/// blocks. Processes that cannot share a ledger would have the whole budget each.
fn has_room(file: &File) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, ROOM) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        allocated => Ok(allocated.and_then(|()| ftruncate(file, 0))?),
    }
}

/// False where the age is not known, as after a step of the clock.
fn is_old(folder: &Path) -> bool {
    let age = fs::metadata(folder).and_then(|about| about.modified()).map(|created| created.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age >= OLD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_made_at_once_are_not_taken_for_abandoned_ones() {
        let base = tempfile::tempdir().unwrap();
        let make = || {
            for _ in 0..200 {
                let folder = OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap();
                folder.part("1").unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(make))));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn nobody_else_may_look_and_nothing_is_left_behind() {
        let base = tempfile::tempdir().unwrap();
        let folder = OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap();
        let part = folder.part("1").unwrap();
        for path in [folder.path(), &part] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        fs::write(part.join("7.page"), "").unwrap();
        drop(folder);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn folders_of_strangers_and_links_are_not_followed_or_removed() {
        let (base, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(theirs.path().join(LOCK), "").unwrap();
        let link = base.path().join("plimsoll-guard-1-a");
        std::os::unix::fs::symlink(theirs.path(), &link).unwrap();
        let file = base.path().join("plimsoll-guard-1-b");
        fs::write(&file, "").unwrap();
        let _folder = OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap();
        assert!(link.is_symlink() && file.is_file() && theirs.path().join(LOCK).exists());
    }

    #[test]
    fn a_folder_whose_age_is_unknown_is_not_removed() {
        let base = tempfile::tempdir().unwrap();
        let [unlocked, started] =
            ["plimsoll-guard-1-a", ".new-plimsoll-guard-a"].map(|name| base.path().join(name));
        let soon = std::time::SystemTime::now() + Duration::from_secs(3600);
        let long_ago = soon - Duration::from_secs(3 * 3600);
        for (time, stays) in [(soon, true), (long_ago, false)] {
            for path in [&unlocked, &started] {
                fs::create_dir_all(path).unwrap();
                File::open(path).unwrap().set_modified(time).unwrap();
            }
            drop(OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap());
            assert_eq!([unlocked.exists(), started.exists()], [stays; 2]);
        }
    }

    #[test]
    fn a_process_that_nobody_reaps_keeps_no_folder() {
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join("plimsoll-guard-1-0");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        fs::write(left.join(format!("{}.page", child.id())), "").unwrap();
        while runs(child.id()) {
            std::thread::yield_now();
        }
        let _own = OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap();
        assert!(!left.exists());
        child.wait().unwrap();
    }

    #[test]
    fn folders_of_the_dead_are_swept_and_those_of_the_living_stay() {
        let base = tempfile::tempdir().unwrap();
        let living = OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap();
        let dead = base.path().join("plimsoll-guard-1-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("4194305.page"), "").unwrap();
        let outlived = base.path().join("plimsoll-guard-1-1");
        fs::create_dir_all(outlived.join("3")).unwrap();
        fs::write(outlived.join(LOCK), "").unwrap();
        fs::write(outlived.join("3").join(format!("{}.page", std::process::id())), "").unwrap();
        let unlocked_yet = base.path().join("plimsoll-guard-1-2");
        fs::create_dir(&unlocked_yet).unwrap();
        let stranger = base.path().join("something-else");
        fs::create_dir(&stranger).unwrap();

        let second = OwnedFolder::create_in(base.path(), "plimsoll-guard-").unwrap();
        assert!(!dead.exists());
        for path in [living.path(), second.path(), &outlived, &unlocked_yet, &stranger] {
            assert!(path.exists(), "{}", path.display());
        }
    }
}
