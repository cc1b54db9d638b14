//! Drops a model's files from the page cache after its load.
//!
//! The page cache is kept if the engine computes with mapped weights on the host, or if another engine reads
//! the same model file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use plimsoll_base::{Bytes, Card};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::{ModelParams, ProgramKind};
use plimsoll_log::LogLine;
use plimsoll_model::Dialect;
use plimsoll_plan::{Estimate, Models};
use plimsoll_planner::computed_on_host;
use plimsoll_probe::headers::read_model;
use plimsoll_reclaim::{FileCache, advise};

use plimsoll_route::ModelService;
use plimsoll_runtime::model_files::{self as files, FileIdentity};
use plimsoll_runtime::{EngineRun, Runtime, named};
use plimsoll_task::{spawn_blocking, spawn_local};

/// Drops the page cache that the load of a ready run has left.
pub(super) fn drop_page_cache(runtime: &Rc<Runtime>, run: &Rc<EngineRun>) {
    if let Some(load) = load_of(runtime, run) {
        spawn_local(give_back(Rc::clone(runtime), load));
    }
}

async fn give_back(runtime: Rc<Runtime>, load: Load) {
    let name = load.entry.name.clone();
    let given = spawn_blocking(move || load.give_back()).await;
    match given.map_err(|error| error.to_string()).flatten() {
        Ok(bytes) if bytes.is_zero() => {}
        Ok(bytes) => {
            tracing::info!(
                "{name}: about {bytes} of its files were in the page cache; the part that the engine does not map is evicted from the cache"
            );
            runtime.events().page_cache_dropped(&name, bytes);
        }
        // It is a saving only, so a failure is no news for the operator.
        Err(why) => tracing::debug!("the page cache of {name} is kept: {why}"),
    }
}

/// Data of a completed load: the model's entry, its cards and log lines, and the other running models.
struct Load {
    entry: ConfiguredModel,
    /// All cards that are served from, and those of the run.
    machine: Vec<Card>,
    cards: Vec<Card>,
    /// Lines of the engine's log.
    lines: Vec<std::sync::Arc<LogLine>>,
    /// Models with other engines that run or load.
    others: Vec<ConfiguredModel>,
}

/// The load of a run; `None` for an engine without a card.
fn load_of(runtime: &Runtime, run: &EngineRun) -> Option<Load> {
    let cards: Vec<Card> = runtime.settings.cards_of(run.placement()).into_iter().cloned().collect();
    if cards.is_empty() {
        return None;
    }
    let others = runtime.state.runs().into_iter().filter(|other| other.id != run.id);
    Some(Load {
        entry: ConfiguredModel::clone(&run.entry),
        machine: runtime.settings.cards().cloned().collect(),
        cards,
        lines: run.lines(),
        others: others.map(|other| ConfiguredModel::clone(&other.entry)).collect(),
    })
}

impl Load {
    /// Returns the size that was cached; the error is the reason why it stays.
    fn give_back(&self) -> Result<Bytes, String> {
        let params = self.params()?;
        // Without mmap the weights were copied, and no page of the file is needed any more.
        if params.mmap {
            self.check_that_nothing_stays(&params)?;
        }
        let files = files::of(&params);
        if files.is_empty() {
            return Err("the model's files are not on this machine".to_owned());
        }
        let files = not_among(files, &files::identities(&self.others));
        if files.is_empty() {
            return Err("other running engines use the same model files".to_owned());
        }
        // Before the advice, since nothing of it is left afterwards.
        let cached = files.iter().filter_map(|path| FileCache::look(path).ok());
        let cached = cached.map(|file| file.at_most()).sum();
        advise(&files).map_err(|error| error.to_string())?;
        Ok(cached)
    }

    /// The flags as the engine read them.
    fn params(&self) -> Result<ModelParams, String> {
        let options = self.entry.launch.options().ok_or("the model's files are unknown")?;
        let flags = named::flags(&self.entry, options).map_err(|error| error.to_string())?;
        let seen = named::seen_by(&flags, &self.machine, &self.cards);
        seen.and_then(|seen| seen.params(ProgramKind::LlamaServer)).map_err(|error| error.to_string())
    }

    fn check_that_nothing_stays(&self, params: &ModelParams) -> Result<(), String> {
        let stated = self.lines.iter().filter_map(|line| offloaded(&line.text));
        if let Some((on_cards, layers)) = stated.into_iter().find(|(on_cards, layers)| on_cards < layers) {
            return Err(format!(
                "the engine computes with {} of {layers} layers in host memory",
                layers - on_cards
            ));
        }
        let read =
            |path: &String| read_model(path.as_ref(), Dialect::Ggml).map_err(|error| error.to_string());
        // A model by `-hf` has no local path to plan with.
        let Some(model) = params.model.as_ref().map(read).transpose()? else {
            return Ok(());
        };
        let draft = params.draft_model.as_ref().map(read).transpose()?;
        let estimate = Estimate::new(Models { draft, ..Models::from(model) });
        let on_host = computed_on_host(&estimate.request(params, &self.cards));
        match on_host.map_err(|error| error.to_string())? {
            Bytes::ZERO => Ok(()),
            bytes => Err(format!("the engine computes with {bytes} of weights in host memory")),
        }
    }
}

fn not_among(mut files: Vec<PathBuf>, spared: &BTreeSet<FileIdentity>) -> Vec<PathBuf> {
    files.retain(|path| files::identity(path).is_some_and(|file| !spared.contains(&file)));
    files
}

/// Reads `offloaded 33/33 layers to GPU` (`llama-model.cpp: load_tensors @ b10605`).
fn offloaded(line: &str) -> Option<(u32, u32)> {
    let (_, rest) = line.split_once("offloaded ")?;
    let (counts, _) = rest.split_once(" layers to GPU")?;
    let (on_cards, layers) = counts.split_once('/')?;
    Some((on_cards.parse().ok()?, layers.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_word_on_its_layers_is_read() {
        let stated = offloaded("load_tensors: offloaded 12/33 layers to GPU");
        assert_eq!(stated, Some((12, 33)));
        for line in
            ["load_tensors: offloading 32 repeating layers to GPU", "offloaded many/33 layers to GPU", ""]
        {
            assert_eq!(offloaded(line), None);
        }
    }
}
