//! Stores saved slots in a folder: bounded, private, and verified before use.
//!
//! A saved slot is two files: the engine's data, and a description with a digest of the data. The description
//! is written last, so a pair that a crash has interrupted is recognised and discarded.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_base::{Bytes, Order};
use plimsoll_probe::folder::OwnedFolder;
use ring::digest::{Context, SHA256};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use plimsoll_route::PromptPrefixes;

/// Format version of a description.
const VERSION: u32 = 1;
/// Ending of the engine's file, and of its description.
const STATE: &str = "slot";
const ABOUT: &str = "json";
/// A longer description was not written by this program.
const LONGEST_ABOUT: Bytes = Bytes::kib(64);
/// Part of the digest in a file's name.
const SHORT: usize = 16;
/// Mode bits of other users.
const OTHERS: u32 = 0o077;
/// Beginning of the folder that each daemon has in it for its engines.
const STAGING: &str = "engines-";

/// Reason why a saved slot is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SlotFileError {
    #[error("the file cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("the file is not a regular one, or users beside the daemon's can access it")]
    Foreign,
    #[error("the description beside the file was not written by this program")]
    Undescribed,
    #[error("the file belongs to another model, other flags or another engine")]
    OtherModel,
    #[error("the file has {found} bytes instead of {expected}")]
    Size { found: u64, expected: u64 },
    #[error("the file's content has changed since it was saved")]
    Damaged,
    #[error("the engine refuses the file")]
    Refused,
}

/// Description of a saved slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedSlot {
    version: u32,
    /// Digest of the model's files, flags and engine.
    pub(super) key: String,
    digest: String,
    pub(super) bytes: u64,
    pub(super) tokens: u64,
    /// The time that the engine took to compute the prompt, in milliseconds.
    pub(super) prompt_ms: u64,
    /// Prompts of the run that saved it; one of them is in the slot.
    pub(super) prompts: Vec<PromptPrefixes>,
}

impl SavedSlot {
    /// A slot that is about to be stored.
    pub(super) fn new(key: &str, tokens: u64, prompt_ms: u64, prompts: Vec<PromptPrefixes>) -> Self {
        let key = key.to_owned();
        Self { version: VERSION, key, digest: String::new(), bytes: 0, tokens, prompt_ms, prompts }
    }

    fn stem(&self) -> String {
        format!("{}-{}", self.key, self.digest.get(..SHORT).unwrap_or_default())
    }

    pub(super) fn prompt(&self) -> Duration {
        Duration::from_millis(self.prompt_ms)
    }
}

#[derive(Debug)]
pub(super) struct SlotStore {
    folder: PathBuf,
    bound: Bytes,
    /// Folders of engines, removed with the daemon.
    staging: OwnedFolder,
}

impl SlotStore {
    /// Opens the folder, and removes what exceeds its bound.
    pub(super) fn open(folder: &Path, bound: Bytes) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let about = fs::symlink_metadata(folder)?;
        if !about.is_dir() || about.uid() != geteuid().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is not a folder that this user owns", folder.display()),
            ));
        }
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        let staging = OwnedFolder::create_in(folder, STAGING)?;
        let store = Self { folder: folder.to_owned(), bound, staging };
        store.make_room(Bytes::ZERO)?;
        Ok(store)
    }

    /// Folder for the files of one engine.
    pub(super) fn part(&self, name: &str) -> io::Result<PathBuf> {
        self.staging.part(name)
    }

    /// Removes the least recently used slots until `more` bytes fit; false if they never will.
    pub(super) fn make_room(&self, more: Bytes) -> io::Result<bool> {
        if more > self.bound {
            return Ok(false);
        }
        // Both files of a pair by their common stem, with the later of their dates.
        let mut pairs: HashMap<String, (SystemTime, u64)> = HashMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // A file may go while the folder is read.
            let Ok(about) = entry.metadata() else { continue };
            if !about.is_dir() {
                let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let stem = entry.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let pair = pairs.entry(stem).or_insert((used, 0));
                *pair = (pair.0.max(used), pair.1 + about.len());
            }
        }
        let mut occupied: u64 = pairs.values().map(|(_, size)| size).sum();
        let mut pairs: Vec<_> = pairs.into_iter().map(|(stem, (used, size))| (used, stem, size)).collect();
        pairs.order();
        for (_, stem, size) in pairs {
            if more + Bytes::new(occupied) <= self.bound {
                return Ok(true);
            }
            self.remove_stem(&stem);
            occupied -= size;
        }
        Ok(more + Bytes::new(occupied) <= self.bound)
    }

    /// Takes over the file that an engine wrote.
    pub(super) fn adopt(&self, written: &Path, mut slot: SavedSlot) -> Result<SavedSlot, SlotFileError> {
        let mut file = open_own(written, true)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        (slot.digest, slot.bytes) = digest(&mut file)?;
        let about = serde_json::to_vec(&slot).map_err(io::Error::from)?;
        let length = u64::try_from(about.len()).unwrap_or(u64::MAX);
        if !self.make_room(Bytes::new(slot.bytes.saturating_add(length)))? {
            return Err(SlotFileError::Size { found: slot.bytes, expected: self.bound.get() });
        }
        let (state, description) = self.paths(&slot.stem());
        fs::rename(written, &state)?;
        let new = description.with_extension("new");
        // A file in the way is none of ours that is still in use.
        let _ = fs::remove_file(&new);
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        out.write_all(&about)?;
        fs::rename(&new, &description)?;
        self.touch(&slot);
        Ok(slot)
    }

    /// The saved slots of a model, the last used first; the errors are of files that were removed.
    pub(super) fn list(&self, key: &str) -> (Vec<SavedSlot>, Vec<(PathBuf, SlotFileError)>) {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if !stem.starts_with(key) || path.extension().is_none_or(|ending| ending != ABOUT) {
                continue;
            }
            let used = fs::symlink_metadata(&path).and_then(|about| about.modified());
            match described(&path, key, stem) {
                Ok(slot) => found.push((used.unwrap_or(SystemTime::UNIX_EPOCH), slot)),
                Err(error) => {
                    self.remove_stem(stem);
                    refused.push((path, error));
                }
            }
        }
        found.order_by_key(|(used, _)| std::cmp::Reverse(*used));
        (found.into_iter().map(|(_, slot)| slot).collect(), refused)
    }

    /// Checks the file of a slot and puts it into an engine's folder.
    pub(super) fn stage(&self, slot: &SavedSlot, into: &Path) -> Result<(), SlotFileError> {
        let (state, _) = self.paths(&slot.stem());
        let mut file = open_own(&state, false)?;
        let found = file.metadata()?.len();
        if found != slot.bytes {
            return Err(SlotFileError::Size { found, expected: slot.bytes });
        }
        if digest(&mut file)? != (slot.digest.clone(), slot.bytes) {
            return Err(SlotFileError::Damaged);
        }
        // The engine only reads it, and it never writes under the name of a file that it was given.
        Ok(fs::hard_link(&state, into)?)
    }

    /// Marks a slot as used just now.
    pub(super) fn touch(&self, slot: &SavedSlot) {
        let (state, description) = self.paths(&slot.stem());
        for path in [state, description] {
            // The date only decides what leaves first.
            let _ = plimsoll_file::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    pub(super) fn remove(&self, slot: &SavedSlot) {
        self.remove_stem(&slot.stem());
    }

    /// True if both are the same pair of files.
    pub(super) fn is_same(&self, one: &SavedSlot, other: &SavedSlot) -> bool {
        one.stem() == other.stem()
    }

    fn remove_stem(&self, stem: &str) {
        let (state, description) = self.paths(stem);
        // The third is what a crash in the middle of `adopt` leaves.
        for path in [description.with_extension("new"), description, state] {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
    }

    fn paths(&self, stem: &str) -> (PathBuf, PathBuf) {
        (self.folder.join(format!("{stem}.{STATE}")), self.folder.join(format!("{stem}.{ABOUT}")))
    }
}

/// Reads a description, which must be of this model and of the file that it is named after.
fn described(path: &Path, key: &str, stem: &str) -> Result<SavedSlot, SlotFileError> {
    let file = open_own(path, false)?;
    let text = plimsoll_file::read_open(file, LONGEST_ABOUT).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => SlotFileError::Undescribed,
        _ => SlotFileError::Read(error),
    })?;
    let slot: SavedSlot = serde_json::from_slice(&text).map_err(|_| SlotFileError::Undescribed)?;
    if slot.version != VERSION {
        return Err(SlotFileError::Undescribed);
    }
    if slot.key == key && slot.stem() == stem { Ok(slot) } else { Err(SlotFileError::OtherModel) }
}

/// Opens a plain file of this user. `fresh`: its mode is still the engine's.
fn open_own(path: &Path, fresh: bool) -> Result<File, SlotFileError> {
    let file = plimsoll_file::open_nofollow(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => SlotFileError::Foreign,
        _ => SlotFileError::Read(error),
    })?;
    let about = file.metadata()?;
    let is_private = fresh || about.mode() & OTHERS == 0;
    let is_ours = about.uid() == geteuid().as_raw() && about.nlink() == 1 && is_private;
    is_ours.then_some(file).ok_or(SlotFileError::Foreign)
}

/// SHA-256 and length of a file.
fn digest(file: &mut File) -> io::Result<(String, u64)> {
    let mut context = Context::new(&SHA256);
    let mut block = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok((hex(context.finish().as_ref()), length));
        }
        context.update(&block[..read]);
        length += u64::try_from(read).unwrap_or(u64::MAX);
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
