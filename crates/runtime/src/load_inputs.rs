//! Detects changes of a model's configuration, program and files. Without one, a load that failed for good is
//! not repeated.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_config::ConfiguredModel;

use super::model_files;

#[derive(Debug, PartialEq)]
pub(super) struct LoadInputs {
    entry: ConfiguredModel,
    files: Vec<FileState>,
}

/// A file, and what changes with its bytes; `None` of one that cannot be seen.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    path: PathBuf,
    about: Option<(u64, u64, u64, i64, i64)>,
}

impl LoadInputs {
    /// Looks at the files; those of a disk that hangs take their time.
    pub(super) fn of(entry: &ConfiguredModel, program: Option<&Path>) -> Self {
        let files = model_files::of_entry(entry).into_iter().chain(program.map(Path::to_path_buf));
        Self { entry: entry.clone(), files: files.map(FileState::of).collect() }
    }
}

impl FileState {
    fn of(path: PathBuf) -> Self {
        let about = path.metadata().ok();
        let about = about.map(|it| (it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec()));
        Self { path, about }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_of_the_section_the_program_or_a_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (model, program) = (folder.path().join("m.gguf"), folder.path().join("engine"));
        let entry = |flags: &str| {
            let text = format!("[models.a]\nmodel = '{}'\nflags = '{flags}'", model.display());
            plimsoll_config::parse("test.toml", &text, &|_| None).unwrap().models.remove(0)
        };
        let look = |flags: &str| LoadInputs::of(&entry(flags), Some(&program));
        fs::write(&model, "one").unwrap();
        fs::write(&program, "p").unwrap();
        let before = look("");
        assert_eq!(before, look(""));
        assert_ne!(before, look("-c 512"));
        fs::write(&program, "longer").unwrap();
        let changed = look("");
        assert_ne!(before, changed);
        fs::write(&model, "three").unwrap();
        assert_ne!(changed, look(""));
    }
}
