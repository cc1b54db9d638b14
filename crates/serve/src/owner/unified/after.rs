//! After a load: the page cache of the files that it read is given back.
//!
//! DECISION: not where the engine maps its files and computes with weights that stayed on the host, for it reads these from the
//! cache. Whether any did is worked out from the flags, and the engine's own word that it put fewer layers on the card counts more. Pages that
//! are mapped stay in any case (the tables of the input, of which a row is read for each token). Nor where another engine that
//! runs or loads reads the same file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use plimsoll_base::{Bytes, Card};
use plimsoll_config::Entry;
use plimsoll_flags::{Program, Wish};
use plimsoll_launch::LogLine;
use plimsoll_model::Dialect;
use plimsoll_planner::{Engine, PlanRequest, computed_on_host};
use plimsoll_probe::headers::read_model;
use plimsoll_reclaim::{FileCache, advise};
use tokio::task::{spawn_blocking, spawn_local};

use super::files::{self, Identity};
use crate::owner::Owner;
use crate::owner::run::Run;
use crate::owner::survey::named;

/// Gives back what the run has left in the page cache, now that it is ready.
pub(in crate::owner) fn let_go(owner: &Rc<Owner>, run: &Rc<Run>) {
    if let Some(load) = owner.load_of(run) {
        spawn_local(give_back(Rc::clone(owner), load));
    }
}

async fn give_back(owner: Rc<Owner>, load: Load) {
    let name = load.entry.name.clone();
    let given = spawn_blocking(move || load.give_back()).await;
    match given.map_err(|error| error.to_string()).flatten() {
        Ok(bytes) if bytes.is_zero() => {}
        Ok(bytes) => {
            tracing::info!(
                "{name}: about {bytes} of its files were in the page cache; what the engine does not map of it is given back"
            );
            owner.events.page_cache_dropped(&name, bytes);
        }
        Err(why) => tracing::debug!("the page cache of {name} stays: {why}"),
    }
}

/// A load that is through.
struct Load {
    entry: Entry,
    /// All cards that are served from, and those that it got.
    machine: Vec<Card>,
    cards: Vec<Card>,
    /// What the engine said of it.
    lines: Vec<std::sync::Arc<LogLine>>,
    /// Whose engines run or load beside it.
    others: Vec<Entry>,
}

impl Owner {
    /// `None` where there is nothing to give back: elsewhere, and for an engine without a card.
    fn load_of(&self, run: &Run) -> Option<Load> {
        let cards: Vec<Card> = self.cards_of(run).into_iter().cloned().collect();
        if !self.terms.unified || cards.is_empty() {
            return None;
        }
        let state = self.state.borrow();
        let others = state.runs.values().filter(|other| other.id != run.id);
        Some(Load {
            entry: Entry::clone(&run.entry),
            machine: self.terms.cards().cloned().collect(),
            cards,
            lines: run.lines(),
            others: others.map(|other| Entry::clone(&other.entry)).collect(),
        })
    }
}

impl Load {
    /// Returns what was there of it; the error says why it stays.
    fn give_back(&self) -> Result<Bytes, String> {
        let wish = self.wish()?;
        if wish.mmap {
            self.check_that_nothing_stays(&wish)?;
        }
        let files = files::of(&wish);
        if files.is_empty() {
            return Err("its files are not here".to_owned());
        }
        let files = not_among(files, &files::identities(&self.others));
        if files.is_empty() {
            return Err("other engines read its files".to_owned());
        }
        let cached = files.iter().filter_map(|path| FileCache::look(path).ok());
        let cached = cached.map(|file| file.at_most()).sum();
        advise(&files).map_err(|error| error.to_string())?;
        Ok(cached)
    }

    /// The flags as the engine read them.
    fn wish(&self) -> Result<Wish, String> {
        let options = self.entry.launch.options().ok_or("its files are not known")?;
        let flags = named::flags(&self.entry, options).map_err(|error| error.to_string())?;
        named::seen_by(&flags, &self.machine, &self.cards).map_err(|error| error.to_string())
    }

    fn check_that_nothing_stays(&self, wish: &Wish) -> Result<(), String> {
        let said = self.lines.iter().filter_map(|line| offloaded(&line.text));
        if let Some((on_cards, layers)) = said.into_iter().find(|(on_cards, layers)| on_cards < layers) {
            return Err(format!(
                "it computes with {} of {layers} layers on the host",
                layers - on_cards
            ));
        }
        let read =
            |path: &String| read_model(path.as_ref(), Dialect::Ggml).map_err(|error| error.to_string());
        let Some(model) = wish.model.as_ref().map(read).transpose()? else {
            return Ok(());
        };
        let draft = wish.draft_model.as_ref().map(read).transpose()?;
        let on_host = computed_on_host(&PlanRequest {
            model: &model,
            draft: draft.as_ref(),
            projector: None,
            wish,
            engine: Engine::LLAMA_CPP,
            program: Program::LlamaServer,
            cards: &self.cards,
            contexts: &[],
        });
        match on_host.map_err(|error| error.to_string())? {
            Bytes::ZERO => Ok(()),
            bytes => Err(format!("it computes with {bytes} of its weights on the host")),
        }
    }
}

fn not_among(mut files: Vec<PathBuf>, spared: &BTreeSet<Identity>) -> Vec<PathBuf> {
    files.retain(|path| files::identity(path).is_some_and(|file| !spared.contains(&file)));
    files
}

/// `offloaded 33/33 layers to GPU` (`llama-model.cpp: load_tensors @ b10605`): how many of how many.
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
        let said = offloaded("load_tensors: offloaded 12/33 layers to GPU");
        assert_eq!(said, Some((12, 33)));
        for line in [
            "load_tensors: offloading 32 repeating layers to GPU",
            "offloaded many/33 layers to GPU",
            "",
        ] {
            assert_eq!(offloaded(line), None);
        }
    }
}
