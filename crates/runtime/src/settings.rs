//! Settings of the runtime, and the errors of a configuration that cannot be applied.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardId, CardKind, Placement, Share};
use plimsoll_cards::KernelCard;
use plimsoll_config::ServeSettings;
use plimsoll_hub::Address;
use plimsoll_import::Places;
use plimsoll_log::LogFile;
use plimsoll_process::confinement::EngineUser;
use plimsoll_route::{ApiKeys, OccupiedMemory};
use plimsoll_scheduler::ModelView;
use plimsoll_scheduler::place::Ledger;
use serde_json::{Value, json};

use super::config_error::ReadConfigError;
use super::forecast;
use super::operator_log::label;
use super::registry::UnknownCard;

/// Settings of the runtime, without the models.
#[derive(Debug)]
pub struct RuntimeSettings {
    pub config: PathBuf,
    /// Places whose models are served beside those of the configuration.
    pub places: Option<Places>,
    /// `[serve]` of the configuration that the daemon was started with.
    pub serve: ServeSettings,
    /// API keys of the listener, replaced by each reload.
    pub keys: ApiKeys,
    /// The listener can be reached from other machines, and was not opened by the user.
    pub needs_keys: bool,
    pub scheduler: plimsoll_scheduler::SchedulerSettings,
    /// GPUs that the kernel describes, for what runtimes call them.
    pub kernel_cards: Vec<KernelCard>,
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

    pub(crate) fn card(&self, id: &CardId) -> Option<&Card> {
        self.cards().find(|card| card.id == *id)
    }

    /// The CUDA cards of a placement.
    pub fn cards_of(&self, placement: &Placement) -> Vec<&Card> {
        let given = |card: &&Card| placement.cards().any(|id| *id == card.id);
        self.cards().filter(given).filter(|card| card.kind == CardKind::Cuda).collect()
    }

    /// The name of a card for the operator: its own, with its identifier if other cards share the name.
    pub fn label(&self, id: &CardId) -> String {
        label(&self.cards().collect::<Vec<_>>(), id)
    }

    /// The host, where its memory is served from.
    pub(crate) fn host(&self) -> Option<&Card> {
        self.cards().find(|card| card.kind == CardKind::Host)
    }

    /// True for host memory of which the user described a part.
    pub(crate) fn is_part_of_host(&self, card: &CardId) -> bool {
        let mut limits = self.scheduler.cards.iter();
        limits.any(|limit| {
            limit.card.id == *card && limit.card.kind == CardKind::Host && limit.budget.is_some()
        })
    }

    fn is_gpu(&self, id: &CardId) -> bool {
        self.card(id).is_some_and(|card| card.kind != CardKind::Host)
    }

    /// The shares of the cards that models compute on: without the host's memory beside others.
    fn own<'a>(&'a self, shares: &'a [Share]) -> impl Iterator<Item = &'a Share> {
        let alongside = self.cards().any(|card| card.kind != CardKind::Host);
        shares.iter().filter(move |share| !alongside || self.is_gpu(&share.card))
    }

    /// Sum of the shares of the cards that models compute on; `None` without such a share.
    pub(crate) fn on_own_cards(&self, shares: &[Share]) -> Option<Bytes> {
        self.own(shares).map(|share| share.bytes).reduce(|sum, bytes| sum + bytes)
    }

    /// Memory of a run: measured, or else claimed.
    pub(crate) fn occupied(&self, view: &ModelView) -> OccupiedMemory {
        let measured = |claim: &Share| view.measured.iter().find(|share| share.card == claim.card).cloned();
        let shares: Vec<Share> =
            view.claim.iter().map(|claim| measured(claim).unwrap_or_else(|| claim.clone())).collect();
        let on_gpus = shares.iter().filter(|share| self.is_gpu(&share.card));
        OccupiedMemory {
            total: shares.iter().map(|share| share.bytes).sum(),
            on_gpus: on_gpus.map(|share| share.bytes).sum(),
        }
    }

    /// Measured memory and growth of a model on the cards that it computes on; `None` until it was measured.
    pub(crate) fn memory(&self, view: &ModelView) -> Option<Value> {
        let measured = self.on_own_cards(&view.measured);
        // A zero would read as a measurement.
        (measured.is_some() || view.growth.is_some())
            .then(|| json!({"claim": self.on_own_cards(&view.claim).unwrap_or_default(), "measured": measured, "growth": view.growth}))
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
