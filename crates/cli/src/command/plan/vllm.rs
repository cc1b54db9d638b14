//! `plimsoll plan -- vllm serve MODEL FLAGS`: plans the memory of vLLM for a folder or a repository of
//! safetensors, alone or beside another engine on the card.
//!
//! `+` stands between two command lines. Nothing runs, and no weight is read: headers and `config.json` say
//! all.

mod folder;
mod repository;

use std::path::Path;
use std::process::ExitCode;

use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_vllm::{Neighbour, ServeCommand, Together, VllmPlan, together};
use serde_json::json;

use self::folder::Checkpoint;
use super::requested;
use super::{Arguments, by_words, remote};
use crate::report::{ErrorReport, print_as, status};
use crate::screen::VllmReport;

/// The module that other installations start instead of `vllm serve`.
const SERVER: &str = "vllm.entrypoints.openai.api_server";

/// One engine of the command line.
enum Engine {
    Vllm(ServeCommand),
    /// Flags of llama.cpp, with its program before them.
    LlamaCpp(Vec<String>),
}

/// What one engine takes.
enum Planned {
    Vllm { name: String, plan: Box<VllmPlan> },
    Fixed { name: String, bytes: Bytes },
}

/// The words of each engine, if one of them is a vLLM.
pub(super) fn asked(arguments: &Arguments) -> Option<Vec<Vec<String>>> {
    let mut engines: Vec<Vec<String>> =
        arguments.flags.split(|word| word == "+").map(<[String]>::to_vec).collect();
    if let [folder] = &arguments.model[..]
        && Path::new(folder).join("config.json").is_file()
    {
        let words = engines.first_mut()?;
        words.splice(0..0, ["vllm", "serve", folder].map(str::to_owned));
    }
    engines.iter().any(|words| serve_words(words).is_some()).then_some(engines)
}

/// The words after `vllm serve`, or after the module's name.
fn serve_words(words: &[String]) -> Option<&[String]> {
    let is_server = |pair: &[String]| match pair {
        [program, verb] => {
            let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
            matches!((name, verb.as_str()), ("vllm", "serve") | ("-m", SERVER))
        }
        _ => false,
    };
    let at = words.windows(2).position(is_server)?;
    words.get(at + 2..)
}

pub(super) fn run(arguments: &Arguments, engines: &[Vec<String>]) -> Result<ExitCode, ErrorReport> {
    refuse_others(arguments)?;
    let cards = requested::room(arguments, &Options::default())?.cards;
    let card = cards.first().filter(|card| card.kind == CardKind::Cuda).ok_or_else(super::no_card)?;
    let planned: Vec<Planned> = engines
        .iter()
        .map(|words| planned(arguments, engine(words)?, &cards))
        .collect::<Result<_, ErrorReport>>()?;
    let beside = (planned.len() > 1).then(|| beside(&planned, card));
    let plans: Vec<(&str, &VllmPlan)> = planned.iter().filter_map(Planned::of_vllm).collect();
    let fits = match &beside {
        Some(beside) => beside.fits,
        None => plans.iter().all(|(_, plan)| plan.fits),
    };
    let named = |(name, plan): &(&str, &VllmPlan)| json!({ "model": name, "plan": plan });
    let document = json!({
        "schema": "plimsoll.vllm-plan/1", "engines": plans.iter().map(named).collect::<Vec<_>>(),
        "together": beside, "fits": fits,
    });
    let report = VllmReport { plans, together: beside.as_ref() };
    print_as(arguments.json.as_deref(), &document, || report.in_words())?;
    Ok(status(fits))
}

fn refuse_others(arguments: &Arguments) -> Result<(), ErrorReport> {
    let of_llama_cpp = [
        ("--fit", arguments.fit.is_some()),
        ("--quants", arguments.quants),
        ("--check", arguments.check.is_some()),
        ("--svg", arguments.svg.is_some()),
        ("--html", arguments.html.is_some()),
        ("--toml", arguments.toml.is_some()),
        ("--exact", arguments.exact.is_some()),
    ];
    match of_llama_cpp.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(ErrorReport::new(format!("{option} is not for a plan of vLLM"))),
        None => Ok(()),
    }
}

fn engine(words: &[String]) -> Result<Engine, ErrorReport> {
    if let Some(words) = serve_words(words) {
        return Ok(Engine::Vllm(ServeCommand::read(words)?));
    }
    match requested::other_program(words) {
        Some(why) => Err(ErrorReport::new(why)),
        None => Ok(Engine::LlamaCpp(words.to_vec())),
    }
}

fn planned(arguments: &Arguments, engine: Engine, cards: &[Card]) -> Result<Planned, ErrorReport> {
    match engine {
        Engine::Vllm(command) => {
            let name = command.model.clone().ok_or_else(|| {
                ErrorReport::new("no model is given\nhint: plimsoll plan -- vllm serve FOLDER")
            })?;
            let checkpoint = checkpoint(arguments, &name)?;
            let plan = VllmPlan::new(&checkpoint.config, &checkpoint.tensors, &command, cards)?;
            Ok(Planned::Vllm { name, plan: Box::new(plan) })
        }
        Engine::LlamaCpp(words) => {
            let (words, program) = requested::flags(&[], &words);
            let program = program.unwrap_or(ProgramKind::LlamaServer);
            let plan = by_words(&words, arguments.engine(), program, cards)?;
            let bytes = plan.cards.first().map_or(Bytes::ZERO, |card| card.peak);
            Ok(Planned::Fixed { name: plan.model, bytes })
        }
    }
}

/// The checkpoint of a folder, of a copy in the hub's cache, or else of a repository on the hub.
fn checkpoint(arguments: &Arguments, model: &str) -> Result<Checkpoint, ErrorReport> {
    match folder::folder(model) {
        Some(folder) => Checkpoint::read(&folder),
        None if plimsoll_hub::is_repository(model) => {
            repository::read(&remote::hub(None, Some(arguments.header_limit))?, model)
        }
        None => Err(ErrorReport::new(format!(
            "`{model}` is no folder\nhint: name a folder with config.json and safetensors, or a repository of \
                the hub, USER/REPO"
        ))),
    }
}

impl Planned {
    fn of_vllm(&self) -> Option<(&str, &VllmPlan)> {
        match self {
            Self::Vllm { name, plan } => Some((name, plan)),
            Self::Fixed { .. } => None,
        }
    }
}

/// All engines on the first card.
fn beside(planned: &[Planned], card: &Card) -> Together {
    let neighbours: Vec<Neighbour<'_>> = planned
        .iter()
        .map(|planned| match planned {
            Planned::Vllm { name, plan } => Neighbour::Vllm { name, plan },
            Planned::Fixed { name, bytes } => Neighbour::Fixed { name, bytes: *bytes },
        })
        .collect();
    together(&neighbours, card.total, card.free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vllm_is_found_by_both_of_its_starts() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (line, found) in [
            ("vllm serve m -tp 2", Some("m -tp 2")),
            ("/opt/venv/bin/vllm serve m", Some("m")),
            ("python -m vllm.entrypoints.openai.api_server --model m", Some("--model m")),
            ("llama-server -m m.gguf", None),
            ("vllm bench serve", None),
        ] {
            assert_eq!(serve_words(&words(line)).map(<[String]>::to_vec), found.map(words), "{line}");
        }
    }
}
