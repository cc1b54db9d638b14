//! `cargo xtask drift`: compares the memory of newer engines with the planner's formulas, to find where the
//! formulas are outdated.
//!
//! `plimsoll plan --exact` runs each engine without a card, with one model of every architecture that the
//! engine knows. The formulas plan the same models. The largest difference of each architecture is compared
//! with the record in `data/drift`. The engine's `--help` is compared with the flag table.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

mod architectures;
mod ask;
mod engines;
mod flags;
mod models;
mod options;
mod record;

use ask::{Asker, Difference};
use engines::Engine;
pub(crate) use options::Options;
use record::{Forms, Record};

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriftError {
    #[error("cannot run {program}: {error}\nhint: {hint}")]
    Start { program: String, error: std::io::Error, hint: &'static str },
    #[error("{program} failed: {stated}\nhint: {hint}")]
    Run { program: String, stated: String, hint: &'static str },
    #[error("cannot use {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{} is not what drift wrote: {why}\nhint: restore it, or write it anew with --write", path.display())]
    Record { path: PathBuf, why: String },
    #[error("{engine} is damaged or incomplete: {what} is missing\nhint: remove {} and run again", place.display())]
    Damaged { engine: String, what: String, place: PathBuf },
    #[error(
        "{engine} names {count} architectures, more than any llama.cpp has (at most {most})\nhint: give the \
        ones to compare with --only"
    )]
    Architectures { engine: String, count: usize, most: usize },
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    match drift(root, options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// True where nothing is worse than its record.
fn drift(root: &Path, options: &Options) -> Result<bool, DriftError> {
    let place = super::guard::target(root).join("drift");
    let asker = Asker::new(root, &place, options.built.as_deref())?;
    let mut worse = Vec::new();
    for chosen in options.engines() {
        let engine = Engine::get(&chosen, &place)?;
        let seen = compared(&asker, &engine, options)?;
        let path = Record::path(root, &engine.name);
        let recorded = Record::read(&path)?;
        print!("{}", seen.table(&recorded));
        worse.extend(seen.worse(&recorded).into_iter().map(|line| format!("{}: {line}", engine.name)));
        if options.write {
            // A choice of architectures changes their rows alone.
            let whole = options.only.is_empty();
            if whole { seen } else { recorded.with(seen) }.write(&path)?;
        }
    }
    if options.write {
        Forms::read(root)?.write(root)?;
        return Ok(true);
    }
    for line in &worse {
        eprintln!("worse than recorded: {line}");
    }
    Ok(worse.is_empty())
}

fn compared(asker: &Asker, engine: &Engine, options: &Options) -> Result<Record, DriftError> {
    let version = asker.version(engine)?;
    eprintln!("── {}: {version} ──", engine.name);
    let mut record = Record::new(engine, version);
    record.flags = flags::compare(&asker.help(engine)?);
    let names = architectures::known(engine, &options.only)?;
    for (name, rows) in names.iter().zip(requested(asker, engine, &names, options)) {
        match rows {
            Ok(rows) => record.add(name, &rows),
            // A name in the library that is none of an architecture's.
            Err(models::Ungrown::Unknown) => {}
            Err(models::Ungrown::Stuck(words)) => drop(record.unanswered.insert(name.clone(), words)),
            Err(models::Ungrown::Failed(error)) => return Err(error),
        }
    }
    Ok(record)
}

type Rows = Result<Vec<Result<Difference, String>>, models::Ungrown>;

/// The rows of each architecture. The engine runs once for each processor at a time.
fn requested(asker: &Asker, engine: &Engine, names: &[String], options: &Options) -> Vec<Rows> {
    let waiting = Mutex::new(names.iter().zip(0_usize..));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || {
        let mut answers = Vec::new();
        while let Some((name, at)) = next() {
            let models = models::of(asker, engine, name, &options.only);
            let rows = models
                .map(|models| models.iter().flat_map(|model| asker.differences(engine, model)).collect());
            eprintln!("{name}");
            answers.push((at, rows));
        }
        answers
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut answers: Vec<(usize, Rows)> = thread::scope(|scope| {
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        started.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
    });
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, rows)| rows).collect()
}
