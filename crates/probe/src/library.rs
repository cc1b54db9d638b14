//! Finds Plimsoll's shared libraries: guard (preloaded into programs) and phantom (CUDA without a GPU).

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plimsoll_wire::env::{GUARD_LIBRARY, PHANTOM_LIBRARY};

#[cfg(unix)]
use self::linux as system;
#[cfg(windows)]
use self::windows as system;

/// The library that is preloaded into programs that use a card.
pub const GUARD: Library =
    Library { title: "guard library", file: system::GUARD, variable: GUARD_LIBRARY, chore: system::CHORE };

/// CUDA, ROCm and Vulkan without a card, for engines that are asked what they would take.
pub const PHANTOM: Library = Library {
    title: "stand-in for CUDA, ROCm and Vulkan",
    file: system::PHANTOM,
    variable: PHANTOM_LIBRARY,
    chore: system::CHORE,
};

/// A shared library that comes with Plimsoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    title: &'static str,
    file: &'static str,
    variable: &'static str,
    chore: &'static str,
}

/// Seen from the folder of the program.
const FOLDERS: [&str; 3] = ["", "../lib/plimsoll", "../guard"];

/// Error: the library was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindLibraryError {
    #[error(
        "the {title} does not exist: {looked}\nhint: build it with `{chore}`, or set {variable} to its path",
        title = .library.title, looked = listed(.looked), chore = .library.chore, variable = .library.variable
    )]
    Find { library: Library, looked: Vec<PathBuf> },
    #[error(
        "the {title} `{path}` cannot be preloaded, because the loader splits LD_PRELOAD at spaces and \
            colons; move it to a path without them",
        title = .library.title, path = path.display()
    )]
    Split { library: Library, path: PathBuf },
    #[error("the environment variable {} is empty, which switches off the {}", .0.variable, .0.title)]
    SwitchedOff(Library),
}

impl Library {
    /// Finds it.
    pub fn find(self) -> Result<PathBuf, FindLibraryError> {
        let named = std::env::var_os(self.variable);
        // Relative to the running program, so that an installation can be moved as a whole.
        let program = std::env::current_exe().unwrap_or_default();
        self.find_from(named.as_deref(), program.parent().unwrap_or(Path::new("/")))
    }

    fn find_from(self, named: Option<&OsStr>, folder: &Path) -> Result<PathBuf, FindLibraryError> {
        // An environment variable names another path or, if empty, disables a library. Otherwise the
        // program's folder, `../lib/plimsoll/` and `../guard/` are searched.
        let candidates = match named {
            // Set but empty means "none", as it does for `PLIMSOLL_NVML`.
            Some(path) if path.is_empty() => return Err(FindLibraryError::SwitchedOff(self)),
            Some(path) => vec![PathBuf::from(path)],
            None => FOLDERS.iter().map(|below| folder.join(below).join(self.file)).collect(),
        };
        // The child may change its folder before it starts others, so the path must be a whole one.
        let there = candidates.iter().find_map(|path| path.canonicalize().ok());
        let Some(path) = there.filter(|path| path.is_file()) else {
            return Err(FindLibraryError::Find { library: self, looked: candidates });
        };
        if system::can_be_preloaded(&path) {
            Ok(path)
        } else {
            Err(FindLibraryError::Split { library: self, path })
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let each = paths.iter().map(|path| format!("no file {}", path.display()));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_is_found_beside_the_program_in_an_installation_and_in_a_build_tree() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        let bin = root.join("bin");
        fs::create_dir(&bin).unwrap();
        for folder in ["guard", "lib/plimsoll", "bin"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join(GUARD.file), "").unwrap();
            assert_eq!(GUARD.find_from(None, &bin), Ok(root.join(folder).join(GUARD.file)), "{folder}");
        }
    }

    #[test]
    fn missing_library_error_lists_searched_paths_and_the_build_command() {
        let error = GUARD.find_from(None, Path::new("/nowhere/bin")).unwrap_err().to_string();
        for part in [
            "/nowhere/bin/libplimsoll_guard.so",
            "/nowhere/bin/../lib/plimsoll/",
            "/nowhere/bin/../guard/",
            "cargo xtask guard",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let named = GUARD.find_from(Some(OsStr::new("/nowhere/x.so")), Path::new("/bin")).unwrap_err();
        assert!(named.to_string().contains("no file /nowhere/x.so"));
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        let tree = tempfile::Builder::new().prefix("a b").tempdir().unwrap();
        let path = tree.path().join(GUARD.file);
        fs::write(&path, "").unwrap();
        assert!(matches!(
            GUARD.find_from(Some(path.as_os_str()), Path::new("/")),
            Err(FindLibraryError::Split { .. })
        ));
    }
}
