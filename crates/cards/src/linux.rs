//! Reads a Linux machine's cards and memory from `/proc`, `/sys` and `/etc`, and by queries to render nodes.
//!
//! They are the live system's, or were captured from another machine into a folder. Captured files are
//! untrusted input, so links are resolved inside the folder.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use plimsoll_base::{Bytes, Order};
use plimsoll_host::{ProcTree, Unseen};

use crate::kernel::{CardFiles, IntelDriver};
use crate::running;

/// More than any file of `/proc` or `/sys` that is asked for; a captured log may be this long.
const LARGEST: Bytes = Bytes::mib(64);
/// Links that are followed for one path, as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// Names in a folder that are looked at. `/proc` of a large server has tens of thousands.
const MOST_NAMES: usize = 1 << 16;
/// Beginning of the names of GPUs' device files.
const GPU_FILES: &str = "/dev/dri/";

#[derive(Debug, thiserror::Error)]
#[error("cannot read the captured file tree {}: {error}\nhint: name a folder that contains proc/, sys/ and \
    etc/", path.display())]
pub struct OpenSysrootError {
    path: PathBuf,
    error: io::Error,
}

/// Tree of `/proc`, `/sys`, `/etc` and log files.
#[derive(Clone, Debug)]
pub struct Sysroot {
    root: PathBuf,
    live: bool,
}

impl Sysroot {
    /// The machine itself, now.
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), live: true }
    }

    /// A tree that was captured.
    pub fn captured(folder: &Path) -> Result<Self, OpenSysrootError> {
        let fail = |error| OpenSysrootError { path: folder.to_owned(), error };
        // Links on the way to the folder are this machine's and are resolved here; those below it are the
        // capture's.
        let root = folder.canonicalize().map_err(fail)?;
        fs::read_dir(&root).map_err(fail)?;
        Ok(Self { root, live: false })
    }

    /// The captured tree in `folder`, or the machine itself.
    pub fn of(folder: Option<&Path>) -> Result<Self, OpenSysrootError> {
        folder.map_or_else(|| Ok(Self::live()), Self::captured)
    }

    pub fn is_live(&self) -> bool {
        self.live
    }

    /// True on a Jetson, whose engines take their pool from plain cudaMalloc.
    pub(crate) fn is_tegra(&self) -> bool {
        self.path("etc/nv_tegra_release").is_ok_and(|path| path.exists())
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        if self.live {
            return Ok(self.root.join(path));
        }
        resolved(&self.root, Path::new(path))
    }
}

impl ProcTree for Sysroot {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unseen> {
        self.path(path).and_then(|path| read_file(&path, self.live)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unseen::Missing,
            io::ErrorKind::PermissionDenied => Unseen::Forbidden,
            _ => Unseen::Unreadable,
        })
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = self.path(path).and_then(fs::read_dir);
        let names = entries.into_iter().flatten().flatten().take(MOST_NAMES);
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // A directory lists its names in no order; two reports on one capture must be equal.
        names.order();
        names
    }

    fn page(&self) -> Option<Bytes> {
        // A captured machine may have other pages (64 KiB on some aarch64 kernels), so ours say nothing about
        // it.
        running::page().filter(|_| self.live)
    }
}

impl CardFiles for Sysroot {
    fn is_live(&self) -> bool {
        self.live
    }

    /// On the live machine only those that are open on a GPU: a machine has tens of thousands of others.
    fn descriptors(&self, pid: u32) -> Vec<String> {
        if !self.live {
            return self.list(&format!("proc/{pid}/fdinfo"));
        }
        let folder = format!("proc/{pid}/fd");
        let is_of_gpu = |name: &String| {
            let target = fs::read_link(self.root.join(&folder).join(name));
            target.is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(GPU_FILES.as_bytes()))
        };
        self.list(&folder).into_iter().filter(is_of_gpu).collect()
    }

    fn memory_regions(&self, minor: u32, driver: IntelDriver) -> Option<Vec<u8>> {
        if !self.live {
            return None;
        }
        running::memory_regions(&self.root.join(format!("dev/dri/renderD{minor}")), driver)
    }
}

fn read_file(path: &Path, is_live: bool) -> io::Result<Vec<u8>> {
    // The kernel's own files are not asked what they are: a swap of models waits for some of them.
    if !is_live {
        return plimsoll_file::read(path, LARGEST);
    }
    // Files of /proc and /sys state no length. Room for most files makes one read instead of six.
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(LARGEST.get()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Resolves `path` inside `root`, which is `/` to every link on the way.
fn resolved(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut waiting: Vec<PathBuf> = components(path);
    let mut inside: Vec<PathBuf> = Vec::new();
    let mut links = 0;
    while let Some(name) = waiting.pop() {
        // `..` at the root stays there, as `/..` does in the kernel.
        if name.as_os_str() == ".." {
            inside.pop();
            continue;
        }
        let at = root.join(inside.iter().collect::<PathBuf>()).join(&name);
        if !fs::symlink_metadata(&at)?.file_type().is_symlink() {
            inside.push(name);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let target = fs::read_link(&at)?;
        // `/` of the captured tree, not of this machine.
        if target.is_absolute() {
            inside.clear();
        }
        waiting.extend(components(&target));
    }
    Ok(root.join(inside.iter().collect::<PathBuf>()))
}

/// The names of a path, the first one last.
fn components(path: &Path) -> Vec<PathBuf> {
    let names = path.components().rev();
    let names = names.filter(|name| matches!(name, Component::Normal(_) | Component::ParentDir));
    names.map(|name| PathBuf::from(name.as_os_str())).collect()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Sysroot) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("root/proc/gpus/b")).unwrap();
        fs::create_dir(folder.path().join("root/proc/gpus/a")).unwrap();
        fs::write(folder.path().join("root/proc/meminfo"), "inside").unwrap();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        let tree = Sysroot::captured(&folder.path().join("root")).unwrap();
        (folder, tree)
    }

    #[test]
    fn files_are_read_and_folders_listed_in_order() {
        let (_folder, tree) = tree();
        assert_eq!(tree.read("proc/meminfo").unwrap(), b"inside");
        assert_eq!(tree.list("proc/gpus"), ["a", "b"]);
        assert_eq!(tree.read("proc/none"), Err(Unseen::Missing));
        assert_eq!(tree.read("proc/meminfo/x"), Err(Unseen::Missing));
        assert_eq!((tree.list("none"), tree.page()), (Vec::new(), None));
    }

    #[test]
    fn no_link_leads_out() {
        let (folder, tree) = tree();
        let root = folder.path().join("root");
        symlink("/proc/meminfo", root.join("absolute")).unwrap();
        symlink("../../secret", root.join("up")).unwrap();
        symlink(folder.path().join("secret"), root.join("out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        assert_eq!(tree.read("absolute").unwrap(), b"inside");
        assert_eq!(tree.read("proc/../../../proc/meminfo").unwrap(), b"inside");
        for name in ["up", "out", "loop", "../secret"] {
            assert!(tree.read(name).is_err(), "{name}");
        }
    }

    #[test]
    fn fifos_and_folders_are_unreadable_in_a_sysroot() {
        let (folder, tree) = tree();
        let fifo = folder.path().join("root/fifo");
        let created = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(created.success());
        assert_eq!(tree.read("fifo"), Err(Unseen::Unreadable));
        assert_eq!(tree.read("proc"), Err(Unseen::Unreadable));
    }

    #[test]
    fn a_tree_that_is_none_is_named() {
        let error = Sysroot::captured(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
        let here = Sysroot::live();
        assert!(here.read("proc/meminfo").unwrap().starts_with(b"MemTotal"));
        assert!(here.page().is_some());
    }
}
