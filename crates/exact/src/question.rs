//! One question to an engine: its flags and cards, its cache key, and the run that answers it.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_base::{Card, CardKind};
use plimsoll_flags::Options;
use plimsoll_wire::env as names;

use super::arguments::Given;
use super::error::ExactError;
use super::files::Form;
use super::run::Job;
use super::{Oracle, stamp};

/// Flags on cards, with one form of the model headers.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) key: String,
    given: Given<'a>,
    specs: String,
    form: Form,
}

impl Oracle {
    pub(super) fn question<'a>(
        &self,
        options: &'a Options,
        cards: &[Card],
        form: Form,
    ) -> Result<Question<'a>, ExactError> {
        // The phantom backend registers as CUDA, so cards of other kinds do not take part.
        let cards: Vec<&Card> = cards.iter().filter(|card| card.kind == CardKind::Cuda).collect();
        let given = Given {
            kind: self.kind,
            cards: cards.len(),
            options,
        };
        let specs = card_specs(&cards);
        let mut files = self.files.borrow_mut();
        // A fixed socket name keeps the run's own paths out of the cache key; file stamps replace model
        // paths.
        let arguments = given.arguments(Path::new("s.sock"), |path| files.stamp(path, form))?;
        Ok(Question {
            key: self.key(&specs, &arguments),
            given,
            specs,
            form,
        })
    }

    /// The cache key: everything that an answer depends on, as text.
    fn key(&self, specs: &str, arguments: &[String]) -> String {
        let mut key = format!("cards {specs}\nphantom ");
        key.push_str(&stamp::of_file(&self.phantom));
        key.push_str("\nengine ");
        key.push_str(&stamp::of_engine(&self.program.path));
        for argument in arguments {
            key.push('\n');
            key.push_str(argument);
        }
        key
    }

    pub(super) fn job(&self, question: &Question<'_>) -> Result<Job, ExactError> {
        let mut files = self.files.borrow_mut();
        let folder = files.folder()?.to_owned();
        let number = self.sockets.replace(self.sockets.get() + 1);
        let socket = folder.join(format!("{number}.sock"));
        let given = &question.given;
        Ok(Job {
            arguments: given.arguments(&socket, |path| files.copy(path, question.form))?,
            environment: self.environment(&folder, &question.specs),
            until: given.until(),
        })
    }

    fn environment(&self, folder: &Path, specs: &str) -> Vec<(OsString, OsString)> {
        // Variables of llama.cpp set flags (`LLAMA_ARG_*`). A preloaded guard would count phantom memory.
        let foreign = |name: &OsString| {
            let name = name.to_string_lossy();
            ["LLAMA_", "PLIMSOLL_", "LD_PRELOAD"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let mut environment: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| !foreign(name)).collect();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        // An empty list hides the real cards from a CUDA backend that the engine may load as well.
        set(names::CUDA_VISIBLE_DEVICES, OsString::new());
        set(names::GGML_BACKEND_PATH, self.phantom.clone().into());
        // GGML_BACKEND_PATH makes the engine load the phantom. The preload lets it answer first for the
        // symbols it interposes.
        set("LD_PRELOAD", self.phantom.clone().into());
        set(names::PHANTOM_CARDS, specs.into());
        // The engine's cache goes into the private folder, which is removed at the end.
        set("LLAMA_CACHE", folder.into());
        if let Some(build) = self.engine.get().and_then(|engine| engine.build) {
            set(names::PHANTOM_BUILD, build.to_string().into());
        }
        environment
    }
}

fn card_specs(cards: &[&Card]) -> String {
    let spec = |card: &&Card| {
        let (major, minor) = card.compute_capability.unwrap_or(USUAL);
        let (total, free) = (card.total.get(), card.free.get());
        format!("total={total},free={free},cc={major}.{minor}")
    };
    cards.iter().map(spec).collect::<Vec<_>>().join(";")
}

/// Compute capability assumed for a card without one: Ada. Later generations reserve the same.
const USUAL: (u32, u32) = (8, 9);
