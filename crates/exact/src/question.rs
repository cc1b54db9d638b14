//! Asks an engine for the memory of one set of flags and cards: from the cache, or by running it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use plimsoll_base::{Card, CardKind};
use plimsoll_flags::Options;
use plimsoll_wire::env as names;

use super::arguments::{arguments, until};
use super::error::ExactError;
use super::files::{Files, Form};
use super::prompt::Prompt;
use super::run::{Job, RunVariables, Until};
use super::system::{LOADING, Listening, SEARCHED, StandIn};
use super::{Oracle, run, stamp};

/// Flags on cards, with one form of the model headers.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) key: String,
    options: &'a Options,
    /// The stand-in's cards, as `-dev` names them.
    devices: String,
    specs: String,
    form: Form,
    /// Tokens of a prompt that the engine then computes.
    pub(super) prompt: Option<u32>,
}

impl Oracle {
    pub(super) fn question<'a>(
        &self,
        options: &'a Options,
        cards: &[Card],
        form: Form,
    ) -> Result<Question<'a>, ExactError> {
        // The host's memory is no card of the stand-in's.
        let cards: Vec<&Card> = cards.iter().filter(|card| card.kind == CardKind::Cuda).collect();
        let specs = card_specs(&cards);
        let interface = self.interface(&cards, &specs)?;
        let names: Vec<String> = (0..cards.len()).map(|card| format!("{interface}{card}")).collect();
        // The engine accepts the word `none`; an empty list is an error.
        let devices = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        let mut files = self.files.borrow_mut();
        // A fixed place and file stamps keep the run's own out of the cache key.
        let listening = Listening::of_any().words();
        let arguments = arguments(options, &devices, &listening, |path| files.stamp(path, form))?;
        Ok(Question { key: self.key(&specs, &arguments), options, devices, specs, form, prompt: None })
    }

    /// The cache key: everything that an answer depends on, as text.
    fn key(&self, specs: &str, arguments: &[String]) -> String {
        let searched = self.terms.environment.get(SEARCHED).unwrap_or_default();
        let engine = stamp::of_engine(&self.program.path, searched);
        let files = format!("cards {specs}\nphantom {}\nengine {engine}", stamp::of_file(&self.phantom));
        // Variables that choose the backend, or change what it asks for.
        let variable = |(name, value): (&OsStr, &OsStr)| {
            let is_path = name == names::GGML_BACKEND_PATH;
            let file = if is_path { stamp::of_file(Path::new(value)) } else { String::new() };
            format!("{}={}{file}", name.to_string_lossy(), value.to_string_lossy())
        };
        let of_ggml = self.terms.environment.iter().filter(|(name, _)| is_of_ggml(name)).map(variable);
        [files].into_iter().chain(of_ggml).chain(arguments.iter().cloned()).collect::<Vec<_>>().join("\n")
    }

    /// The engine's word for the cards that it uses: `CUDA`, `ROCm`, `Vulkan`.
    ///
    /// DECISION: the engine is asked once (`--list-devices`), over cards that answer to every interface. A
    /// card's own interface comes before Vulkan where it lists both. One that lists no card is asked for
    /// CUDA's, and its refusal is the answer.
    fn interface(&self, cards: &[&Card], specs: &str) -> Result<&'static str, ExactError> {
        if let Some(known) = self.interface.get().or(cards.is_empty().then_some("CUDA")) {
            return Ok(known);
        }
        let devices = self.kept_devices().map_or_else(|| self.list_devices(specs), Ok)?;
        let lists = |name: &&str| devices.iter().any(|device| device.starts_with(*name));
        let has_cuda = cards.iter().any(|card| card.pci_vendor().is_none());
        let order = if has_cuda { ["CUDA", "Vulkan", "ROCm"] } else { ["ROCm", "Vulkan", "CUDA"] };
        let interface = order.into_iter().find(lists).unwrap_or("CUDA");
        self.interface.set(Some(interface));
        Ok(interface)
    }

    /// True where the engine need not be run to learn its word for these cards.
    pub(super) fn knows_interface(&self, cards: &[Card]) -> bool {
        self.interface.get().is_some()
            || cards.iter().all(|card| card.kind != CardKind::Cuda)
            || self.kept_devices().is_some()
    }

    fn devices_key(&self) -> String {
        self.key("any", &["--list-devices".to_owned()])
    }

    fn kept_devices(&self) -> Option<Vec<String>> {
        let cache = self.cache.as_ref()?;
        let answer = cache.get(&self.devices_key(), |answer| !answer.lines.is_empty())?;
        Some(answer.lines)
    }

    fn list_devices(&self, specs: &str) -> Result<Vec<String>, ExactError> {
        let mut files = self.files.borrow_mut();
        let stand_in = self.stand_in(&mut files)?;
        let (report, environment) = self.environment(&mut files, "devices", specs)?;
        let arguments = vec!["--list-devices".to_owned()];
        let job = Job { arguments, environment, stand_in, report, until: Until::Devices, prompt: None };
        let answer = run::run(&self.program.path, &job, &self.terms)?;
        let devices = answer.lines.clone();
        self.listed.replace((!devices.is_empty()).then_some(answer));
        Ok(devices)
    }

    /// Keeps the list of devices of an engine that answers.
    pub(super) fn keep_devices(&self) {
        if let (Some(cache), Some(devices)) = (&self.cache, self.listed.take()) {
            cache.put(&self.devices_key(), &devices);
        }
    }

    pub(super) fn job(&self, question: &Question<'_>) -> Result<Job, ExactError> {
        let mut files = self.files.borrow_mut();
        let Question { options, devices, specs, form, .. } = question;
        let number = self.sockets.replace(self.sockets.get() + 1).to_string();
        let (report, environment) = self.environment(&mut files, &number, specs)?;
        let listening = Listening::beside(&report).map_err(ExactError::Folder)?;
        let words = listening.words();
        Ok(Job {
            arguments: arguments(options, devices, &words, |path| files.copy(path, *form))?,
            environment,
            stand_in: self.stand_in(&mut files)?,
            report,
            // A server takes prompts once it has its slots.
            until: if question.prompt.is_some() { Until::Ready } else { until(options) },
            prompt: question.prompt.map(|tokens| Prompt { tokens, listening }),
        })
    }

    fn stand_in(&self, files: &mut Files) -> Result<StandIn, ExactError> {
        let others = self.terms.environment.get(SEARCHED).unwrap_or_default();
        StandIn::place(&self.phantom, files.folder()?, others).map_err(ExactError::Folder)
    }

    /// The place of a run's report, and the run's environment.
    fn environment(
        &self,
        files: &mut Files,
        run: &str,
        specs: &str,
    ) -> Result<(PathBuf, RunVariables), ExactError> {
        let folder = files.folder()?;
        let report = folder.join(format!("{run}.report"));
        // Variables of llama.cpp set flags (`LLAMA_ARG_*`). A preloaded guard would count memory that does
        // not exist. The cards of a question are those that are left when cards are hidden.
        let foreign = |name: &OsStr| {
            let name = name.to_string_lossy();
            let hides = name.ends_with("_VISIBLE_DEVICES");
            let starts = |start: &&str| name.starts_with(start);
            hides || ["LLAMA_", "PLIMSOLL_"].iter().chain(LOADING).any(starts)
        };
        let inherited = self.terms.environment.iter().filter(|(name, _)| !foreign(name));
        let mut environment: RunVariables =
            inherited.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        set(names::PHANTOM_CARDS, specs.into());
        set(names::PHANTOM_REPORT, report.clone().into());
        // The engine's cache goes into the private folder, which is removed at the end.
        set("LLAMA_CACHE", folder.into());
        Ok((report, environment))
    }
}

fn is_of_ggml(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("GGML_")
}

fn card_specs(cards: &[&Card]) -> String {
    let spec = |card: &&Card| {
        let (major, minor) = card.compute_capability.unwrap_or(USUAL);
        let (total, free) = (card.total.get(), card.free.get());
        let vmm = u32::from(!card.legacy_pool);
        let vendor = card.pci_vendor().map_or(String::new(), |vendor| format!(",vendor={vendor}"));
        format!("total={total},free={free},cc={major}.{minor},vmm={vmm}{vendor}")
    };
    cards.iter().map(spec).collect::<Vec<_>>().join(";")
}

/// Compute capability assumed for a card without one: Ada.
const USUAL: (u32, u32) = (8, 9);
