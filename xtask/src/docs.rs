//! Generates documents from `plimsoll` itself: command-line reference, man page, completions and schema.
//!
//! The hidden command `plimsoll reference KIND` prints most of them. The schema comes from the structs that
//! read a configuration, and the Markdown pages from the help texts and the schema. The task writes all
//! documents in place. With `--check` it writes nothing, and fails if a document is out of date.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::guard;

mod commands;
mod configuration;
mod llms;

use commands::Verb;

/// A generated document, and the words behind `plimsoll` that print it.
type Document = (String, Vec<String>);

/// The documents without the manual pages of the verbs, which follow the program's own list.
const DOCUMENTS: &[(&str, &str)] = &[
    ("docs/reference/commands.md", "commands"),
    ("docs/reference/man/plimsoll.1", "reference man"),
    ("docs/reference/configuration.md", "configuration"),
    ("docs/reference/completions/plimsoll.bash", "reference completions bash"),
    ("docs/reference/completions/_plimsoll", "reference completions zsh"),
    ("docs/reference/completions/plimsoll.fish", "reference completions fish"),
    ("docs/reference/config.schema.json", "schema"),
    ("docs/reference/openapi.json", "reference openapi"),
    // The last, because it quotes those before it.
    ("docs/llms.txt", "llms"),
];

/// All documents of a program with these visible verbs.
fn documents(verbs: &[Verb]) -> Vec<Document> {
    let fixed = DOCUMENTS.iter().map(|(path, words)| ((*path).to_owned(), (*words).to_owned()));
    let page = |verb: &Verb| {
        let path = format!("docs/reference/man/plimsoll-{}.1", verb.words.join("-"));
        (path, format!("reference man {}", verb.words.join(" ")))
    };
    let all = fixed.chain(verbs.iter().map(page));
    all.map(|(path, words)| (path, words.split(' ').map(str::to_owned).collect())).collect()
}

#[derive(Debug, thiserror::Error)]
enum DocsError {
    #[error("plimsoll does not build; the compiler's output is above")]
    Build,
    #[error("cannot run {}: {error}", program.display())]
    Start { program: PathBuf, error: io::Error },
    #[error("`plimsoll {words}` failed: {}", stated.trim_end())]
    Run { words: String, stated: String },
    #[error("`plimsoll {words}` printed something other than UTF-8")]
    Text { words: String },
    #[error("cannot read a page of the book: {0}")]
    Book(io::Error),
    #[error("cannot read the schema: {0}")]
    Schema(#[from] serde_json::Error),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("stale: {}; run cargo xtask docs", .0.join(", "))]
    Stale(Vec<String>),
}

/// Writes the documents, or compares them when `check` is set.
pub(crate) fn run(root: &Path, check: bool) -> ExitCode {
    reported(build(root).and_then(|program| update_with(root, &program, check)))
}

/// Compares the documents with the program that the tests have built.
pub(crate) fn check_built(root: &Path) -> ExitCode {
    reported(update_with(root, &program(root), true))
}

fn program(root: &Path) -> PathBuf {
    guard::target(root).join("debug/plimsoll")
}

fn update_with(root: &Path, program: &Path, check: bool) -> Result<usize, DocsError> {
    let verbs = commands::verbs(&|words| output(program, &[words, &["--help"]].concat()))?;
    update(root, &documents(&verbs), check, |words| printed(root, program, &verbs, words))
}

fn reported(done: Result<usize, DocsError>) -> ExitCode {
    match done {
        Ok(changed) => {
            eprintln!("docs: {changed} documents written");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> Result<PathBuf, DocsError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "plimsoll", "--bin", "plimsoll"])
        .current_dir(root)
        .status();
    match built {
        Ok(status) if status.success() => Ok(program(root)),
        _ => Err(DocsError::Build),
    }
}

/// A document, by the words of its row.
fn printed(root: &Path, program: &Path, verbs: &[Verb], words: &[&str]) -> Result<String, DocsError> {
    match words {
        ["llms"] => llms::text(root).map_err(DocsError::Book),
        ["commands"] => Ok(commands::markdown(verbs)),
        ["configuration"] => Ok(configuration::markdown(&plimsoll_config::schema())?),
        // The program prints the document that this writes.
        ["schema"] => Ok(plimsoll_config::schema()),
        words => output(program, words),
    }
}

/// Standard output of `plimsoll` with these words.
fn output(program: &Path, words: &[&str]) -> Result<String, DocsError> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| DocsError::Start { program: program.to_path_buf(), error })?;
    let words = words.join(" ");
    if !output.status.success() {
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(DocsError::Run { words, stated });
    }
    String::from_utf8(output.stdout).map_err(|_| DocsError::Text { words })
}

/// Brings the documents up to date and returns the number of those that changed; with `check`, a change is an
/// error.
fn update(
    root: &Path,
    documents: &[Document],
    check: bool,
    print: impl Fn(&[&str]) -> Result<String, DocsError>,
) -> Result<usize, DocsError> {
    let mut changed = Vec::new();
    for (name, words) in documents {
        let text = print(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let path = root.join(name);
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        changed.push(name.clone());
        if !check {
            write(&path, &text).map_err(|error| DocsError::Write { path, error })?;
        }
    }
    if check && !changed.is_empty() {
        return Err(DocsError::Stale(changed));
    }
    Ok(changed.len())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> [Document; 2] {
        [("a/b.md", "b"), ("c.1", "c")].map(|(path, word)| (path.to_owned(), vec![word.to_owned()]))
    }

    fn print(words: &[&str]) -> Result<String, DocsError> {
        Ok(format!("{}\n", words.join(" ")))
    }

    #[test]
    fn every_verb_of_the_program_has_a_manual_page() {
        let verb =
            |words: &str| Verb { words: words.split(' ').map(str::to_owned).collect(), help: String::new() };
        let listed = documents(&[verb("load"), verb("fleet drain")]);
        let pages: Vec<&str> = listed.iter().map(|(path, _)| path.as_str()).skip(DOCUMENTS.len()).collect();
        assert_eq!(
            pages,
            ["docs/reference/man/plimsoll-load.1", "docs/reference/man/plimsoll-fleet-drain.1"]
        );
        assert_eq!(listed.last().unwrap().1, ["reference", "man", "fleet", "drain"]);
    }

    #[test]
    fn documents_are_written_once_and_then_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(update(folder.path(), &two(), false, print).unwrap(), 2);
        assert_eq!(fs::read_to_string(folder.path().join("a/b.md")).unwrap(), "b\n");
        assert_eq!(update(folder.path(), &two(), false, print).unwrap(), 0);
        assert_eq!(update(folder.path(), &two(), true, print).unwrap(), 0);
    }

    #[test]
    fn a_check_names_what_is_stale_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("c.1"), "c\n").unwrap();
        let error = update(folder.path(), &two(), true, print).unwrap_err();
        assert_eq!(error.to_string(), "stale: a/b.md; run cargo xtask docs");
        assert!(!folder.path().join("a").exists());
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = printed(Path::new(""), Path::new("sh"), &[], &["-c", "echo no such verb >&2; exit 2"])
            .unwrap_err();
        assert!(error.to_string().ends_with("failed: no such verb"), "{error}");
    }

    #[test]
    fn no_document_is_listed_twice() {
        let mut paths: Vec<&str> = DOCUMENTS.iter().map(|document| document.0).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), DOCUMENTS.len());
    }
}
