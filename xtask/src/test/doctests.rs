//! Runs the doc tests by `cargo test --doc`, and counts them from its `test result:` lines.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use super::linted;
use super::steps::Outcome;

/// A README whose examples are those of its crate.
const README: &str = "#![doc = include_str!(\"../README.md\")]";

pub(super) fn run(root: &Path) -> Outcome {
    let packages = packages(root);
    if packages.is_empty() {
        return Outcome { succeeded: true, ..Outcome::default() };
    }
    let mut cargo = linted::cargo();
    cargo.args(["test", "--doc", "--no-fail-fast"]).current_dir(root);
    counted(cargo.args(packages.iter().flat_map(|package| ["--package", package])))
}

/// Runs `cargo test`, and adds up its results.
pub(crate) fn counted(cargo: &mut Command) -> Outcome {
    let mut outcome = Outcome::default();
    let mut child = match cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot run cargo: {error}");
            return outcome;
        }
    };
    if let Some(output) = child.stdout.take() {
        read(output, &mut outcome);
    }
    outcome.succeeded = child.wait().is_ok_and(|status| status.success());
    outcome
}

/// Packages with an example in a doc comment. For each other one, rustdoc would read all its sources to find
/// none.
fn packages(root: &Path) -> Vec<String> {
    let folders =
        ["crates", "doubles"].map(|name| fs::read_dir(root.join(name)).into_iter().flatten().flatten());
    let folders = folders.into_iter().flatten().map(|entry| entry.path());
    let mut found: Vec<String> = folders
        .filter(|folder| has_example(&folder.join("src")))
        .filter_map(|folder| name(&folder))
        .collect();
    found.sort();
    found
}

fn has_example(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.any(|path| {
        if path.is_dir() {
            has_example(&path)
        } else {
            let text = fs::read_to_string(&path).unwrap_or_default();
            is_example(&text) || text.contains(README)
        }
    })
}

/// Whether a block of Rust opens in a doc comment: the first mark opens a block, the next one closes it.
fn is_example(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "))
    });
    let mut marks = comments.filter_map(|line| line.strip_prefix("```")).step_by(2);
    marks.any(|language| language != "text")
}

/// The first name of a manifest is the package's.
fn name(folder: &Path) -> Option<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    Some(name.trim_end_matches('"').to_owned())
}

/// Prints every line of `output` and adds up the results in it.
fn read(output: impl Read, outcome: &mut Outcome) {
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    // What a test prints need not be UTF-8.
    while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line);
        eprint!("{text}");
        if let Some(result) = text.trim().strip_prefix("test result: ") {
            outcome.passed += number(result, "passed");
            outcome.failed += number(result, "failed");
        }
        line.clear();
    }
}

/// The number before `word`, as in `ok. 3 passed; 0 failed; …`.
fn number(result: &str, word: &str) -> usize {
    let mut parts = result.split([';', '.']);
    parts.find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_several_crates_are_added() {
        let output = "test src/a.rs - a (line 1) ... ok\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let mut outcome = Outcome::default();
        read(output.as_bytes(), &mut outcome);
        assert_eq!((outcome.passed, outcome.failed), (4, 2));
    }
    #[test]
    fn packages_without_an_example_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for (package, line) in
            [("a", "/// ```text\n/// ```\n    /// ```no_run"), ("b", "// ```"), ("c", "//! ```text\n//! ```")]
        {
            let folder = root.path().join("crates").join(package);
            fs::create_dir_all(folder.join("src/inner")).unwrap();
            fs::write(folder.join("Cargo.toml"), format!("[package]\nname = \"the-{package}\"\n")).unwrap();
            fs::write(folder.join("src/inner/lib.rs"), line).unwrap();
        }
        assert_eq!(packages(root.path()), ["the-a"]);
    }
}
