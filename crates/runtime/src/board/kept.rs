//! Stores failures in a file that survives a restart, bounded in size and readable only by the daemon's user.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::marks::FAILURES;
use crate::state_file::StateFile;

const SCHEMA: &str = "plimsoll.failures/1";
/// Characters of one text, causes of one reason, and reasons below one another.
const MOST_TEXT: usize = 1000;
const MOST_CAUSES: usize = 16;
const DEEPEST: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
struct FailureFile {
    schema: String,
    failures: Vec<KeptFailure>,
}

/// A failure as it is kept, with the lines of the engine that prove its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptFailure {
    /// Unix time.
    pub(super) time: u64,
    pub(super) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) times: u64,
    pub(super) reason: KeptReason,
    #[serde(default)]
    pub(super) hints: Vec<KeptHint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptReason {
    pub(super) code: String,
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    because: Vec<Self>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptHint {
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flags: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saves: Option<u64>,
}

impl KeptFailure {
    /// Cuts what is longer than a page shows.
    fn bounded(mut self) -> Self {
        self.reason.bound(DEEPEST);
        self.hints.truncate(MOST_CAUSES);
        self.hints.iter_mut().for_each(|hint| cut(&mut hint.text));
        self.hints.iter_mut().filter_map(|hint| hint.flags.as_mut()).for_each(cut);
        self.name.iter_mut().for_each(cut);
        self
    }
}

impl KeptReason {
    fn bound(&mut self, deepest: usize) {
        cut(&mut self.code);
        cut(&mut self.text);
        self.because.truncate(if deepest == 0 { 0 } else { MOST_CAUSES });
        self.because.iter_mut().for_each(|cause| cause.bound(deepest - 1));
    }
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MOST_TEXT) {
        text.truncate(end);
    }
}

/// The file of one configuration's failures; without a state folder nothing is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureStore(StateFile);

impl FailureStore {
    pub(super) fn of(configuration: &Path) -> Self {
        Self(StateFile::of(configuration, "failures"))
    }

    /// The failures of earlier runs, the oldest first; a file that is damaged, or that others may write,
    /// holds none.
    pub(super) fn read(&self) -> Vec<KeptFailure> {
        let file =
            serde_json::from_slice(&self.0.read()).ok().filter(|file: &FailureFile| file.schema == SCHEMA);
        let all = file.map(|file| file.failures).unwrap_or_default().into_iter();
        let known = all.filter(|kept| ["failed", "refused"].contains(&kept.kind.as_str()));
        let mut kept: Vec<KeptFailure> = known.map(KeptFailure::bounded).collect();
        kept.drain(..kept.len().saturating_sub(FAILURES));
        kept
    }

    pub(super) fn write(&self, failures: Vec<KeptFailure>) -> io::Result<()> {
        let failures = failures.into_iter().map(KeptFailure::bounded).collect();
        self.0.write(&serde_json::to_vec(&FailureFile { schema: SCHEMA.to_owned(), failures })?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::state_file::LONGEST;

    fn failure(time: u64, text: &str) -> KeptFailure {
        let reason = KeptReason { code: "x".to_owned(), text: text.to_owned(), because: Vec::new() };
        KeptFailure { time, kind: "failed".to_owned(), name: None, times: 1, reason, hints: Vec::new() }
    }

    fn store(folder: &Path) -> (FailureStore, PathBuf) {
        let path = folder.join("state/failures-1.json");
        (FailureStore(StateFile::at(path.clone())), path)
    }

    #[test]
    fn failures_come_back_bounded_and_only_the_user_can_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = store(folder.path());
        assert!(store.read().is_empty(), "no file yet");
        let mut deep = failure(1, &"x".repeat(100_000));
        for _ in 0..50 {
            let inner = deep.reason.clone();
            deep.reason = KeptReason { because: vec![inner; 20], ..failure(1, "why").reason };
            deep.reason.bound(DEEPEST);
            deep.reason.because.truncate(1);
        }
        store.write(vec![deep, failure(2, "\u{202e}<script>\n")]).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(path.metadata().unwrap().len() < LONGEST.get());
        let kept = store.read();
        assert_eq!((kept.len(), kept[1].clone()), (2, failure(2, "\u{202e}<script>\n")));
        store.write((0..100).map(|time| failure(time, "again")).collect()).unwrap();
        assert_eq!((store.read().len(), store.read()[0].time), (FAILURES, 100 - 32));
        assert!(FailureStore::default().write(kept).is_ok() && FailureStore::default().read().is_empty());
    }

    #[test]
    fn a_foreign_or_damaged_file_holds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = store(folder.path());
        store.write(vec![failure(1, "real")]).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let nested = format!("{{\"schema\":\"{SCHEMA}\",\"failures\":{}", "[".repeat(100_000));
        let unknown = whole.replace("\"failed\"", "\"<b>\"");
        for hostile in ["", "null", "[]", &whole[..whole.len() - 2], &nested, &unknown, &"x".repeat(2 << 20)]
        {
            fs::write(&path, hostile).unwrap();
            assert!(store.read().is_empty(), "{:.60}", hostile);
        }
        fs::write(&path, whole.replace(SCHEMA, "plimsoll.failures/2")).unwrap();
        assert!(store.read().is_empty(), "another schema");
        fs::write(&path, &whole).unwrap();
        assert_eq!(store.read().len(), 1);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(store.read().is_empty(), "others may write it");
        fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(store.read().is_empty(), "a link");
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert!(store.read().is_empty(), "a pipe without a writer");
        store.write(vec![failure(3, "anew")]).unwrap();
        assert_eq!(store.read()[0].time, 3);
    }
}
