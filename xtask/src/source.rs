//! Reads the source files of the repository, and tells which lines of Rust are product and which are tests.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use regex_lite::Regex;

/// Kinds of text that people write.
const KINDS: &[&str] = &["rs", "md", "py", "toml"];
/// Measured values and captured logs, which are kept as they came, and what is built.
const LEFT_OUT: &[&str] = &["data", "shared", "target"];

/// A text file, its path relative to the workspace.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.path.extension().is_some_and(|extension| extension == kind)
    }

    /// The crate's folder in `crates/`, for a file below `crates/NAME/src`.
    pub(crate) fn product_crate(&self) -> Option<&str> {
        let mut parts = self.path.iter().map(|part| part.to_str().unwrap_or_default());
        let (top, name, source) = (parts.next()?, parts.next()?, parts.next()?);
        (top == "crates" && source == "src" && self.is("rs")).then_some(name)
    }
}

/// Texts below `root`, in the order of their paths.
pub(crate) fn texts(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                let is_built = ["target", "node_modules"].contains(&&*name);
                let is_left_out = folder == root && LEFT_OUT.contains(&&*name);
                if !is_built && !is_left_out && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|kind| KINDS.iter().any(|known| kind == *known))
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Files that are tests as a whole: by their name or folder, or because a file declares them by `#[cfg(test)]
/// mod`.
pub(crate) fn test_files(sources: &[Source]) -> BTreeSet<PathBuf> {
    let pattern = Regex::new(r"(?m)^ *#\[cfg\(test\)\]\n(?: *#\[.*\]\n)* *(?:pub(?:\(.*\))? )?mod (\w+);");
    let declared = pattern.expect("the pattern is valid");
    let mut folders: Vec<PathBuf> = Vec::new();
    for source in sources.iter().filter(|source| source.is("rs")) {
        let alongside = source.path.parent().unwrap_or(Path::new(""));
        let owns_folder = ["lib.rs", "main.rs"].iter().any(|name| source.path.ends_with(name));
        let folder = if owns_folder { alongside.to_owned() } else { source.path.with_extension("") };
        folders.extend(declared.captures_iter(&source.text).map(|found| folder.join(&found[1])));
    }
    let is_declared = |path: &Path| {
        let module = path.with_extension("");
        folders.iter().any(|folder| module.starts_with(folder))
    };
    let is_test = |path: &Path| is_named_as_test(path) || is_declared(path);
    let rust = sources.iter().filter(|source| source.is("rs") && is_test(&source.path));
    rust.map(|source| source.path.clone()).collect()
}

fn is_named_as_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut folders = path.parent().into_iter().flat_map(Path::iter);
    stem == "tests"
        || stem.ends_with("_tests")
        || folders.any(|folder| folder == "tests" || folder == "benches")
}

/// Lines of `text` outside `#[cfg(test)] mod name { … }`, as rustfmt indents it, with their numbers from 1.
pub(crate) fn product_lines(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(line) = lines.get(at) {
        match test_module(&lines, at) {
            Some(range) => at = range.end,
            None => {
                kept.push((at + 1, *line));
                at += 1;
            }
        }
    }
    kept
}

/// The test module, or the declaration of a file of tests, whose attribute stands on line `at`.
fn test_module(lines: &[&str], at: usize) -> Option<Range<usize>> {
    let line = lines.get(at)?;
    let indent = line.strip_suffix("#[cfg(test)]").filter(|indent| indent.trim().is_empty())?;
    let attributes = lines.iter().skip(at).take_while(|line| line.trim_start().starts_with("#[")).count();
    let module = lines.get(at + attributes)?.trim_start();
    let module = module.trim_start_matches("pub(crate) ").strip_prefix("mod ")?;
    let head = at + attributes + 1;
    if module.ends_with(';') {
        return Some(at..head);
    }
    let end = format!("{indent}}}");
    let body = lines.iter().skip(head).take_while(|line| **line != end).count();
    Some(at..head + body + 1)
}

/// The line without comments and without what its string and character literals contain.
///
/// Literals of several lines are taken for code from their second line on, which a measure can bear.
pub(crate) fn code(line: &str) -> String {
    let mut code = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            break;
        }
        let literal = match first {
            '"' => string_length(rest),
            '\'' => character_length(rest),
            _ => None,
        };
        match literal {
            Some(length) => rest = rest.get(length..).unwrap_or_default(),
            None => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    code
}

fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !escaped => return Some(at + 1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Some(text.len())
}

/// `'a'` and `'\n'`, and not the lifetime `'a`.
fn character_length(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    let (_, first) = letters.next()?;
    let (at, end) = if first == '\\' {
        letters.find(|(at, letter)| *letter == '\'' && *at > 2)?
    } else {
        letters.next()?
    };
    (end == '\'').then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_what_is_built_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let paths = [
            "data/a.md",
            "target/b.rs",
            "page/node_modules/x/y.md",
            ".git/c.toml",
            "docs/d.md",
            "crates/data/e.rs",
            "f.lock",
        ];
        for path in paths.map(|path| root.join(path)) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found: Vec<PathBuf> = texts(root).into_iter().map(|text| text.path).collect();
        assert_eq!(found, [Path::new("crates/data/e.rs"), Path::new("docs/d.md")]);
    }

    #[test]
    fn tests_are_known_by_name_folder_and_declaration() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let sources = [
            source("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\n#[allow(dead_code)]\nmod rig;\n"),
            source("crates/a/src/b.rs", "#[cfg(test)]\nmod rows;\nmod tables;\n"),
            source("crates/a/src/b/rows.rs", ""),
            source("crates/a/src/b/rows/more.rs", ""),
            source("crates/a/src/b/tables.rs", ""),
            source("crates/a/src/c_tests.rs", ""),
            source("crates/a/src/rig.rs", ""),
            source("crates/a/tests/d.rs", ""),
        ];
        let found = test_files(&sources);
        let names: Vec<&str> = found.iter().map(|path| path.to_str().unwrap()).collect();
        let below = ["b/rows/more.rs", "b/rows.rs", "c_tests.rs", "rig.rs"]
            .map(|name| format!("crates/a/src/{name}"));
        assert_eq!(
            names,
            [below.each_ref().map(String::as_str).as_slice(), &["crates/a/tests/d.rs"]].concat()
        );
    }

    #[test]
    fn lines_of_inline_tests_are_no_product() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod rows;\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\nfn c() {}\n";
        let numbers: Vec<usize> = product_lines(text).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 4, 9]);
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        for (line, left) in [
            ("let a = \"told // \\\" it\"; // said", "let a = ; "),
            ("let a: &'a str = f('\\'', '\"', x);", "let a: &'a str = f(, , x);"),
            ("/// asked", ""),
        ] {
            assert_eq!(code(line), left);
        }
    }
}
