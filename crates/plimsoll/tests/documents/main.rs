//! Tests of the commands in README.md and in the book in docs/, run as a reader would run them.
//!
//! A `console` block holds commands after `$ ` and their output. Each page gets a folder with the files that
//! it mentions, and a `PATH` with `plimsoll`, a stand-in for `llama-server` and the program `take`. A comment
//! before a block changes how it is judged:
//!
//! - `<!-- test: any output -->`: the output is not compared, because it holds times or sizes of this
//!   machine.
//! - `<!-- test: serve -->`: the command keeps running until the end of the page.
//!
//! `UPDATE_DOCUMENTS=1 cargo test -p plimsoll --test documents` writes today's output into the pages.
#![allow(clippy::unwrap_used)]

#[path = "../serve/built.rs"]
mod built;
mod page;
#[path = "../pages/real.rs"]
mod real;
mod room;

use std::path::{Path, PathBuf};

use page::{Block, Page};
use room::Room;

/// Commands that end with another status than 0 on purpose: what they show is that a model does not fit.
const NOT_FITTING: &[&str] = &["name=RTX3080,total=10GiB", "--svg plan.svg", "--budget 1GiB"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README.md and every page of the book; generated references hold no commands.
fn pages() -> Vec<PathBuf> {
    let book = repository().join("docs");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(&book)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages.insert(0, repository().join("README.md"));
    pages
}

fn follow(path: &Path) {
    let mut page = Page::read(path);
    let mut room = Room::furnished(&page);
    let mut differences = Vec::new();
    for block in page.blocks() {
        differences.extend(follow_block(&mut room, &mut page, &block));
    }
    match std::env::var_os("UPDATE_DOCUMENTS") {
        Some(_) => page.write(path),
        None => assert!(differences.is_empty(), "{}: {}", path.display(), differences.join("\n")),
    }
}

fn follow_block(room: &mut Room, page: &mut Page, block: &Block) -> Option<String> {
    if block.serves() {
        room.serve(&block.commands[0]);
        return None;
    }
    let mut told = Vec::new();
    for command in &block.commands {
        let (status, output) = room.run(command);
        // A pipe ends with the status of its last program.
        let shows_no_fit =
            !command.contains(" | ") && NOT_FITTING.iter().any(|words| command.contains(words));
        let expected = i32::from(shows_no_fit);
        assert_eq!(status, Some(expected), "`{command}` printed\n{output}");
        told.push((command.clone(), output));
    }
    (!block.takes_any_output()).then(|| page.compare(block, &told))?
}

#[test]
fn the_readme_is_true() {
    follow(&repository().join("README.md"));
}

#[test]
fn the_book_is_true() {
    for page in pages().iter().skip(1) {
        follow(page);
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let others = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SPECIFICATION.md", "SECURITY.md"];
    let others = others.iter().map(|name| repository().join(name)).filter(|path| path.exists());
    for path in pages().into_iter().chain(others) {
        let folder = path.parent().unwrap();
        for link in Page::read(&path).links() {
            let target = link.split('#').next().unwrap();
            let is_outside = link.starts_with("http") || target.is_empty();
            assert!(is_outside || folder.join(target).exists(), "{}: {link}", path.display());
        }
    }
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = std::fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    for page in pages().iter().skip(1) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || contents.contains(&format!("({name})")), "{name}");
    }
}

#[test]
fn the_readme_fits_a_screen_and_a_half() {
    let lines = std::fs::read_to_string(repository().join("README.md")).unwrap().lines().count();
    assert!(lines <= 150, "{lines} lines");
}
