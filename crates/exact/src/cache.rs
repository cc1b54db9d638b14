//! Caches on disk what an engine logged for given flags and cards, for `plan --exact`.
//!
//! The files are in `$XDG_CACHE_HOME/plimsoll/exact`. An unreadable entry counts as missing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use plimsoll_base::Bytes;
use plimsoll_planner::EngineBuild;
use plimsoll_planner::exact::{SeenMemory, Transcript};
use plimsoll_probe::own_file;
use serde::{Deserialize, Serialize};

/// Format version of an entry; changes when the meaning of a field changes.
const VERSION: u32 = 4;
/// Size limit of an entry: longer files were not written by this program.
const LONGEST: Bytes = Bytes::mib(4);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    folder: PathBuf,
}

/// The log of one engine run, reduced to the lines that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// `None` where the engine does not identify itself.
    pub(super) engine: Option<EngineBuild>,
    pub(super) lines: Vec<String>,
    pub(super) memory: SeenMemory,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    version: u32,
    question: String,
    answer: Answer,
}

impl Answer {
    /// True where the log reports the sizes of a model.
    pub(super) fn is_whole(&self) -> bool {
        let transcript = self.transcript();
        transcript.has_context() && transcript.has_weights()
    }

    pub(super) fn transcript(&self) -> Transcript {
        let mut transcript = Transcript::read(&self.lines.join("\n"));
        transcript.seen = self.memory.clone();
        transcript
    }
}

impl Cache {
    /// The cache of this user; `None` where no cache folder is known.
    pub(super) fn of_user() -> Option<Self> {
        Some(Self::at(plimsoll_file::user_base("XDG_CACHE_HOME", ".cache")?.join("plimsoll/exact")))
    }

    fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The answer to a question, unless this version's reader finds no use in it: the engine is then asked
    /// again.
    pub(super) fn get(&self, question: &str, is_useful: impl Fn(&Answer) -> bool) -> Option<Answer> {
        let entry = own_file::read(&self.path(question), LONGEST).ok()?;
        let entry: Entry = serde_json::from_slice(&entry).ok()?;
        let same = entry.version == VERSION && entry.question == question;
        same.then_some(entry.answer).filter(is_useful)
    }

    pub(super) fn put(&self, question: &str, answer: &Answer) {
        let entry = Entry { version: VERSION, question: question.to_owned(), answer: answer.clone() };
        // A failed write only costs time: the next run asks the engine again.
        let _ = serde_json::to_vec(&entry).map(|bytes| own_file::write(&self.path(question), &bytes));
    }

    fn path(&self, question: &str) -> PathBuf {
        // `DefaultHasher` may change between Rust releases; that only misses entries: the question is
        // compared.
        let mut hasher = DefaultHasher::new();
        question.hash(&mut hasher);
        self.folder.join(format!("{:016x}.json", hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use plimsoll_planner::EngineKind;

    use super::*;

    fn answer() -> Answer {
        let engine = EngineBuild { kind: EngineKind::LlamaCpp, build: Some(10_605) };
        let lines = [
            "load_tensors:        CUDA0 model buffer size =  4650.99 MiB",
            "srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'",
        ];
        Answer { engine: Some(engine), lines: lines.map(str::to_owned).to_vec(), ..Answer::default() }
    }

    fn get(cache: &Cache, question: &str) -> Option<Answer> {
        cache.get(question, Answer::is_whole)
    }

    #[test]
    fn an_answer_is_found_again_for_the_same_question_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("a/b"));
        cache.put("what", &answer());
        assert_eq!(get(&cache, "what"), Some(answer()));
        assert_eq!(get(&cache, "who"), None);
        assert_eq!(get(&cache, "what").unwrap().engine.unwrap().build, Some(10_605));
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1);
    }

    #[test]
    fn damaged_and_foreign_cache_entries_are_misses_and_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let path = cache.path("what");
        let other = Entry { version: VERSION, question: "who".to_owned(), answer: answer() };
        let older = Entry { version: VERSION - 1, question: "what".to_owned(), answer: answer() };
        let silent = Entry { version: VERSION, question: "what".to_owned(), answer: Answer::default() };
        let written = [other, older, silent].map(|entry| serde_json::to_vec(&entry).unwrap());
        for bytes in written.into_iter().chain([b"{\"version\":1".to_vec(), vec![0xff; 64]]) {
            fs::write(&path, bytes).unwrap();
            assert_eq!(get(&cache, "what"), None);
            cache.put("what", &answer());
            assert_eq!(get(&cache, "what"), Some(answer()));
        }
    }

    #[test]
    fn cache_files_writable_by_others_or_not_regular_are_misses() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let (path, aside) = (cache.path("what"), folder.path().join("aside"));
        cache.put("what", &answer());
        for mode in [0o606, 0o660] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(get(&cache, "what"), None, "{mode:o}");
        }
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(get(&cache, "what"), Some(answer()), "others may read");
        fs::rename(&path, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        assert_eq!(get(&cache, "what"), None);
        // The link is replaced, and not written through.
        fs::write(&aside, "").unwrap();
        cache.put("what", &answer());
        assert_eq!(get(&cache, "what"), Some(answer()));
        assert_eq!(fs::read(&aside).unwrap(), b"");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        cache.put("what", &answer());
        assert_eq!(get(&cache, "what"), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no file is left behind");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_cache_and_no_error() {
        let cache = Cache::at(PathBuf::from("/proc/nowhere"));
        cache.put("what", &answer());
        assert_eq!(get(&cache, "what"), None);
    }
}
