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
//! `UPDATE_DOCUMENTS=1 cargo test -p plimsoll documents::` writes today's output into the pages.

mod figures;
mod named;
mod page;
mod room;

use std::path::{Path, PathBuf};

use page::{Block, Page};
use room::Room;

/// Commands that end with another status than 0 on purpose: what they show is that a model does not fit.
const NOT_FITTING: &[&str] = &["name=RTX3080,total=10GiB"];

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
    let mut printed = Vec::new();
    for command in &block.commands {
        let (status, output) = room.run(command);
        // A pipe ends with the status of its last program.
        let shows_no_fit =
            !command.contains(" | ") && NOT_FITTING.iter().any(|words| command.contains(words));
        let expected = i32::from(shows_no_fit);
        assert_eq!(status, Some(expected), "`{command}` printed\n{output}");
        printed.push((command.clone(), output));
    }
    (!block.takes_any_output()).then(|| page.compare(block, &printed))?
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

/// The commands of a page that are not run: those within a sentence, a table or an indented block.
fn named_commands(page: &Page) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in &page.lines {
        if line.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let spans: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let indented = line.strip_prefix("    ").filter(|_| spans.is_empty());
        let named = spans.into_iter().chain(indented).filter(|_| !is_code);
        // Only what stands before a pipe, a redirection or an alternative is ours.
        let commands = named.filter_map(|text| text.split_once("plimsoll "));
        let ours = commands.filter(|(before, _)| {
            before.is_empty() || before.ends_with("sudo ") || before.ends_with("run -- ")
        });
        found.extend(
            ours.map(|(_, rest)| rest.split(['|', '>', ';', '(']).next().unwrap_or_default().to_owned()),
        );
    }
    found
}

/// A command that is named in a sentence has the verb and the options that it is said to have.
#[test]
fn every_command_that_is_named_exists() {
    let help = |verb: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args([verb, "--help"])
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let mut helps = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in pages() {
        for command in named_commands(&Page::read(&path)) {
            let words: Vec<&str> =
                command.split_whitespace().map(|word| word.trim_matches(['[', ']', ','])).collect();
            let Some(verb) = words.first().filter(|verb| verb.starts_with(char::is_lowercase)) else {
                continue;
            };
            count += 1;
            let help: &Option<String> = helps.entry((*verb).to_owned()).or_insert_with(|| help(verb));
            let Some(help) = help else {
                wrong.push(format!("{}: no verb in `plimsoll {command}`", path.display()));
                continue;
            };
            let own = words.iter().skip(1).take_while(|word| **word != "--");
            let flags = own
                .filter(|word| word.starts_with("--"))
                .map(|word| word.split('=').next().unwrap_or_default());
            let missing: Vec<&str> = flags.filter(|flag| !help.contains(flag)).collect();
            if !missing.is_empty() {
                wrong.push(format!("{}: `plimsoll {command}` has no {missing:?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty() && count >= 50, "{count} commands\n{}", wrong.join("\n"));
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let others =
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "SPECIFICATION.md", "SECURITY.md", "bench/RESULTS.md"];
    let others = others.iter().map(|name| repository().join(name)).filter(|path| path.exists());
    for path in pages().into_iter().chain(others) {
        let folder = path.parent().unwrap();
        for link in Page::read(&path).links() {
            let target = link.split('#').next().unwrap();
            let is_outside = link.starts_with("http") || target.is_empty();
            assert!(is_outside || folder.join(target).exists(), "{}: {link}", path.display());
            let place =
                link.split_once('#').filter(|(target, _)| target.is_empty() || target.ends_with(".md"));
            if let Some((target, place)) = place {
                let page = if target.is_empty() { path.clone() } else { folder.join(target) };
                assert!(Page::read(&page).places().any(|found| found == place), "{}: {link}", path.display());
            }
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

/// Every folder of a user's home that the program writes.
#[test]
fn the_guide_to_remove_everything_names_every_folder() {
    let guide = std::fs::read_to_string(repository().join("docs/install.md")).unwrap();
    let remove = guide.split_once("## Remove everything").unwrap().1;
    for folder in [
        "~/.cargo/lib/plimsoll",
        "~/.cache/plimsoll",
        "~/.config/plimsoll",
        "~/.local/state/plimsoll",
        "engine remove",
    ] {
        assert!(remove.contains(folder), "{folder}");
    }
}

#[test]
fn readme_and_changelog_are_short() {
    for (name, most) in [("README.md", 110), ("CHANGELOG.md", 40)] {
        let lines = std::fs::read_to_string(repository().join(name)).unwrap().lines().count();
        assert!(lines <= most, "{name}: {lines} lines");
    }
}
