//! From an entry and its placement to a running child.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use plimsoll_base::{Card, CardKind, Reason};
use plimsoll_config::{Entry, Launch};
use plimsoll_launch::engine::EngineError;
use plimsoll_launch::{
    Child, ChildEvent, ChildSpec, Environment, LogSource, Readiness, StopWay, Visible, child_environment,
    engine, free_port, random_key, renumber,
};
use tokio::sync::mpsc;

use super::Run;
use crate::owner::Owner;

/// What it takes to start one run.
pub(super) struct Starter<'a> {
    pub(super) owner: &'a Rc<Owner>,
    pub(super) run: &'a Rc<Run>,
}

impl Starter<'_> {
    /// Starts it; the reason says what is missing.
    pub(super) async fn start(&self) -> Result<(Child, mpsc::Receiver<ChildEvent>, Option<String>), Reason> {
        let (spec, key) = self.spec()?;
        let spawned = self.owner.launcher.spawn(spec, self.run.log.clone()).await;
        let (child, events) = spawned.map_err(|error| unstartable(&self.run.entry.name, &error))?;
        Ok((child, events, key))
    }

    fn spec(&self) -> Result<(ChildSpec, Option<String>), Reason> {
        let entry = &self.run.entry;
        let fail = |error: &dyn std::error::Error| unstartable(&entry.name, error);
        let port = free_port().map_err(|error| fail(&error))?;
        let engine =
            engine_command(entry, self.owner.terms.engine.as_deref()).map_err(|error| fail(&error))?;
        let key = takes_key(entry)
            .then(random_key)
            .transpose()
            .map_err(|error| fail(&error))?;
        let mut line = entry.launch.command_line(&engine, &entry.name, port);
        if let Some(context) = self.lowered_context() {
            // The last one counts.
            line.extend(["--ctx-size".to_owned(), context.to_string()]);
        }
        let mut environment = self.environment(port, key.as_deref());
        self.renumber(&mut line, &mut environment);
        let guarded = self
            .owner
            .guard
            .prepare(self.run, &self.cards(), &mut environment);
        self.run.guarded.replace(guarded.map(Rc::new));
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
        self.owner.notes.with(self.run.model, |note| note.lowered)
    }

    fn environment(&self, port: u16, key: Option<&str>) -> Environment {
        let entry = &self.run.entry;
        let control_port = entry.launch.options().map(|_| port);
        child_environment(
            std::env::vars_os(),
            &entry.environment(port),
            &self.visible(),
            control_port,
            key,
        )
    }

    /// Numbers of cards become those by which the child will know them; what names a card that it does not get
    /// is left out and told.
    fn renumber(&self, line: &mut Vec<String>, environment: &mut Environment) {
        let (Visible::Cards(own), Some(_)) = (self.visible(), self.run.entry.launch.options()) else {
            return;
        };
        let all = self.all_cards();
        for words in renumber(line, environment, &all, &own) {
            let note = format!("left out `{words}`: it names a card that this model does not get");
            self.run.log.push(LogSource::Plimsoll, note);
        }
    }

    /// Cards by UUID where they have one; none for a run on the host; what we see ourselves where the cards
    /// are only described.
    fn visible(&self) -> Visible {
        match self
            .cards()
            .iter()
            .map(|card| card.uuid.clone())
            .collect::<Option<Vec<_>>>()
        {
            Some(uuids) if uuids.is_empty() => Visible::NoCard,
            Some(uuids) => Visible::Cards(uuids),
            None => Visible::AsInherited,
        }
    }

    fn cards(&self) -> Vec<&Card> {
        self.owner.cards_of(self.run)
    }

    /// The cards that a user counts, by the names that `visible` gives them.
    fn all_cards(&self) -> Vec<String> {
        let cuda = self
            .owner
            .terms
            .cards()
            .filter(|card| card.kind == CardKind::Cuda);
        cuda.map(|card| card.uuid.clone().unwrap_or_else(|| card.id.to_string()))
            .collect()
    }
}

impl Owner {
    /// The CUDA cards that a run was given.
    pub(in crate::owner) fn cards_of(&self, run: &Run) -> Vec<&Card> {
        let given = |card: &&Card| run.placement().cards().any(|id| *id == card.id);
        let cards = self.terms.cards().filter(given);
        cards.filter(|card| card.kind == CardKind::Cuda).collect()
    }
}

/// The program of a model that gives only flags: its own, the configured one, or what is installed.
pub(in crate::owner) fn engine_command(
    entry: &Entry,
    configured: Option<&[String]>,
) -> Result<Vec<String>, EngineError> {
    match &entry.launch {
        Launch::LlamaServer { program: None, .. } => {
            let (program, arguments) = match configured {
                Some([program, arguments @ ..]) => (Some(program.as_ref()), arguments.to_vec()),
                _ => (None, Vec::new()),
            };
            let found = engine::find(program)?;
            let mut command = vec![found.path.to_string_lossy().into_owned()];
            command.extend(arguments);
            Ok(command)
        }
        Launch::LlamaServer { .. } | Launch::Command { .. } => Ok(Vec::new()),
    }
}

/// llama-server asks for the key in its environment, unless its command line names one.
fn takes_key(entry: &Entry) -> bool {
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
        _ if launch.options().is_some() => StopWay::ExitCommand,
        _ => StopWay::Terminate,
    }
}

/// A run that could not be started, with what failed.
pub(in crate::owner) fn unstartable(model: &str, error: &dyn std::error::Error) -> Reason {
    let cause = Reason::new("launch_failed", error.to_string());
    Reason::new("unstartable", format!("{model} could not be started")).because(cause)
}
