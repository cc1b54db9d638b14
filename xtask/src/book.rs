//! `cargo xtask book`: builds the documentation as a searchable site, with mdBook.
//!
//! DECISION: the pages are copied first. On a site, no link may lead out of the book, and on the repository's
//! own pages the same links lead to the files beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Documents beside the book, their pages in it, and their titles.
const BESIDE: [(&str, &str, &str); 5] = [
    ("bench/RESULTS.md", "results.md", "Results"),
    ("ARCHITECTURE.md", "architecture.md", "Architecture"),
    ("SPECIFICATION.md", "specification.md", "Specification"),
    ("SECURITY.md", "security.md", "Security"),
    ("CONTRIBUTING.md", "contributing.md", "Contributing"),
];

#[derive(Debug, thiserror::Error)]
enum BookError {
    #[error("cannot copy {}: {error}", path.display())]
    Copy { path: PathBuf, error: io::Error },
    #[error(
        "cannot run mdbook: {0}\nhint: `cargo install mdbook --locked`, or Debian's package of that name"
    )]
    Start(io::Error),
    #[error("mdbook failed; its output is above")]
    Failed,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the site, by default `site` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let target = crate::guard::target(root);
    let out = options.out.clone().unwrap_or_else(|| target.join("site"));
    match build(root, &target.join("book"), &out) {
        Ok(()) => {
            println!("{}", out.join("index.html").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("book: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path, book: &Path, out: &Path) -> Result<(), BookError> {
    stage(root, book)?;
    let out = std::path::absolute(out).map_err(|error| BookError::Copy { path: out.to_owned(), error })?;
    let built = Command::new("mdbook").arg("build").arg(book).arg("--dest-dir").arg(&out).status();
    if !built.map_err(BookError::Start)?.success() {
        return Err(BookError::Failed);
    }
    // The Markdown as well, to which `llms.txt` links.
    copy_pages(book, &out, &|text| text)
}

/// Copies the book and the documents beside it into one folder.
fn stage(root: &Path, book: &Path) -> Result<(), BookError> {
    copy_all(&root.join("docs"), book)?;
    copy_pages(&root.join("docs"), book, &within)?;
    let mut contents = fs::read_to_string(book.join("SUMMARY.md")).map_err(at(book))? + "\n# Project\n\n";
    for (from, to, title) in BESIDE {
        let path = root.join(from);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        fs::write(book.join(to), within(text)).map_err(at(book))?;
        contents += &format!("- [{title}]({to})\n");
    }
    fs::write(book.join("SUMMARY.md"), contents).map_err(at(book))
}

/// A page whose links stay within the book.
fn within(mut text: String) -> String {
    for (from, to, _) in BESIDE {
        for up in ["../", ""] {
            text = text.replace(&format!("]({up}{from}"), &format!("]({to}"));
        }
    }
    text.replace("](docs/", "](")
}

fn copy_all(from: &Path, to: &Path) -> Result<(), BookError> {
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_all(&path, &to)?;
        } else {
            fs::copy(&path, &to).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// Copies the pages of a folder, each changed.
fn copy_pages(from: &Path, to: &Path, changed: &dyn Fn(String) -> String) -> Result<(), BookError> {
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        if path.extension().is_some_and(|kind| kind == "md") {
            let text = fs::read_to_string(&path).map_err(at(&path))?;
            let to = to.join(path.file_name().unwrap_or_default());
            fs::write(&to, changed(text)).map_err(at(&to))?;
        }
    }
    Ok(())
}

fn at(path: &Path) -> impl Fn(io::Error) -> BookError {
    let path = path.to_owned();
    move |error| BookError::Copy { path: path.clone(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links of a page to files.
    fn links(text: &str) -> Vec<&str> {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
        targets.filter(|target| !target.is_empty() && !target.contains(':')).collect()
    }

    #[test]
    fn no_link_of_the_site_leads_out_of_the_book() {
        let folder = tempfile::tempdir().unwrap();
        let book = folder.path().join("book");
        stage(&crate::root(), &book).unwrap();
        let mut count = 0;
        for folder in [book.clone(), book.join("reference")] {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.extension().is_none_or(|kind| kind != "md" && kind != "txt") {
                    continue;
                }
                for link in links(&fs::read_to_string(&path).unwrap()) {
                    let target = folder.join(link).canonicalize();
                    let is_inside =
                        target.is_ok_and(|target| target.starts_with(book.canonicalize().unwrap()));
                    assert!(is_inside, "{}: {link}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 100, "{count} links");
    }

    #[test]
    fn mdbook_builds_the_site_with_search() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("site");
        match build(&crate::root(), &folder.path().join("book"), &out) {
            Err(BookError::Start(_)) => return eprintln!("mdbook is not here; the site is not built"),
            built => built.unwrap(),
        }
        let named = |start: &str| {
            let mut names = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name());
            names.any(|name| name.to_string_lossy().starts_with(start))
        };
        for name in ["index.html", "results.html", "searchindex", "llms.txt", "plan.md"] {
            assert!(named(name), "{name}");
        }
    }
}
