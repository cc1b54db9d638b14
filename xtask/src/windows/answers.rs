//! Compares plans and diagnoses of the Windows program with those of the Linux program, byte for byte.
//!
//! The plans are those of the rows that the planner's tests hold the formulas to (`data/exact`). The
//! diagnoses are those of the logs that doctor's tests read (`data/logs`).

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_specimens::{Changes, write};
use serde::Deserialize;

use super::Toolchain;
use super::parts::Shown;
use crate::debian::run_to_end;

/// The longest time of the quickest answer under Wine: a busy machine delays the others.
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Recorded {
    build: u32,
    rows: Vec<Row>,
}

#[derive(Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    model: String,
    draft: Option<String>,
    projector: Option<String>,
    program: String,
    cards: usize,
    args: String,
}

/// Asks the program for Windows and Linux', and compares what they print.
pub(super) fn compare(toolchain: &Toolchain, there: &Path) -> io::Result<Shown> {
    let root = &toolchain.root;
    run_to_end(Command::new("cargo").args(["build", "--package", "plimsoll"]).current_dir(root))?;
    let here = root.join("target/debug/plimsoll");
    let (mut equal, mut different, mut quickest) = (0, 0, Duration::MAX);
    for question in plans(root)?.into_iter().chain(diagnoses(root)?) {
        let answer = question.put(&mut Command::new(&here))?;
        let begun = Instant::now();
        let answer_there = question.put(toolchain.wine().arg(there))?;
        quickest = quickest.min(begun.elapsed());
        if answer_there == answer {
            equal += 1;
        } else {
            different += 1;
            let asked = question.words.join(" ");
            eprintln!("windows: another answer to `plimsoll {asked}`: {}", answer_there.beside(&answer));
        }
    }
    let figure = format!(
        "{equal} answers are Linux's byte for byte, {different} are not; the quickest took {quickest:.2?}"
    );
    let mut shown = Shown::of_compared(equal, different, figure);
    shown.outcome.succeeded &= quickest <= LONGEST;
    Ok(shown)
}

/// A command line in a folder, whose files it names without one.
struct Question {
    folder: PathBuf,
    words: Vec<String>,
}

#[derive(PartialEq, Eq)]
struct Answer {
    status: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Question {
    fn put(&self, program: &mut Command) -> io::Result<Answer> {
        let output = program.args(&self.words).current_dir(&self.folder).stdin(Stdio::null()).output()?;
        Ok(Answer { status: output.status.code(), stdout: output.stdout, stderr: output.stderr })
    }
}

impl Answer {
    /// What it has otherwise than another answer: the status, and the first line of each stream.
    fn beside(&self, other: &Self) -> String {
        let mut text = format!("status {:?} for {:?}", self.status, other.status);
        for (own, others) in [(&self.stdout, &other.stdout), (&self.stderr, &other.stderr)] {
            let (own, others) = (String::from_utf8_lossy(own), String::from_utf8_lossy(others));
            let length = own.lines().count().max(others.lines().count());
            let lines = own.lines().chain(iter::repeat("")).zip(others.lines().chain(iter::repeat("")));
            if let Some((own, others)) = lines.take(length).find(|(own, others)| own != others) {
                text.push_str(&format!("; `{own}` for `{others}`"));
            }
        }
        text
    }
}

/// The folder of the models.
pub(super) fn models(root: &Path) -> io::Result<PathBuf> {
    let folder = root.join("target/windows/models");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Rows of a build for these models alone, with a context: as many of them, spread over all.
pub(super) fn rows_of(root: &Path, build: u32, models: &[&str], most: usize) -> io::Result<Vec<Row>> {
    let is_meant = |row: &Row| {
        let has_one = row.draft.is_none() && row.projector.is_none();
        has_one
            && row.program == "llama-server"
            && !row.context().is_empty()
            && models.contains(&row.model.as_str())
    };
    let rows = rows(&root.join("data/exact"))?.into_iter();
    let rows: Vec<Row> = rows.filter(|(of, row)| *of == build && is_meant(row)).map(|(_, row)| row).collect();
    Ok(rows.iter().step_by((rows.len() / most).max(1)).take(most).cloned().collect())
}

/// A plan of each recorded row.
fn plans(root: &Path) -> io::Result<Vec<Question>> {
    let folder = models(root)?;
    let rows = rows(&root.join("data/exact"))?;
    let question = |(build, row): (u32, Row)| {
        let words = row.words(build, &folder)?;
        Ok(Question { folder: folder.clone(), words })
    };
    rows.into_iter().map(question).collect()
}

/// A diagnosis of each log.
fn diagnoses(root: &Path) -> io::Result<Vec<Question>> {
    let folder = root.join("data/logs");
    let names =
        fs::read_dir(&folder)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut logs: Vec<String> = names.filter(|name| name.ends_with(".log")).collect();
    logs.sort_unstable();
    let question = |log| Question {
        folder: folder.clone(),
        words: ["doctor", "--json", log].map(str::to_owned).to_vec(),
    };
    Ok(logs.iter().map(|log| question(log)).collect())
}

/// Each row once, with its build.
fn rows(folder: &Path) -> io::Result<BTreeSet<(u32, Row)>> {
    let mut rows = BTreeSet::new();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "json"));
    for path in paths {
        let recorded: Recorded = serde_json::from_slice(&fs::read(path)?)?;
        rows.extend(recorded.rows.into_iter().map(|row| (recorded.build, row)));
    }
    Ok(rows)
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {} cards", self.model, self.args, self.cards)
    }
}

impl Row {
    /// The word behind `-c`; empty where there is none.
    pub(super) fn context(&self) -> &str {
        self.args.split_whitespace().skip_while(|word| *word != "-c").nth(1).unwrap_or("")
    }

    /// The words of `plan`, with models that lie in the working folder.
    pub(super) fn words(&self, build: u32, models: &Path) -> io::Result<Vec<String>> {
        let mut words = vec!["plan".to_owned(), "--json".to_owned(), format!("--build=llama.cpp@{build}")];
        words.push(format!("--program={}", self.program));
        words.extend((0..self.cards).map(|card| format!("--card=name=card{card},total=80GiB,cc=8.9")));
        words.push("--".to_owned());
        let files =
            [("-m", Some(&self.model)), ("-md", self.draft.as_ref()), ("-mm", self.projector.as_ref())];
        for (flag, name) in files.into_iter().filter_map(|(flag, name)| Some((flag, name?))) {
            let file = format!("{name}.gguf");
            if !models.join(&file).is_file() {
                write(name, &models.join(&file), &Changes::default()).map_err(io::Error::other)?;
            }
            words.extend([flag.to_owned(), file]);
        }
        words.extend(self.args.split_whitespace().map(str::to_owned));
        Ok(words)
    }
}
