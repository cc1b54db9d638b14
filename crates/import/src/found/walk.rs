//! Lists the GGUF files below a folder, and those that must not be opened, such as partial downloads.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_base::Order;
use plimsoll_model::split::siblings;

/// Folders that lie in one another.
const DEPTH: usize = 8;
/// Entries that are looked at below one folder.
const MOST: usize = 20_000;
/// A file that has changed within this time may still be written.
pub(super) const SETTLED: Duration = Duration::from_secs(3);

/// Endings that downloaders add to a file until it is whole.
const PARTIAL: [&str; 7] = ["part", "partial", "incomplete", "tmp", "download", "crdownload", "aria2"];

/// One GGUF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedFile {
    pub(super) path: PathBuf,
    /// The file behind links.
    pub(super) real: PathBuf,
    pub(super) length: u64,
    pub(super) modified: SystemTime,
    /// A downloader's own file beside it says that it is not whole.
    pub(super) is_partial: bool,
}

impl ListedFile {
    /// Time until it may be taken for whole; `None` once it may.
    pub(super) fn unsettled(&self, now: SystemTime) -> Option<Duration> {
        // A time in the future is that of another clock.
        let age = now.duration_since(self.modified).ok()?;
        SETTLED.checked_sub(age).filter(|left| !left.is_zero())
    }
}

/// Files of a folder, and those that are none for a reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) files: Vec<ListedFile>,
    pub(super) passed_over: Vec<(PathBuf, String)>,
    seen: HashSet<PathBuf>,
    entries: usize,
}

impl Listing {
    /// All below a folder.
    pub(super) fn of_folder(folder: &Path) -> Self {
        let mut listing = Self::default();
        listing.walk(folder, DEPTH);
        listing.marked()
    }

    /// The files that are named, each once, with the other files of their sets.
    pub(super) fn of_files(files: &[PathBuf]) -> Self {
        let mut listing = Self::default();
        let mut seen = HashSet::new();
        for file in files {
            let set = siblings(&file.to_string_lossy()).into_iter().map(PathBuf::from);
            for path in set.filter(|path| path == file || path.exists()) {
                if seen.insert(path.clone()) {
                    listing.take(path);
                }
            }
        }
        listing.marked()
    }

    /// Marks the files that a downloader's own file says are not whole.
    fn marked(mut self) -> Self {
        let listing = &mut self;
        let partial: HashSet<PathBuf> =
            listing.passed_over.iter().filter_map(|(path, _)| whole_name(path)).collect();
        for file in &mut listing.files {
            file.is_partial = partial.contains(&file.path);
        }
        self
    }

    fn walk(&mut self, folder: &Path, depth: usize) {
        // A link may lead back to a folder above.
        let Ok(real) = folder.canonicalize() else { return };
        if !self.seen.insert(real) {
            return;
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                return self.pass_over(folder.to_owned(), format!("the folder cannot be read: {error}"));
            }
        };
        let mut paths: Vec<PathBuf> = entries.flatten().take(MOST).map(|entry| entry.path()).collect();
        paths.order();
        for path in paths {
            self.entries += 1;
            if self.entries == MOST {
                self.pass_over(folder.to_owned(), format!("only the first {MOST} entries are looked at"));
            }
            if self.entries >= MOST {
                return;
            }
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            match path.is_dir() {
                true if is_hidden => {}
                true if depth > 0 => self.walk(&path, depth - 1),
                true => self.pass_over(path, format!("folders are looked at to a depth of {DEPTH}")),
                false if whole_name(&path).is_some() => {
                    self.pass_over(path, "it is still being downloaded".to_owned());
                }
                false if is_gguf(&path) => self.take(path),
                false => {}
            }
        }
    }

    fn take(&mut self, path: PathBuf) {
        let about = fs::metadata(&path);
        match (about, path.canonicalize()) {
            // Nothing is opened here: a FIFO would wait for its writer.
            (Ok(about), _) if !about.is_file() => self.pass_over(path, "it is not a regular file".to_owned()),
            (Ok(about), Ok(real)) => self.files.push(ListedFile {
                real,
                length: about.len(),
                modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                is_partial: false,
                path,
            }),
            (Err(error), _) | (_, Err(error)) => self.pass_over(path, format!("it cannot be read: {error}")),
        }
    }

    fn pass_over(&mut self, path: PathBuf, why: String) {
        self.passed_over.push((path, why));
    }
}

pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// The file that a downloader's own file will become: `m.gguf` of `m.gguf.part`.
fn whole_name(path: &Path) -> Option<PathBuf> {
    let ending = path.extension()?.to_str()?;
    let whole = path.with_extension("");
    (is_gguf(&whole) && PARTIAL.contains(&ending.to_ascii_lowercase().as_str())).then_some(whole)
}
