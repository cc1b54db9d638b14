//! Copies a model file from another host to the path that this host's configuration names.
//!
//! A partial copy lies beside that path, under a name that contains the digest of the whole file. Once the
//! digest matches, the copy gets its final name. It never replaces an existing file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;

use crate::error::{HubError, HubFailure};
use crate::listing::is_sha256;
use crate::part_file::{FetchPart, PartFile, fits};
use crate::system;

/// Digits of the digest in the name of a partial file.
const TELLING: usize = 16;
const PART_NAME: &str = "plimsoll-part";

/// A file that is to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCopy {
    path: PathBuf,
    size: u64,
    digest: String,
}

/// Questions of a copy to its caller.
#[allow(missing_debug_implementations, reason = "functions have none")]
pub struct CopyCalls<'a> {
    /// Fetches bytes of the file: from an offset, and how many at most.
    pub fetch: FetchPart<'a>,
    /// Looks at the whole file before it gets its name; an error is a fault of the other host.
    pub accept: &'a dyn Fn(&Path) -> Result<(), String>,
    /// Gets the bytes that have come; false ends the copy.
    pub goes_on: &'a dyn Fn(u64) -> bool,
}

impl FileCopy {
    /// A copy to `path`; `None` if `digest` is no SHA-256 in hexadecimal digits.
    pub fn new(path: PathBuf, size: u64, digest: &str) -> Option<Self> {
        is_sha256(digest).then(|| Self { path, size, digest: digest.to_ascii_lowercase() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn digest(&self) -> &str {
        &self.digest
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Checks that nothing is in the way, and that the rest of all files fits on their disks.
    ///
    /// DECISION: the folder has to be there. One that is made would lie on another disk where a volume is not
    /// mounted.
    pub fn check(files: &[Self]) -> Result<(), HubError> {
        let mut needed = BTreeMap::<u64, (Bytes, &Path)>::new();
        for file in files {
            file.is_free()?;
            let folder = file.folder();
            let about = fs::metadata(folder).map_err(|error| file.of_disk(&error))?;
            let have = fs::symlink_metadata(file.part()).map_or(0, |part| part.len()).min(file.size);
            needed.entry(system::disk(&about)).or_insert((Bytes::ZERO, folder)).0 +=
                Bytes::new(file.size - have);
        }
        for (needed, folder) in needed.into_values() {
            fits(needed, folder).map_err(|failure| failure.of(folder.display()))?;
        }
        Ok(())
    }

    /// Copies the file, `length` bytes at a time; what has come before is continued.
    pub fn run(&self, length: u64, calls: CopyCalls<'_>) -> Result<(), HubError> {
        self.is_free()?;
        let of = |failure: HubFailure| failure.of(self.path.display());
        let part_path = self.part();
        let mut part = PartFile::open(&part_path, self.size, true).map_err(of)?;
        let notify = |done| if (calls.goes_on)(done) { Ok(()) } else { Err(of(HubFailure::Cancelled)) };
        part.fill((&self.path.display(), self.size), length, calls.fetch, &notify)?;
        let digest = part.finish().map_err(|error| self.of_disk(&error))?;
        let whole = if digest == self.digest {
            (calls.accept)(&part_path)
        } else {
            Err(format!("its SHA-256 is {digest}, but {} was expected", self.digest))
        };
        if let Err(why) = whole {
            // Nothing of it can be used, and continuing would end here again.
            fs::remove_file(&part_path).map_err(|error| self.of_disk(&error))?;
            return Err(of(HubFailure::WrongFile(why)));
        }
        self.name(&part_path)?;
        self.remove_others();
        notify(self.size)
    }

    /// True if bytes of the file have come before.
    pub fn has_begun(&self) -> bool {
        fs::symlink_metadata(self.part()).is_ok_and(|part| part.len() > 0)
    }

    /// Removes what has come of the file.
    pub fn discard(&self) {
        // The next attempt reports the rest.
        let _ = fs::remove_file(self.part());
    }

    fn is_free(&self) -> Result<(), HubError> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.of_disk(&error)),
            Ok(_) => Err(HubFailure::InTheWay.of(self.path.display())),
        }
    }

    fn of_disk(&self, error: &io::Error) -> HubError {
        HubFailure::Disk(error.to_string()).of(self.path.display())
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Prefix of the partial files for this path.
    fn prefix(&self) -> OsString {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".");
        name
    }

    fn part(&self) -> PathBuf {
        let mut name = self.prefix();
        name.push(self.digest.get(..TELLING).unwrap_or_default());
        name.push(".");
        name.push(PART_NAME);
        self.folder().join(name)
    }

    /// Gives the file its name, unless something has it by now.
    fn name(&self, part: &Path) -> Result<(), HubError> {
        system::rename_new(part, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => HubFailure::InTheWay.of(self.path.display()),
            _ => self.of_disk(&error),
        })
    }

    /// Removes what has come of other contents for the same path.
    fn remove_others(&self) {
        let prefix = self.prefix();
        let Ok(entries) = fs::read_dir(self.folder()) else { return };
        let is_part = |name: &OsString| {
            let (name, prefix) = (name.as_encoded_bytes(), prefix.as_encoded_bytes());
            let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(PART_NAME.as_bytes()));
            rest.is_some_and(|rest| rest.len() == TELLING + 1)
        };
        for entry in entries.flatten().filter(|entry| is_part(&entry.file_name())) {
            // It is no more than waste.
            let _ = fs::remove_file(entry.path());
        }
    }
}
