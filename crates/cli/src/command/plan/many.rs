//! `plimsoll plan` with several models: chooses flags for each, shows which fit at the same time, and writes
//! a configuration for `serve`.
//!
//! The plans are by the formulas. Exits 0 if each model can be loaded.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plimsoll_base::{Bytes, CardKind, CardLimit, Company, Reason};
use plimsoll_config::{Configuration, ConfiguredModel, Launch};
use plimsoll_flags::{FlagOrigin, Options};
use plimsoll_import::{Found, FoundModel, Places, find_read, write_toml};
use plimsoll_plan::{Choice, PlannedNeed, Room};
use plimsoll_planner::Plan;
use plimsoll_scheduler::place::Ledger;
use plimsoll_serve::{CandidateModel, LoadedTogether, together};
use serde_json::{Value, json};

use super::{Arguments, requested};
use crate::report::{ErrorReport, print_as, print_data, status, write_file};
use crate::screen::{TogetherReport, TogetherRow};
use crate::terminal;

/// Flags that place a model, which is the question here.
const PLACES: [&str; 4] = ["-dev", "-ts", "-mg", "-sm"];

/// A model file, and what was chosen for it or why nothing was.
struct PlannedFile {
    name: String,
    path: PathBuf,
    /// The flags of its files.
    options: Options,
    choice: Result<(Choice, PlannedNeed), String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let given = Options::from_argv(&arguments.flags)?;
    refuse_others(arguments, &given)?;
    let mut room = requested::room(arguments, &given)?;
    room.cards = arguments.occupied(room.cards);
    let limits = limits(arguments, &mut room);
    let files = files(arguments, &given, &room);
    if files.is_empty() {
        return Err(ErrorReport::new("no model is given\nhint: plimsoll plan *.gguf --toml"));
    }
    let found = placed(&files, &limits);
    let mut verdicts = found.models.iter();
    let rows = files.iter().map(|file| TogetherRow {
        name: &file.name,
        context: file.choice.as_ref().ok().map(|(choice, _)| choice.plan.context),
        // Each chosen model has a verdict, in the same order.
        verdict: match &file.choice {
            Ok(_) => verdicts.next().ok_or_else(String::new),
            Err(reason) => Err(reason.clone()),
        },
    });
    let report = TogetherReport {
        cards: limits.iter().map(|limit| &limit.card).collect(),
        models: rows.collect(),
        most: found.most,
    };
    let doubts = doubts(&files, &report, &room, &given);
    show(arguments, &files, &report, &doubts)?;
    Ok(status(report.all_fit()))
}

fn refuse_others(arguments: &Arguments, given: &Options) -> Result<(), ErrorReport> {
    let of_one = [
        ("--fit", arguments.fit.is_some()),
        ("--quants", arguments.quants),
        ("--check", arguments.check.is_some()),
        ("--svg", arguments.svg.is_some()),
        ("--html", arguments.html.is_some()),
        ("--exact", arguments.exact.is_some()),
        ("-hf", arguments.hf_repo.is_some()),
    ];
    let text = if let Some((option, _)) = of_one.iter().find(|(_, is_given)| *is_given) {
        format!("{option} is for a plan of one model\nhint: name one model, and leave out --toml")
    } else if let Some(flag) = PLACES.iter().find(|flag| given.get(flag).is_some()) {
        format!("a plan of several models places them itself, so {flag} cannot be given")
    } else if given.get("-m").is_some() {
        "name all model files before the engine's flags, without -m".to_owned()
    } else {
        return Ok(());
    };
    Err(ErrorReport::new(text))
}

/// The models of the files that are named, each with its projector and draft, and the files that are none.
fn files(arguments: &Arguments, given: &Options, room: &Room) -> Vec<PlannedFile> {
    let paths: Vec<PathBuf> = arguments.model.iter().chain(&arguments.named).map(PathBuf::from).collect();
    // Found files have absolute paths.
    let folders = paths.iter().filter(|path| path.is_dir()).filter_map(|path| std::path::absolute(path).ok());
    let folders: Vec<PathBuf> = folders.collect();
    let places = Places { paths, dialect: arguments.engine().kind.dialect(), ..Places::default() };
    let Found { models, passed_over, .. } = find_read(&places);
    let file_of = |model: &FoundModel| PathBuf::from(model.options.text("--model").unwrap_or_default());
    let is_empty = |folder: &PathBuf| {
        let is_below = |path: &Path| path.starts_with(folder);
        !models.iter().any(|model| is_below(&file_of(model)))
            && !passed_over.iter().any(|(path, _)| is_below(path))
    };
    let no_file = "there is no GGUF file in this folder";
    let empty: Vec<(PathBuf, String)> =
        folders.into_iter().filter(is_empty).map(|folder| (folder, no_file.to_owned())).collect();
    let refused = passed_over.into_iter().chain(empty).map(|(path, why)| PlannedFile {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        options: Options::default(),
        path,
        choice: Err(why),
    });
    models.into_iter().map(|model| look(arguments, given, room, model)).chain(refused).collect()
}

fn look(arguments: &Arguments, given: &Options, room: &Room, model: FoundModel) -> PlannedFile {
    let choice = (|| {
        let estimate = model.estimate(arguments.engine(), arguments.program())?;
        let options = model.options.clone().merged_over(given);
        let choice = room.limit(&estimate).choose(&options).map_err(|error| error.to_string())?;
        let need = PlannedNeed::new(estimate, &choice, &room.cards, room.host_counted().as_ref());
        Ok((choice, need))
    })();
    let path = PathBuf::from(model.options.text("--model").unwrap_or_default());
    PlannedFile { name: model.name, path, options: model.options, choice }
}

/// The cards with what may be used of them, and the host's memory beside them, as `serve` has them. Flags are
/// chosen within the same memory.
fn limits(arguments: &Arguments, room: &mut Room) -> Vec<CardLimit> {
    let cards = room.cards.iter().cloned().map(|card| match arguments.cards.is_empty() {
        true => CardLimit::of_machine(card, None),
        false => CardLimit::described(card),
    });
    let mut limits: Vec<CardLimit> = cards.collect();
    for (card, limit) in room.cards.iter_mut().zip(&limits) {
        card.free = card.free.saturating_sub(limit.reserve);
    }
    let is_described = arguments.host.is_some() || !arguments.cards.is_empty();
    limits.extend(room.host_beside().map(|host| match is_described {
        true => CardLimit::described(host),
        false => CardLimit::of_machine(host, None),
    }));
    limits
}

/// Places the models for which flags were chosen.
fn placed(files: &[PlannedFile], limits: &[CardLimit]) -> LoadedTogether {
    let company = Company::default();
    let chosen = files.iter().filter_map(|file| Some((file, &file.choice.as_ref().ok()?.1)));
    let candidates: Vec<CandidateModel<'_>> = chosen
        .map(|(file, demand)| CandidateModel {
            name: &file.name,
            demand,
            allowed: Vec::new(),
            company: &company,
            port: None,
            pinned: false,
        })
        .collect();
    together(&candidates, &Ledger::new(limits.to_vec()))
}

/// Host memory that models together may take without a word, where nothing is known of the machine.
const UNCHECKED: Bytes = Bytes::gib(4);

/// Doubts about the input, and about host memory for all members where it is not counted.
fn doubts(files: &[PlannedFile], report: &TogetherReport<'_>, room: &Room, given: &Options) -> Vec<Reason> {
    let is_member = |name: &str| report.models.iter().any(|row| row.name == name && row.member().is_some());
    let members = files.iter().filter(|file| is_member(&file.name));
    let plans = members.filter_map(|file| file.choice.as_ref().ok()).map(|(choice, _)| &choice.plan);
    let on_host: Bytes = plans.map(|plan: &Plan| plan.host.peak).sum();
    let mut doubts = room.doubts(given);
    let is_counted = room.host.is_some() || room.cards.iter().any(|card| card.kind == CardKind::Host);
    if !is_counted && on_host > UNCHECKED {
        let text = format!(
            "the models that fit on the cards at the same time take {on_host} of host memory besides, which is \
                not counted; --host SIZE counts it"
        );
        doubts.push(Reason::new("host_memory_unchecked", text));
    }
    doubts
}

fn show(
    arguments: &Arguments,
    files: &[PlannedFile],
    report: &TogetherReport<'_>,
    doubts: &[Reason],
) -> Result<(), ErrorReport> {
    let mut words = report.in_words();
    for doubt in doubts {
        words += &format!("warning: {}\n", doubt.text);
    }
    match arguments.toml.as_deref() {
        // Only the configuration on stdout, so that it can be written to a file.
        Some(path) if path == Path::new("-") => {
            write!(terminal::stderr(), "{words}")?;
            return print_data(toml(arguments, files, report)?);
        }
        Some(path) => {
            write_file(path, toml(arguments, files, report)?)?;
            words += &format!("written: {}; `plimsoll serve {0}` starts it\n", path.display());
        }
        None => {}
    }
    let mut document = report.as_json(|index| file_as_json(&files[index]));
    document["schema"] = json!("plimsoll.plan-many/1");
    document["warnings"] = json!(doubts);
    print_as(arguments.json.as_deref(), &document, || words)
}

fn file_as_json(file: &PlannedFile) -> Value {
    let choice = file.choice.as_ref().ok().map(|(choice, _)| choice);
    json!({
        "file": file.path,
        "flags": choice.map(|choice| choice.options.to_argv()),
        "why": choice.map(|choice| &choice.why),
    })
}

/// A configuration of the models that can be loaded.
fn toml(
    arguments: &Arguments,
    files: &[PlannedFile],
    report: &TogetherReport<'_>,
) -> Result<String, ErrorReport> {
    let mut configuration = Configuration::default();
    let mut comments = Vec::new();
    for (file, row) in files.iter().zip(&report.models) {
        let (Ok((choice, _)), Some(_)) = (&file.choice, row.alone()) else { continue };
        let options = file.options.clone().merged_over(&choice.options);
        let mut model = ConfiguredModel::new(file.name.clone(), FlagOrigin::CommandLine);
        model.launch = Launch::LlamaServer { program: None, options };
        // Cards of another machine may have other names there.
        if arguments.cards.is_empty() {
            model.cards = report.cards_of(row);
        }
        comments.push((file.name.clone(), format!("{}, on {}", choice.what, report.place_of(row))));
        configuration.models.push(model);
    }
    let comment = |model: &ConfiguredModel| {
        let own = comments.iter().find(|(name, _)| *name == model.name);
        own.map(|(_, why)| why.clone()).unwrap_or_default()
    };
    let left_out = files.iter().zip(&report.models).filter(|(_, row)| row.alone().is_none());
    let left_out: String = left_out
        .map(|(file, row)| {
            let refusal = row.refusal().unwrap_or_default();
            format!("# left out: {}: {}\n", file.name, refusal.replace('\n', " "))
        })
        .collect();
    let heading = format!("Written by plimsoll plan: {}.", report.verdict());
    let text = write_toml(&heading, &configuration, comment) + &left_out;
    // A text that `serve` refuses is not written.
    plimsoll_config::parse("plimsoll.toml", &text, &|_| None).map_err(|error| {
        ErrorReport::new(format!("the models cannot be written as a configuration: {error}"))
    })?;
    Ok(text)
}
