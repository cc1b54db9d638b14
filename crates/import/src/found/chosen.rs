//! Makes configuration entries for the models that were found, with flags chosen for the cards.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll_base::{Card, counted};
use plimsoll_config::{Configuration, ConfiguredModel, Launch, UnfitModel};
use plimsoll_flags::{EngineBuild, Options, ProgramKind, Setting};
use plimsoll_plan::{Estimate, HostLimit, Models, PlannedHost};

use super::{Found, FoundModel, warnings};

/// Slots of a model whose header is on a server.
const SLOTS: [&str; 2] = ["-np", "1"];

impl Found {
    /// Takes out the models that a configuration has by name or by file: what its user sets there wins.
    pub fn retain_new(&mut self, configuration: &Configuration) {
        let real = |path: &str| Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
        let files: HashSet<PathBuf> = configuration
            .models
            .iter()
            .filter(|model| model.launch.options().is_some_and(|options| options.text("--lora").is_none()))
            .filter_map(|model| Some(real(model.launch.options()?.text("--model")?)))
            .collect();
        self.models.retain(|model| {
            let is_adapted = model.options.text("--lora").is_some();
            let file = model.options.text("--model").map(real);
            let is_configured = !is_adapted && file.is_some_and(|file| files.contains(&file));
            !configuration.has_model(&model.name) && !is_configured
        });
    }

    /// Adds the models to a configuration, with flags that fit these cards, and returns a line on each. A
    /// model that no flags make fit is named with the reason, like the files that are not served.
    pub fn add_to(
        mut self,
        configuration: &mut Configuration,
        cards: &[Card],
        host: Option<PlannedHost>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for model in std::mem::take(&mut self.models) {
            let (name, file) = (model.name.clone(), PathBuf::from(model.entry.origin.to_string()));
            match model.chosen(cards, host) {
                Ok((entry, why)) => {
                    lines.push(format!("{name}: {why}"));
                    configuration.models.push(entry);
                }
                Err(why) => {
                    configuration.unfit.push(UnfitModel { name, why: why.clone() });
                    self.passed_over.push((file, why));
                }
            }
        }
        configuration.warnings.extend(warnings(&self.passed_over));
        lines
    }

    /// `12 models found; 3 files are not served`.
    pub fn summary(&self) -> String {
        let found = format!("{} found", counted(self.models.len(), "model"));
        match self.passed_over.len() {
            0 => found,
            1 => format!("{found}; 1 file is not served"),
            files => format!("{found}; {files} files are not served"),
        }
    }
}

impl FoundModel {
    /// Its memory with this engine and program.
    pub fn estimate(&self, engine: EngineBuild, program: ProgramKind) -> Result<Estimate, String> {
        Ok(plimsoll_probe::estimate(self.models.clone()?, engine, program))
    }

    /// The entry with flags that fit, and a line on them.
    fn chosen(self, cards: &[Card], host: Option<PlannedHost>) -> Result<(ConfiguredModel, String), String> {
        let Self { options, models, entry, .. } = self;
        let (options, why) = match models {
            Ok(models) => choose(options, models, cards, host)?,
            Err(why) => {
                let slots =
                    Options::from_argv(&SLOTS.map(str::to_owned)).map_err(|error| error.to_string())?;
                (
                    slots.merged_over(&options),
                    format!("-np 1: no other flag is chosen, since its header is not known: {why}"),
                )
            }
        };
        // A chosen flag comes from the file too: it is written and shown without a place of its own.
        let here = |setting: &Setting| Setting { origin: entry.origin.0.clone(), ..setting.clone() };
        let options = options.settings().iter().map(here).collect();
        let launch = Launch::LlamaServer { program: None, options };
        Ok((ConfiguredModel { launch, ..entry }, why))
    }
}

fn choose(
    options: Options,
    models: Models,
    cards: &[Card],
    host: Option<PlannedHost>,
) -> Result<(Options, String), String> {
    let estimate = plimsoll_probe::estimate(models, EngineBuild::LLAMA_CPP, ProgramKind::LlamaServer);
    let choice = HostLimit { estimate: &estimate, cards, host }.choose(&options);
    let choice = choice.map_err(|error| error.to_string())?;
    Ok((choice.options, format!("{}: {}", choice.flags.join(" "), choice.why)))
}
