//! Documents that `plimsoll` writes about itself: the command-line reference, man page, completions and schema.
//!
//! The hidden verb `plimsoll reference KIND` prints most of them; the Markdown pages are made here from the help
//! texts and the schema. The chore writes them to their places; with
//! `--check` it writes nothing and fails where a document differs from what the program prints now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::guard;

mod commands;
mod configuration;

/// A generated document, and the words behind `plimsoll` that print it.
#[derive(Debug, Clone, Copy)]
struct Document {
    path: &'static str,
    words: &'static [&'static str],
}

const DOCUMENTS: &[Document] = &[
    Document {
        path: "docs/reference/commands.md",
        words: &["commands"],
    },
    Document {
        path: "docs/reference/man/plimsoll.1",
        words: &["reference", "man"],
    },
    Document {
        path: "docs/reference/man/plimsoll-calibrate.1",
        words: &["reference", "man", "calibrate"],
    },
    Document {
        path: "docs/reference/man/plimsoll-doctor.1",
        words: &["reference", "man", "doctor"],
    },
    Document {
        path: "docs/reference/man/plimsoll-engine.1",
        words: &["reference", "man", "engine"],
    },
    Document {
        path: "docs/reference/man/plimsoll-plan.1",
        words: &["reference", "man", "plan"],
    },
    Document {
        path: "docs/reference/man/plimsoll-pool.1",
        words: &["reference", "man", "pool"],
    },
    Document {
        path: "docs/reference/man/plimsoll-quickstart.1",
        words: &["reference", "man", "quickstart"],
    },
    Document {
        path: "docs/reference/man/plimsoll-reclaim.1",
        words: &["reference", "man", "reclaim"],
    },
    Document {
        path: "docs/reference/man/plimsoll-run.1",
        words: &["reference", "man", "run"],
    },
    Document {
        path: "docs/reference/man/plimsoll-serve.1",
        words: &["reference", "man", "serve"],
    },
    Document {
        path: "docs/reference/man/plimsoll-soak.1",
        words: &["reference", "man", "soak"],
    },
    Document {
        path: "docs/reference/man/plimsoll-sweep.1",
        words: &["reference", "man", "sweep"],
    },
    Document {
        path: "docs/reference/man/plimsoll-watch.1",
        words: &["reference", "man", "watch"],
    },
    Document {
        path: "docs/reference/configuration.md",
        words: &["configuration"],
    },
    Document {
        path: "docs/reference/completions/plimsoll.bash",
        words: &["reference", "completions", "bash"],
    },
    Document {
        path: "docs/reference/completions/_plimsoll",
        words: &["reference", "completions", "zsh"],
    },
    Document {
        path: "docs/reference/completions/plimsoll.fish",
        words: &["reference", "completions", "fish"],
    },
    Document {
        path: "docs/reference/config.schema.json",
        words: &["reference", "schema"],
    },
];

#[derive(Debug, thiserror::Error)]
enum DocsError {
    #[error("plimsoll does not build; the compiler's output is above")]
    Build,
    #[error("cannot run {}: {error}", program.display())]
    Start { program: PathBuf, error: io::Error },
    #[error("`plimsoll {words}` failed: {}", said.trim_end())]
    Run { words: String, said: String },
    #[error("`plimsoll {words}` printed something other than UTF-8")]
    Text { words: String },
    #[error("cannot read the schema: {0}")]
    Schema(#[from] serde_json::Error),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("stale: {}; run cargo xtask docs", .0.join(", "))]
    Stale(Vec<&'static str>),
}

/// Writes the documents, or compares them when `check` is set.
pub(crate) fn run(root: &Path, check: bool) -> ExitCode {
    told(build(root).and_then(|program| update_with(root, &program, check)))
}

/// Compares the documents with the program that the tests have built.
pub(crate) fn check_built(root: &Path) -> ExitCode {
    told(update_with(root, &program(root), true))
}

fn program(root: &Path) -> PathBuf {
    guard::target(root).join("debug/plimsoll")
}

fn update_with(root: &Path, program: &Path, check: bool) -> Result<usize, DocsError> {
    update(root, DOCUMENTS, check, |words| printed(program, words))
}

fn told(done: Result<usize, DocsError>) -> ExitCode {
    match done {
        Ok(changed) => {
            eprintln!("docs: {} documents, {changed} written", DOCUMENTS.len());
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
fn printed(program: &Path, words: &[&str]) -> Result<String, DocsError> {
    match words {
        ["commands"] => commands::markdown(&|words| output(program, &[words, &["--help"]].concat())),
        ["configuration"] => Ok(configuration::markdown(&output(
            program,
            &["reference", "schema"],
        )?)?),
        words => output(program, words),
    }
}

/// Standard output of `plimsoll` with these words.
fn output(program: &Path, words: &[&str]) -> Result<String, DocsError> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| DocsError::Start {
        program: program.to_path_buf(),
        error,
    })?;
    let words = words.join(" ");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(DocsError::Run { words, said });
    }
    String::from_utf8(output.stdout).map_err(|_| DocsError::Text { words })
}

/// Brings the documents up to date and returns the number of those that changed; with `check`, a change is an error.
fn update(
    root: &Path,
    documents: &[Document],
    check: bool,
    print: impl Fn(&[&str]) -> Result<String, DocsError>,
) -> Result<usize, DocsError> {
    let mut changed = Vec::new();
    for document in documents {
        let text = print(document.words)?;
        let path = root.join(document.path);
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        changed.push(document.path);
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

    const TWO: &[Document] = &[
        Document {
            path: "a/b.md",
            words: &["b"],
        },
        Document {
            path: "c.1",
            words: &["c"],
        },
    ];

    fn print(words: &[&str]) -> Result<String, DocsError> {
        Ok(format!("{}\n", words.join(" ")))
    }

    #[test]
    fn documents_are_written_once_and_then_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(update(folder.path(), TWO, false, print).unwrap(), 2);
        assert_eq!(fs::read_to_string(folder.path().join("a/b.md")).unwrap(), "b\n");
        assert_eq!(update(folder.path(), TWO, false, print).unwrap(), 0);
        assert_eq!(update(folder.path(), TWO, true, print).unwrap(), 0);
    }

    #[test]
    fn a_check_names_what_is_stale_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("c.1"), "c\n").unwrap();
        let error = update(folder.path(), TWO, true, print).unwrap_err();
        assert_eq!(error.to_string(), "stale: a/b.md; run cargo xtask docs");
        assert!(!folder.path().join("a").exists());
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = printed(Path::new("sh"), &["-c", "echo no such verb >&2; exit 2"]).unwrap_err();
        assert!(error.to_string().ends_with("failed: no such verb"), "{error}");
    }

    #[test]
    fn no_document_is_listed_twice() {
        let mut paths: Vec<&str> = DOCUMENTS.iter().map(|document| document.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), DOCUMENTS.len());
    }
}
