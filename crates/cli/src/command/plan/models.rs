//! Reads the models that llama-server's flags name, from the headers of files on this machine.

use std::path::Path;

use plimsoll_base::Card;
use plimsoll_flags::{ModelParams, Options, ProgramKind};
use plimsoll_hub::HubFailure;
use plimsoll_model::Dialect;
use plimsoll_plan::{Estimate, Models};
use plimsoll_planner::fit::ContextPoint;
use plimsoll_planner::{EngineBuild, Plan};
use plimsoll_site::POINTS;

use super::remote;
use crate::report::ErrorReport;

/// Memory of each context by the formulas, for the page.
pub(super) fn course(
    estimate: &Estimate,
    options: &Options,
    cards: &[Card],
    plan: &Plan,
) -> Result<Vec<ContextPoint>, ErrorReport> {
    // The largest context that fits rarely is a multiple of the step, and it is the one that users look for.
    let besides: Vec<u64> = plan.largest_context.into_iter().collect();
    Ok(estimate.course(options, cards, POINTS, &besides)?)
}

/// An estimate of the models that the flags name, for this machine.
pub(super) fn estimate(
    params: &ModelParams,
    engine: EngineBuild,
    program: ProgramKind,
) -> Result<Estimate, ErrorReport> {
    Ok(plimsoll_probe::estimate(read(params, engine)?, engine, program))
}

fn read(params: &ModelParams, engine: EngineBuild) -> Result<Models, ErrorReport> {
    let dialect = engine.kind.dialect();
    let here = downloaded(params, dialect)?;
    plimsoll_probe::models::read(&here, dialect).map_err(|error| {
        match here.model.as_deref().and_then(elsewhere) {
            Some(hint) => ErrorReport::new(format!("{error}\nhint: {hint}")),
            None => error.into(),
        }
    })
}

/// Advice for a name that is no file here and looks like one of a hub or of ollama.
fn elsewhere(name: &str) -> Option<String> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    let name = name.trim_start_matches("hf.co/").trim_start_matches("huggingface.co/");
    if Path::new(name).exists() || name.ends_with(".gguf") {
        return None;
    }
    let (repository, tag) = name.split_once(':').unwrap_or((name, "latest"));
    match repository.split_once('/') {
        Some((user, repo)) if is_word(user) && is_word(repo) && is_word(tag) => {
            Some(format!("`plimsoll plan -hf {name}` plans a model of Hugging Face's hub"))
        }
        None if name.contains(':') && is_word(repository) && is_word(tag) => {
            Some("`plimsoll import ollama` writes the files of ollama's models, and `plimsoll plan FILE` plans one".to_owned())
        }
        _ => None,
    }
}

/// The flags with the downloaded files. Nothing is fetched: the callers' programs run already, or will fetch
/// the model themselves.
fn downloaded(params: &ModelParams, dialect: Dialect) -> Result<ModelParams, ErrorReport> {
    if !remote::names_some(params) {
        return Ok(params.clone());
    }
    let offline = ModelParams { offline: true, ..params.clone() };
    let located =
        remote::hub(None, None)?.locate(&offline, dialect).map_err(|error| match error.failure {
            HubFailure::Offline => ErrorReport::new(format!(
                "the model `{}` is not on this machine, and a plan reads its header\nhint: let llama-server \
                download it once, or give the file with -m; `plimsoll plan -hf` fetches the header alone",
                error.of
            )),
            _ => error.into(),
        })?;
    remote::put(offline, &located, |place| match place {
        plimsoll_hub::ModelPlace::File(path) => Ok(path.to_string_lossy().into_owned()),
        plimsoll_hub::ModelPlace::Remote(model) => {
            Err(ErrorReport::new(format!("`{}` is not a file on this machine", model.name)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_hub_or_of_ollama_is_refused_with_its_right_place() {
        for (name, reported) in [
            ("bartowski/Llama-3.1-8B-GGUF", Some("-hf bartowski/Llama-3.1-8B-GGUF`")),
            ("hf.co/a/b:Q4_K_M", Some("-hf a/b:Q4_K_M`")),
            ("llama3:8b", Some("import ollama")),
            ("models/a.gguf", None),
            ("model", None),
            ("/no/such/file", None),
            ("a/b/c", None),
            ("a b:c", None),
            ("", None),
            (":", None),
        ] {
            let hint = elsewhere(name);
            assert_eq!(hint.is_some(), reported.is_some(), "{name}: {hint:?}");
            assert!(hint.unwrap_or_default().contains(reported.unwrap_or_default()), "{name}");
        }
    }
}
