//! Finds files below `tests` that no test binary includes, for `cargo xtask tidy`, because rustc does not
//! report them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Finding;
use crate::source::Source;

/// Sources that tests compile as programs of their own.
const PROGRAMS: &str = "programs";

pub(super) fn check(sources: &[Source], others: &[Source]) -> Vec<Finding> {
    let tree = Tree::of(sources, others);
    let tests = sources.iter().filter_map(|source| Some((source, package(&source.path)?)));
    let forgotten = tests.filter(|(source, package)| !tree.includes(&source.path, package));
    let finding = |(source, _): (&Source, &Path)| Finding {
        file: source.path.clone(),
        line: 1,
        rule: "no test binary includes this file".to_owned(),
    };
    forgotten.map(finding).collect()
}

/// The package whose tests a file belongs to.
fn package(file: &Path) -> Option<&Path> {
    let mut folders = file.ancestors().skip(1);
    let tests =
        folders.find(|folder| folder.ends_with("tests") && !folder.iter().any(|part| part == "src"))?;
    let is_program = file.iter().any(|part| part == PROGRAMS);
    tests.parent().filter(|_| !is_program)
}

/// All texts, and the files that a `#[path = "…"]` names.
struct Tree<'a> {
    texts: BTreeMap<&'a Path, &'a str>,
    by_path: BTreeSet<PathBuf>,
}

impl<'a> Tree<'a> {
    fn of(sources: &'a [Source], others: &'a [Source]) -> Self {
        let all = sources.iter().chain(others);
        let texts = all.map(|source| (source.path.as_path(), source.text.as_str())).collect();
        Self { texts, by_path: sources.iter().flat_map(paths).collect() }
    }

    fn includes(&self, file: &Path, package: &Path) -> bool {
        let manifest = self.texts.get(package.join("Cargo.toml").as_path()).copied().unwrap_or_default();
        self.by_path.contains(file) || is_binary(file, package, manifest) || self.declares(file)
    }

    /// A file that the module above it declares: that of its folder, or one beside it that is the root of its
    /// folder.
    fn declares(&self, file: &Path) -> bool {
        let (Some(folder), Some(module)) = (file.parent(), file.file_stem()) else {
            return false;
        };
        let roots = ["main.rs", "runner.rs"].map(|name| folder.join(name));
        let by_path = self.by_path.iter().filter(|path| path.parent() == Some(folder)).cloned();
        let line = format!("mod {};", module.to_string_lossy());
        let mut above = [folder.with_extension("rs")].into_iter().chain(roots).chain(by_path);
        above.any(|path| {
            let text = self.texts.get(path.as_path()).copied().unwrap_or_default();
            text.lines().any(|words| words.trim_start_matches("pub(crate) ") == line)
        })
    }
}

/// The files that a source names by `#[path = "…"]`.
fn paths(source: &Source) -> Vec<PathBuf> {
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let named = source.text.lines().filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    named.map(|name| plain(&folder.join(name))).collect()
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path {
        if part == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// A file that cargo finds by itself, or that the manifest names.
fn is_binary(file: &Path, package: &Path, manifest: &str) -> bool {
    let within = file.strip_prefix(package).unwrap_or(file);
    let parts: Vec<String> = within.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_found = match parts.as_slice() {
        [_, name] => !name.is_empty(),
        [_, _, name] => name == "main.rs",
        _ => false,
    };
    if !manifest.contains("autotests = false") {
        return is_found;
    }
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_runner = parts.len() == 2 && name == "runner";
    let targets = manifest.split("[[test]]").skip(1);
    is_runner
        || targets.into_iter().any(|target| {
            target.contains(&format!("path = \"{}\"", within.display()))
                || parts.len() == 2 && target.contains(&format!("name = \"{name}\""))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(manifest: &str, files: &[(&str, &str)]) -> Vec<PathBuf> {
        let source = |(path, text): &(&str, &str)| Source { path: path.into(), text: (*text).to_owned() };
        let sources: Vec<Source> = files.iter().map(source).collect();
        let others = [source(&("crates/a/Cargo.toml", manifest))];
        check(&sources, &others).into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn a_file_that_no_module_declares_is_found() {
        let files = [
            ("crates/a/tests/runner.rs", "mod serve;\n#[path = \"card/all.rs\"]\npub(crate) mod card;\n"),
            ("crates/a/tests/serve.rs", "mod daemon;\n"),
            ("crates/a/tests/serve/daemon.rs", ""),
            ("crates/a/tests/serve/lost.rs", ""),
            ("crates/a/tests/card/all.rs", "mod memory;\n"),
            ("crates/a/tests/card/memory.rs", ""),
            ("crates/a/tests/forgotten.rs", "// mod forgotten;\n"),
            ("crates/a/tests/apart.rs", ""),
            ("crates/a/tests/programs/loader.rs", ""),
            ("crates/a/src/route/tests/other.rs", ""),
        ];
        let manifest = "autotests = false\n[[test]]\nname = \"apart\"\ntest = false\n";
        let lost = ["crates/a/tests/serve/lost.rs", "crates/a/tests/forgotten.rs"];
        assert_eq!(findings(manifest, &files), lost.map(PathBuf::from));
    }

    #[test]
    fn binaries_that_cargo_finds_are_none() {
        let files = [
            ("crates/a/tests/one.rs", ""),
            ("crates/a/tests/many/main.rs", "mod two;\n"),
            ("crates/a/tests/many/two.rs", ""),
            ("crates/a/tests/many/lost.rs", ""),
        ];
        assert_eq!(findings("", &files), [PathBuf::from("crates/a/tests/many/lost.rs")]);
        let named = "autotests = false\n[[test]]\nname = \"many\"\npath = \"tests/many/main.rs\"\n";
        assert!(findings(named, &files[1..3]).is_empty());
    }
}
