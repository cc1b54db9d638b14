//! Start of an engine process: its command line, environment and cards.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use plimsoll_base::{Card, CardKind, Reason};
use plimsoll_config::{ConfiguredModel, Launch};
use plimsoll_launch::engine::EngineError;
use plimsoll_launch::{
    Child, ChildEvent, ChildSpec, Environment, LogSource, Readiness, StopWay, Visible, child_environment,
    engine, free_port, random_key, renumber,
};
use tokio::sync::mpsc;

use super::Runtime;
use super::run::EngineRun;

/// Everything needed to start one run.
pub(super) struct Starter<'a> {
    pub(super) runtime: &'a Rc<Runtime>,
    pub(super) run: &'a Rc<EngineRun>,
}

impl Starter<'_> {
    /// Starts the process. An error names the missing program, card or file.
    pub(super) async fn start(&self) -> Result<(Child, mpsc::Receiver<ChildEvent>, Option<String>), Reason> {
        let (spec, key) = self.spec()?;
        let spawned = self.runtime.launcher.spawn(spec, self.run.log.clone()).await;
        let (child, events) = spawned.map_err(|error| unstartable(&self.run.entry.name, &error))?;
        Ok((child, events, key))
    }

    fn spec(&self) -> Result<(ChildSpec, Option<String>), Reason> {
        let entry = &self.run.entry;
        let fail = |error: &dyn std::error::Error| unstartable(&entry.name, error);
        let port = free_port().map_err(|error| fail(&error))?;
        let engine =
            engine_command(entry, self.runtime.settings.engine.as_deref()).map_err(|error| fail(&error))?;
        let key = takes_key(entry)
            .then(random_key)
            .transpose()
            .map_err(|error| fail(&error))?;
        let mut line = entry.launch.command_line(&engine, &entry.name, port);
        if let Some(context) = self.lowered_context() {
            // llama-server takes the last of several values.
            line.extend(["--ctx-size".to_owned(), context.to_string()]);
        }
        let mut environment = self.environment(port, key.as_deref());
        self.renumber(&mut line, &mut environment);
        for extension in &self.runtime.extensions {
            extension.prepare(self.run, &self.cards(), &mut environment);
        }
        self.run.arguments.replace(line.clone());
        let mut words = line.into_iter().map(OsString::from);
        let spec = ChildSpec {
            name: entry.name.clone(),
            program: PathBuf::from(words.next().unwrap_or_default()),
            arguments: words.collect(),
            environment,
            directory: None,
            port: entry.launch.listens_on(port).unwrap_or(port),
            readiness: readiness(&entry.launch),
            stop: stop_way(&entry.launch),
        };
        Ok((spec, key))
    }

    fn lowered_context(&self) -> Option<u64> {
        self.run.entry.launch.options()?;
        self.runtime
            .statuses
            .with(self.run.model, |status| status.lowered)
    }

    fn environment(&self, port: u16, key: Option<&str>) -> Environment {
        let entry = &self.run.entry;
        // Only llama-server knows the control channel; other programs would ignore the variable.
        let control_port = entry.launch.options().map(|_| port);
        child_environment(
            std::env::vars_os(),
            &entry.environment(port),
            &self.visible(),
            control_port,
            key,
        )
    }

    /// Rewrites card numbers to those of the child. Arguments that name a card which it does not get are left
    /// out and logged.
    fn renumber(&self, line: &mut Vec<String>, environment: &mut Environment) {
        // Flags of other programs are not known, so their numbers are left alone.
        let (Visible::Cards(own), Some(_)) = (self.visible(), self.run.entry.launch.options()) else {
            return;
        };
        let all = self.all_cards();
        for words in renumber(line, environment, &all, &own) {
            let note = format!("omitted `{words}`: it names a card that this model may not use");
            self.run.log.push(LogSource::Plimsoll, note);
        }
    }

    /// Cards by UUID if they have one; none for a run on the host; those of the daemon if cards are only
    /// described.
    fn visible(&self) -> Visible {
        match self
            .cards()
            .iter()
            .map(|card| card.uuid.clone())
            .collect::<Option<Vec<_>>>()
        {
            // An empty list would make every card visible.
            Some(uuids) if uuids.is_empty() => Visible::NoCard,
            Some(uuids) => Visible::Cards(uuids),
            None => Visible::AsInherited,
        }
    }

    fn cards(&self) -> Vec<&Card> {
        self.runtime.cards_of(self.run)
    }

    /// All CUDA cards in the order of their numbers, by the names that `visible` gives them.
    fn all_cards(&self) -> Vec<String> {
        let cuda = self
            .runtime
            .settings
            .cards()
            .filter(|card| card.kind == CardKind::Cuda);
        cuda.map(|card| card.uuid.clone().unwrap_or_else(|| card.id.to_string()))
            .collect()
    }
}

impl Runtime {
    /// The CUDA cards that a run was given.
    pub(crate) fn cards_of(&self, run: &EngineRun) -> Vec<&Card> {
        let given = |card: &&Card| run.placement().cards().any(|id| *id == card.id);
        let cards = self.settings.cards().filter(given);
        cards.filter(|card| card.kind == CardKind::Cuda).collect()
    }
}

/// The program for a model that gives only flags: its own, the configured one, or the installed one.
pub(crate) fn engine_command(
    entry: &ConfiguredModel,
    configured: Option<&[String]>,
) -> Result<Vec<String>, EngineError> {
    match &entry.launch {
        Launch::LlamaServer { program: None, .. } => {
            let (program, arguments) = match configured {
                // The configured engine may be a wrapper with leading arguments.
                Some([program, arguments @ ..]) => (Some(program.as_ref()), arguments.to_vec()),
                _ => (None, Vec::new()),
            };
            let found = engine::find(program)?;
            let mut command = vec![found.path.to_string_lossy().into_owned()];
            command.extend(arguments);
            Ok(command)
        }
        // Their command line begins with a program of its own.
        Launch::LlamaServer { .. } | Launch::Command { .. } => Ok(Vec::new()),
    }
}

/// True if the engine is given a key: llama-server reads it from its environment, unless its command line
/// names one.
fn takes_key(entry: &ConfiguredModel) -> bool {
    entry
        .launch
        .options()
        .is_some_and(|options| !options.to_argv().iter().any(|word| word.starts_with("--api-key")))
}

fn readiness(launch: &Launch) -> Readiness {
    match (launch.options(), launch.check()) {
        (Some(_), _) => Readiness::Control,
        (None, Some(path)) => Readiness::Health {
            path: path.to_owned(),
        },
        (None, None) => Readiness::Immediate,
    }
}

fn stop_way(launch: &Launch) -> StopWay {
    match launch {
        Launch::Command { stop: Some(line), .. } => StopWay::Command(line.clone()),
        // The control channel lets llama-server finish its requests; SIGTERM would cut them.
        _ if launch.options().is_some() => StopWay::ExitCommand,
        _ => StopWay::Terminate,
    }
}

/// Reason for a run that could not be started, with the error.
pub(crate) fn unstartable(model: &str, error: &dyn std::error::Error) -> Reason {
    let cause = Reason::new("launch_failed", error.to_string());
    Reason::new("unstartable", format!("{model} could not be started")).because(cause)
}
