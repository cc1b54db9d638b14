//! Question to an engine for `plan --exact`: flags and cards, the cache key, and the run that answers it.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_base::{Card, CardKind};
use plimsoll_flags::Options;
use plimsoll_launch::Environment;
use plimsoll_launch::engine;
use plimsoll_wire::env as names;

use super::arguments::Given;
use super::cache::Answer;
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
        // The host's memory is no card of the stand-in's.
        let cards: Vec<&Card> = cards.iter().filter(|card| card.kind == CardKind::Cuda).collect();
        let specs = card_specs(&cards);
        let given = Given {
            kind: self.kind,
            cards: cards.len(),
            interface: self.interface(&cards, &specs)?,
            options,
        };
        let mut files = self.files.borrow_mut();
        // A fixed socket name keeps the run's own paths out of the cache key; file stamps replace model
        // paths.
        let arguments = given.arguments(Path::new("s.sock"), |path| files.stamp(path, form))?;
        Ok(Question { key: self.key(&specs, &arguments), given, specs, form })
    }

    /// The cache key: everything that an answer depends on, as text.
    fn key(&self, specs: &str, arguments: &[String]) -> String {
        let mut key = format!("cards {specs}\nphantom ");
        key.push_str(&stamp::of_file(&self.phantom));
        key.push_str("\nengine ");
        key.push_str(&stamp::of_engine(&self.program.path));
        // Variables that choose the backend, or change what it asks for.
        for (name, value) in std::env::vars_os().filter(|(name, _)| is_of_ggml(name)) {
            key.push_str(&format!("\n{}={}", name.to_string_lossy(), value.to_string_lossy()));
            if name == names::GGML_BACKEND_PATH {
                key.push_str(&stamp::of_file(Path::new(&value)));
            }
        }
        for argument in arguments {
            key.push('\n');
            key.push_str(argument);
        }
        key
    }

    /// The engine's word for the cards that it uses: `CUDA`, `ROCm`, `Vulkan`.
    ///
    /// DECISION: the engine is asked once (`--list-devices`), over cards that answer to every interface. A card's
    /// own interface comes before Vulkan where it lists both. One that lists no card is asked for
    /// CUDA's, and its refusal is the answer.
    fn interface(&self, cards: &[&Card], specs: &str) -> Result<&'static str, ExactError> {
        if let Some(known) = self.interface.get().or(cards.is_empty().then_some("CUDA")) {
            return Ok(known);
        }
        let key = self.key("any", &["--list-devices".to_owned()]);
        let kept = self.cache.as_ref().and_then(|cache| cache.get(&key, |answer| !answer.lines().is_empty()));
        let devices = match kept {
            Some(answer) => answer.lines().to_vec(),
            None => self.list_devices(specs, &key)?,
        };
        let lists = |name: &&str| devices.iter().any(|device| device.starts_with(*name));
        let has_cuda = cards.iter().any(|card| card.pci_vendor().is_none());
        let order = if has_cuda { ["CUDA", "Vulkan", "ROCm"] } else { ["ROCm", "Vulkan", "CUDA"] };
        let interface = order.into_iter().find(lists).unwrap_or("CUDA");
        self.interface.set(Some(interface));
        Ok(interface)
    }

    fn list_devices(&self, specs: &str, key: &str) -> Result<Vec<String>, ExactError> {
        let mut files = self.files.borrow_mut();
        let folder = files.folder()?.to_owned();
        let libraries = files.stand_ins(&self.phantom)?;
        let environment = self.environment(libraries, &folder, &folder.join("devices.report"), specs);
        let environment: Environment = environment.into_iter().collect();
        let listed = engine::listed_devices(&self.program.path, &environment, &[]).unwrap_or_default();
        let devices: Vec<String> = listed.into_iter().map(|(device, _)| device).collect();
        if !devices.is_empty() {
            self.listed.replace(Some((key.to_owned(), Answer::new(None, devices.clone()))));
        }
        Ok(devices)
    }

    /// Keeps the list of devices of an engine that answers.
    pub(super) fn keep_devices(&self) {
        if let (Some(cache), Some((key, devices))) = (&self.cache, self.listed.take()) {
            cache.put(&key, &devices);
        }
    }

    pub(super) fn job(&self, question: &Question<'_>) -> Result<Job, ExactError> {
        let mut files = self.files.borrow_mut();
        let folder = files.folder()?.to_owned();
        let number = self.sockets.replace(self.sockets.get() + 1);
        let socket = folder.join(format!("{number}.sock"));
        let report = folder.join(format!("{number}.report"));
        let given = &question.given;
        Ok(Job {
            arguments: given.arguments(&socket, |path| files.copy(path, question.form))?,
            environment: self.environment(files.stand_ins(&self.phantom)?, &folder, &report, &question.specs),
            report,
            until: given.until(),
        })
    }

    fn environment(
        &self,
        libraries: &Path,
        folder: &Path,
        report: &Path,
        specs: &str,
    ) -> Vec<(OsString, OsString)> {
        // Variables of llama.cpp set flags (`LLAMA_ARG_*`). A preloaded guard would count what is no memory.
        let foreign = |name: &OsString| {
            let name = name.to_string_lossy();
            ["LLAMA_", "PLIMSOLL_", "GGML_VK_VISIBLE_DEVICES", "LD_PRELOAD", SEARCHED]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let mut environment: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| !foreign(name)).collect();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        // The loader takes a library by its name, so a machine without CUDA has the names here. The preload
        // answers before any other library of these names that the engine's own search path leads to.
        let mut searched = libraries.as_os_str().to_owned();
        if let Some(others) = std::env::var_os(SEARCHED).filter(|others| !others.is_empty()) {
            searched.push(":");
            searched.push(others);
        }
        set(SEARCHED, searched);
        set("LD_PRELOAD", self.phantom.clone().into());
        set(names::PHANTOM_CARDS, specs.into());
        set(names::PHANTOM_REPORT, report.into());
        // The engine's cache goes into the private folder, which is removed at the end.
        set("LLAMA_CACHE", folder.into());
        environment
    }
}

/// The loader's own list of folders.
const SEARCHED: &str = "LD_LIBRARY_PATH";

fn is_of_ggml(name: &std::ffi::OsStr) -> bool {
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
