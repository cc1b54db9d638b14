//! One engine on one card: started under guard, looked at once loaded and after a prompt, and ended.
//!
//! The figure of the driver is looked up by process, in the words of a process of our own that holds the driver's library; what the engine
//! asked for stands on guard's page. Both change only while the engine works, and it is looked at when it does not.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes as Body;
use http::Method;
use plimsoll_core::bytes::Bytes;
use plimsoll_core::diagnose::Sign;
use plimsoll_core::place::Card;
use plimsoll_core::plan::Engine;
use plimsoll_wire::options::{Options, Uuid};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::subject::{self, SubjectError};
use crate::folder::OwnedFolder;
use crate::guard::{PAGES, Preload, preload, read_pages};
use crate::launch::engine::EngineProgram;
use crate::launch::{
    Child, ChildEvent, ChildSpec, Ended, Environment, LaunchError, Launcher, Log, Readiness, StopWay,
    Visible, child_environment, free_port, post_mortem,
};
use crate::load::{Client, Failure, Target};
use crate::probe::{self, Reading, Sampler};

/// A driver that starts for the first time takes long.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const END_WITHIN: Duration = Duration::from_secs(5);
const LOG: Bytes = Bytes::mib(1);
/// Ports that are tried for one card.
const TRIES: u32 = 5;
const LAST_LINES: usize = 5;
/// Words of the prompt: more columns than the kernels take that stand in for cuBLAS, and few enough for any context.
const WORDS: usize = 200;
const ANSWER_TOKENS: u32 = 8;

/// Why a card was not measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    #[error("{0}")]
    Rig(RigError),
    #[error(
        "the engine ended before it was ready; it said last:\n{0}\nhint: try it by hand; a build without CUDA, or a card without free memory, does this"
    )]
    Ended(String),
    #[error(
        "somebody else took the engine's port, again and again\nhint: try again when the machine is less busy"
    )]
    PortTaken,
    #[error("the engine was not ready within {seconds} s; it said last:\n{last}")]
    Late { seconds: u64, last: String },
    #[error(
        "the engine took nothing of the card\nhint: it must be a build with CUDA; name another with --engine"
    )]
    NotOnCard,
    #[error(
        "the driver names no process of the engine, as in a container whose processes it numbers otherwise\nhint: start the container with --pid=host, or say --alone if nobody else uses the card"
    )]
    Nameless,
    #[error("the driver does not say what is free on the card\nhint: leave --alone out")]
    FreeUnknown,
    #[error(
        "the driver counts {used} for the engine, and guard {allocated} that it asked for\nhint: try again when nobody else uses the card"
    )]
    Less { used: Bytes, allocated: Bytes },
}

/// What stops every measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RigError {
    #[error("cannot make a folder for the model and guard's pages: {0}")]
    Folder(#[source] io::Error),
    #[error("no port is free on the loopback: {0}")]
    Port(#[source] io::Error),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Subject(#[from] SubjectError),
}

impl<E: Into<RigError>> From<E> for MeasureError {
    fn from(error: E) -> Self {
        Self::Rig(error.into())
    }
}

/// What was measured on one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) context: Bytes,
    pub(super) cublas: Option<Bytes>,
}

/// Everything it takes.
#[derive(Debug)]
pub(super) struct Rig {
    program: EngineProgram,
    engine: Engine,
    guard: PathBuf,
    sampler: Sampler,
    launcher: Launcher,
    folder: OwnedFolder,
    model: PathBuf,
    alone: bool,
}

/// A card with an engine on it.
struct Run<'a> {
    rig: &'a Rig,
    card: &'a Card,
    pages: PathBuf,
    child: Child,
    /// What was free on the card before.
    free: Option<Bytes>,
}

/// What the engine has of its card at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    used: Bytes,
    allocated: Bytes,
}

impl Rig {
    pub(super) fn new(
        program: EngineProgram,
        engine: Engine,
        guard: PathBuf,
        sampler: Sampler,
        alone: bool,
    ) -> Result<Self, RigError> {
        let folder = OwnedFolder::create(PAGES).map_err(RigError::Folder)?;
        let model = folder.path().join("model.gguf");
        subject::write(&model)?;
        Ok(Self {
            program,
            engine,
            guard,
            sampler,
            launcher: Launcher::start()?,
            folder,
            model,
            alone,
        })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program.path
    }

    /// Measures what a context of the engine takes on this card, and leaves the card as it was. A port that somebody else took
    /// in the meantime is no reason to give up.
    pub(super) async fn measure(&self, card: &Card) -> Result<Measured, MeasureError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.measure_once(card).await {
                Err(MeasureError::PortTaken) if tries < TRIES => {}
                other => return other,
            }
        }
    }

    async fn measure_once(&self, card: &Card) -> Result<Measured, MeasureError> {
        let free = self.sampler.read().await.free_on(&card.id);
        let (run, mut events) = self.start(card, free).await?;
        let measured = self.measured(&run, &mut events).await;
        run.child.stop(END_WITHIN);
        ended(&mut events).await;
        measured
    }

    async fn measured(
        &self,
        run: &Run<'_>,
        events: &mut Receiver<ChildEvent>,
    ) -> Result<Measured, MeasureError> {
        ready(events, run.child.log()).await?;
        let loaded = run.look().await?;
        let context = loaded.context()?;
        let cublas = match run.prompt().await {
            Ok(()) => Some(self.cublas(run.card, loaded, run.look().await?)?),
            Err(failure) => {
                tracing::warn!("{}: what cuBLAS adds is not measured: {failure}", run.card.name);
                None
            }
        };
        Ok(Measured { context, cublas })
    }

    /// What the prompt has added for good, less what the run-time pool takes by the plan.
    fn cublas(&self, card: &Card, loaded: Look, asked: Look) -> Result<Bytes, MeasureError> {
        let pool = subject::pool(&self.model, self.engine, card)?;
        Ok(asked.used.saturating_sub(loaded.used).saturating_sub(pool))
    }

    async fn start<'a>(
        &'a self,
        card: &'a Card,
        free: Option<Bytes>,
    ) -> Result<(Run<'a>, Receiver<ChildEvent>), RigError> {
        let port = free_port().map_err(RigError::Port)?;
        let part = format!("{}-{port}", card.id);
        let pages = self.folder.part(&part).map_err(RigError::Folder)?;
        let mut arguments: Vec<OsString> = subject::flags(&self.model).into_iter().map(Into::into).collect();
        arguments.extend(["--host", "127.0.0.1", "--port", &port.to_string()].map(OsString::from));
        let spec = ChildSpec {
            name: card.name.clone(),
            program: self.program.path.clone(),
            arguments,
            environment: self.environment(card, &pages),
            directory: None,
            port,
            readiness: Readiness::Health {
                path: "/health".to_owned(),
            },
            stop: StopWay::Terminate,
        };
        let (child, events) = self.launcher.spawn(spec, Log::new(&card.name, LOG)).await?;
        let run = Run {
            rig: self,
            card,
            pages,
            child,
            free,
        };
        Ok((run, events))
    }

    /// One card, guard, and none of the user's defaults for models of their own.
    fn environment(&self, card: &Card, pages: &Path) -> Environment {
        let usual = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("LLAMA_"));
        let visible = Visible::Cards(card.uuid.iter().cloned().collect());
        let mut environment = child_environment(usual, &[], &visible, None, None);
        let guard = Preload {
            library: &self.guard,
            options: &Options::NONE,
            pages,
            trace: None,
        };
        preload(&mut environment, &guard);
        environment
    }
}

impl Run<'_> {
    async fn look(&self) -> Result<Look, MeasureError> {
        let reading = self.rig.sampler.read().await;
        let allocated = self.allocated().ok_or(MeasureError::NotOnCard)?;
        let used = match self.named(&reading) {
            Some(used) => used,
            None if self.rig.alone => self.difference(&reading).ok_or(MeasureError::FreeUnknown)?,
            None => return Err(MeasureError::Nameless),
        };
        Ok(Look { used, allocated })
    }

    /// What the engine asked for, by guard's pages; `None` if it asked for nothing.
    fn allocated(&self) -> Option<Bytes> {
        let uuid = self.card.uuid.as_deref().and_then(Uuid::read)?;
        let pages = read_pages(&self.pages);
        let here = pages.iter().flat_map(|page| page.cards());
        let taken: Vec<u64> = here
            .filter(|card| Uuid(card.uuid) == uuid && card.allocations > 0)
            .map(|card| card.allocated.saturating_sub(card.context))
            .collect();
        (!taken.is_empty()).then(|| taken.into_iter().map(Bytes::new).sum())
    }

    /// What the driver says of the engine's processes.
    fn named(&self, reading: &Reading) -> Option<Bytes> {
        let family = probe::family(self.child.pid());
        let ours = reading
            .holders
            .iter()
            .filter(|holder| holder.card == self.card.id && family.contains(&holder.pid));
        let used: Vec<Bytes> = ours.filter_map(|holder| holder.used).collect();
        (!used.is_empty()).then(|| used.into_iter().sum())
    }

    /// What is less free than before.
    fn difference(&self, reading: &Reading) -> Option<Bytes> {
        Some(self.free?.saturating_sub(reading.free_on(&self.card.id)?))
    }

    /// A prompt that uses cuBLAS, and a few tokens of an answer.
    async fn prompt(&self) -> Result<(), Failure> {
        let target = Target {
            host: "127.0.0.1".to_owned(),
            port: self.child.port(),
            base: String::new(),
        };
        let body =
            json!({"prompt": "load line ".repeat(WORDS / 2), "n_predict": ANSWER_TOKENS, "temperature": 0});
        let mut client = Client::new(&target, None, ANSWER_WITHIN);
        let body = Body::from(body.to_string());
        client.json(Method::POST, "/completion", body).await.map(drop)
    }
}

impl Look {
    fn context(self) -> Result<Bytes, MeasureError> {
        let Self { used, allocated } = self;
        match used > allocated {
            true => Ok(used.saturating_sub(allocated)),
            false => Err(MeasureError::Less { used, allocated }),
        }
    }
}

async fn ready(events: &mut Receiver<ChildEvent>, log: &Log) -> Result<(), MeasureError> {
    let until_ready = async {
        loop {
            match events.recv().await {
                Some(ChildEvent::Ready(_)) => return Ok(()),
                Some(ChildEvent::Ended(ended)) => return Err(why(ended)),
                None => return Err(MeasureError::Ended(String::new())),
                Some(_) => {}
            }
        }
    };
    let lines = || {
        log.tail(LAST_LINES)
            .iter()
            .map(|line| line.text.clone())
            .collect()
    };
    timeout(READY_WITHIN, until_ready).await.unwrap_or_else(|_| {
        Err(MeasureError::Late {
            seconds: READY_WITHIN.as_secs(),
            last: tail(lines()),
        })
    })
}

fn why(ended: Ended) -> MeasureError {
    match post_mortem("the engine", &ended, None).sign {
        Some(Sign::PortTaken) => MeasureError::PortTaken,
        _ => MeasureError::Ended(tail(ended.last_lines)),
    }
}

/// Waits until the card is free again, for whoever is measured next.
async fn ended(events: &mut Receiver<ChildEvent>) {
    while let Some(event) = events.recv().await {
        if matches!(event, ChildEvent::Ended(_)) {
            return;
        }
    }
}

fn tail(lines: Vec<String>) -> String {
    let skipped = lines.len().saturating_sub(LAST_LINES);
    lines[skipped..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_counts_less_than_guard_is_not_believed() {
        let look = |used, allocated| Look {
            used: Bytes::mib(used),
            allocated: Bytes::mib(allocated),
        };
        assert_eq!(look(600, 10).context().unwrap(), Bytes::mib(590));
        let error = look(10, 10).context().unwrap_err().to_string();
        assert!(error.contains("10 MiB") && error.contains("hint: "), "{error}");
    }

    #[test]
    fn the_last_lines_of_many_are_told() {
        let lines: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        assert_eq!(tail(lines), "4\n5\n6\n7\n8");
        assert_eq!(tail(vec!["a".to_owned()]), "a");
    }
}
