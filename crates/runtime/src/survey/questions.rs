//! Asks a model's engine once for each set of cards how much memory it takes, and corrects the plan by the
//! answer.
//!
//! DECISION: a result corrects the formulas by a constant for each card. No engine reports the run-time pool
//! and the driver's context, so they stay as planned, and so does growth with depth. The query assumes empty
//! cards: with several cards, the current free memory would only move layers between them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Card, CardId, CardKind};
use plimsoll_config::ConfiguredModel;
use plimsoll_engine::{Visible, child_environment, program};
use plimsoll_exact::{engine_stamp, file_stamp};
use plimsoll_flags::{FlagValue, Options};
use plimsoll_planner::exact::Transcript;

use super::asking::{ExactAnswers, ExactQuestion, Patience, RequestedEngine};

/// Variables of ggml change what an engine asks for.
const GGML: &str = "GGML_";

/// Access to the answers of engines for one survey.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) answers: ExactAnswers,
    /// Variables that engines inherit from the daemon.
    pub(super) inherited: Vec<(OsString, OsString)>,
    pub(super) patience: Patience,
}

/// Bytes to add to the formulas on each card of a set; `None` without an answer.
type Correction = Option<Vec<i64>>;

/// A model and its engine, with the corrections that were found so far.
#[derive(Debug)]
pub(super) struct ModelQuestions {
    asking: Asking,
    model: String,
    engine: RequestedEngine,
    /// Stamps of the files that its flags name; the answers on disk go by their headers.
    files: String,
    /// One need gives one answer, so the first correction of a set stays.
    found: Mutex<Vec<(Vec<CardId>, Correction)>>,
}

impl ModelQuestions {
    /// `None` for an engine that cannot be asked: a shell script may start it in a container.
    pub(super) fn new(
        entry: &ConfiguredModel,
        program: PathBuf,
        flags: &Options,
        asking: Option<&Asking>,
    ) -> Option<Self> {
        let asking = asking?.clone();
        if program::is_shell_script(&program) {
            tracing::debug!(
                "{} cannot report the memory of its models: it is a shell script",
                program.display()
            );
            return None;
        }
        let own = entry.environment(0);
        let environment =
            child_environment(asking.inherited.clone(), &own, &Visible::AsInherited, None, None);
        let searched = environment.get("LD_LIBRARY_PATH").unwrap_or_default();
        let mut stamp = engine_stamp(&program, searched);
        for (name, value) in environment.iter().filter(|(name, _)| name.to_string_lossy().starts_with(GGML)) {
            stamp.push_str(&format!("\n{}={}", name.to_string_lossy(), value.to_string_lossy()));
        }
        Some(Self {
            asking,
            model: entry.name.clone(),
            engine: RequestedEngine { program, environment, stamp },
            // Here, because the cards are asked about on the thread that serves.
            files: files(flags),
            found: Mutex::default(),
        })
    }

    /// Forgets the corrections, which are those of other flags.
    pub(super) fn flags_changed(&mut self) {
        self.found = Mutex::default();
    }

    /// The correction on these cards, as `find` returns it at the first call.
    pub(super) fn once(&self, cards: &[Card], find: impl FnOnce() -> Correction) -> Correction {
        let ids = || cards.iter().map(|card| &card.id);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = found.iter().find(|(of, _)| of.iter().eq(ids())) {
            return known.clone();
        }
        let correction = find();
        found.push((ids().cloned().collect(), correction.clone()));
        correction
    }

    /// Asks about `options`, which number these cards.
    pub(super) fn ask(&self, options: Options, cards: &[Card]) -> Option<Arc<Transcript>> {
        let cards = described(cards)?;
        let shape = |card: &Card| {
            (card.total, card.free, card.compute_capability, card.legacy_pool, card.name.clone())
        };
        let shapes: Vec<_> = cards.iter().map(shape).collect();
        let key = format!(
            "{}\n{}\n{}\n{shapes:?}\n{:?}",
            self.model,
            self.engine.stamp,
            self.files,
            options.to_argv()
        );
        let question =
            ExactQuestion { key, model: self.model.clone(), engine: self.engine.clone(), options, cards };
        self.asking.answers.ask(question, self.asking.patience)
    }
}

/// The cards as they are described to the engine; `None` where one of them is the host.
fn described(cards: &[Card]) -> Option<Vec<Card>> {
    if cards.is_empty() || cards.iter().any(|card| card.kind != CardKind::Cuda) {
        return None;
    }
    let mut cards = cards.to_vec();
    if let [card] = cards.as_mut_slice() {
        // A single card is not divided, so what is free of it changes nothing.
        card.free = card.total;
    }
    Some(cards)
}

fn files(options: &Options) -> String {
    let texts = options.settings().iter().filter_map(|setting| match &setting.value {
        FlagValue::Text(text) => Some(text.split(',')),
        _ => None,
    });
    let is_path = |text: &&str| text.contains('/') || Path::new(text).extension().is_some();
    let stamps = texts.flatten().filter(is_path).map(|path| file_stamp(Path::new(path)));
    stamps.collect::<Vec<_>>().join(";")
}
