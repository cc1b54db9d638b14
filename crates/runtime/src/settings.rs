//! Settings of the runtime, and the errors of a configuration that cannot be applied.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_base::{Bytes, Card};
use plimsoll_config::ServeSettings;
use plimsoll_hub::Address;
use plimsoll_log::LogFile;
use plimsoll_process::confinement::EngineUser;
use plimsoll_route::ApiKeys;
use plimsoll_scheduler::place::Ledger;

use super::config_error::ReadConfigError;
use super::forecast;
use super::registry::UnknownCard;
use super::survey::{Asking, ExactAnswers, Patience};

/// Settings of the runtime, without the models.
#[derive(Debug)]
pub struct RuntimeSettings {
    pub config: PathBuf,
    /// `[serve]` of the configuration that the daemon was started with.
    pub serve: ServeSettings,
    /// API keys of the listener, replaced by each reload.
    pub keys: ApiKeys,
    /// The listener can be reached from other machines, and was not opened by the user.
    pub needs_keys: bool,
    pub scheduler: plimsoll_scheduler::SchedulerSettings,
    /// The program of models that give only flags, if the user chose one.
    pub engine: Option<Vec<String>>,
    /// Time that a request may wait for its model.
    pub wait: Duration,
    /// File for the log lines of engines, in addition to the log in memory.
    pub log_file: Option<LogFile>,
    /// The user that engines run as, if not the daemon's own.
    pub engine_user: Option<EngineUser>,
    /// Receiver of failures.
    pub webhook: Option<Address>,
    /// Collector of traces.
    pub traces: Option<Address>,
    /// Bound of the folder of saved slots; zero saves none.
    pub warm: Bytes,
    /// Variables that engines inherit from the daemon.
    pub inherited: Vec<(OsString, OsString)>,
}

impl RuntimeSettings {
    /// The cards that are served from, in their order.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.scheduler.cards.iter().map(|limit| &limit.card)
    }

    /// Access to the answers of engines for a survey. An engine with a user of its own is not asked: it would
    /// run with the daemon's rights.
    pub fn asking(&self, answers: &ExactAnswers, patience: Patience) -> Option<Asking> {
        let (answers, inherited) = (answers.clone(), self.inherited.clone());
        self.engine_user.is_none().then_some(Asking { answers, inherited, patience })
    }

    /// The served cards, each with the memory that it would have for models if it were empty.
    pub fn served(&self) -> Vec<Card> {
        forecast::served(&Ledger::new(self.scheduler.cards.clone()))
    }
}

/// Error in a configuration that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    #[error(transparent)]
    Read(#[from] ReadConfigError),
    #[error(transparent)]
    Card(#[from] UnknownCard),
    #[error("{}: the new configuration has no API key, but the server can be reached from other machines; \
        keep a key, or restart with --open", path.display())]
    NoKey { path: PathBuf },
}
