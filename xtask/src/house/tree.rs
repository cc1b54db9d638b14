//! Source files of the crates below `crates/`, divided into product and tests.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::lexer::{self, CommentKind};
use super::modules::{self, Module};
use super::outline::{self, Outline};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} has no folder `crates` with a crate in it", .0.display())]
    NoCrates(PathBuf),
}

/// A comment of a file, its text copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comment {
    pub(super) kind: CommentKind,
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) is_first: bool,
}

#[derive(Debug)]
pub(super) struct SourceFile {
    /// Relative to the root of the tree.
    pub(super) path: PathBuf,
    /// The whole file is a test.
    pub(super) is_test: bool,
    pub(super) lines: usize,
    /// For each line, from index 1: a token stands on it.
    pub(super) has_code: Vec<bool>,
    pub(super) comments: Vec<Comment>,
    pub(super) outline: Outline,
}

impl SourceFile {
    fn new(path: PathBuf, text: &str) -> Self {
        let lexed = lexer::lex(text);
        let lines = text.lines().count();
        let mut has_code = vec![false; lines + 2];
        for token in &lexed.tokens {
            has_code[token.line..=token.end_line].fill(true);
        }
        let comments = lexed.comments.iter().map(|comment| Comment {
            kind: comment.kind,
            text: comment.text.to_owned(),
            line: comment.line,
            is_first: comment.is_first,
        });
        Self {
            is_test: is_named_as_test(&path),
            path,
            lines,
            has_code,
            comments: comments.collect(),
            outline: outline::outline(&lexed.tokens),
        }
    }

    /// The line belongs to the product: neither to a test file nor to an inline test module.
    pub(super) fn is_product(&self, line: usize) -> bool {
        !self.is_test && !self.test_lines().any(|lines| lines.contains(&line))
    }

    pub(super) fn product_lines(&self) -> usize {
        (1..=self.lines).filter(|line| self.is_product(*line)).count()
    }

    fn test_lines(&self) -> impl Iterator<Item = &Range<usize>> {
        self.outline.test_lines.iter()
    }
}

/// A crate below `crates/`.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) name: String,
    /// Every `.rs` file below `src`, in the order of paths.
    pub(super) files: Vec<SourceFile>,
    /// Where the modules of the crate are, with the crate roots.
    pub(super) modules: Vec<Module>,
}

/// All crates, and what lies beside them and may hold tests.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) crates: Vec<Crate>,
    /// Rust files outside `crates/*/src`: integration tests, doubles, bench, xtask.
    pub(super) others: Vec<SourceFile>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self, TreeError> {
        let folder = root.join("crates");
        let mut crates = Vec::new();
        let mut others = Vec::new();
        for path in entries(&folder).map_err(|_| TreeError::NoCrates(root.to_path_buf()))? {
            if path.join("Cargo.toml").is_file() {
                crates.push(read_crate(root, &path)?);
                for folder in ["tests", "benches", "examples"] {
                    others.extend(read_files(root, &path.join(folder))?);
                }
            }
        }
        for folder in ["doubles", "bench", "xtask"] {
            others.extend(read_files(root, &root.join(folder))?);
        }
        if crates.is_empty() {
            return Err(TreeError::NoCrates(root.to_path_buf()));
        }
        Ok(Self { crates, others })
    }
}

fn read_crate(root: &Path, folder: &Path) -> Result<Crate, TreeError> {
    let mut files = read_files(root, &folder.join("src"))?;
    let numbers: HashMap<PathBuf, usize> =
        files.iter().enumerate().map(|(number, file)| (file.path.clone(), number)).collect();
    let source = folder.join("src");
    let source = source.strip_prefix(root).unwrap_or(&source);
    let modules = modules::find(source, &files, &numbers);
    for module in &modules {
        files[module.file].is_test |= module.is_test;
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(Crate { name: name.into_owned(), files, modules })
}

/// All Rust files below a folder, which need not exist.
fn read_files(root: &Path, folder: &Path) -> Result<Vec<SourceFile>, TreeError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for path in entries(&folder)? {
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&path)
                    .map_err(|error| TreeError::Read { path: path.clone(), error })?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                files.push(SourceFile::new(path, &text));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, TreeError> {
    let cannot = |error| TreeError::Read { path: folder.to_path_buf(), error };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        paths.push(entry.map_err(cannot)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Named `tests.rs` or `…_tests.rs`, or below a folder `tests` or `benches`.
fn is_named_as_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let folders = path.parent().into_iter().flat_map(Path::components);
    stem == "tests"
        || stem.ends_with("_tests")
        || folders.map(|folder| folder.as_os_str()).any(|name| name == "tests" || name == "benches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known_by_their_names() {
        let is_test = |path: &str| is_named_as_test(Path::new(path));
        assert!(is_test("crates/a/tests/b.rs") && is_test("crates/a/src/tests.rs"));
        assert!(is_test("crates/a/src/b_tests.rs") && is_test("crates/a/src/tests/c.rs"));
        assert!(!is_test("crates/a/src/contests.rs") && !is_test("crates/tests.d/src/b.rs"));
    }

    #[test]
    fn lines_of_inline_tests_are_no_product() {
        let text = "fn a() {}\n// b\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\nfn c() {}\n";
        let file = SourceFile::new("crates/a/src/lib.rs".into(), text);
        assert_eq!((file.lines, file.product_lines()), (8, 4));
        assert!(file.has_code[1] && !file.has_code[2] && !file.has_code[3]);
    }

    #[test]
    fn a_tree_without_crates_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Tree::read(folder.path()), Err(TreeError::NoCrates(_))));
    }
}
