//! What the scheduler shows: for `/running`, `/models` and the screens.

use std::time::Duration;

use serde::Serialize;

use super::effect::State;
use super::moment::{ModelId, Moment};
use crate::bytes::Bytes;
use crate::explain::Reason;
use crate::place::{CardId, RunId, Share};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    pub now: Moment,
    pub models: Vec<ModelView>,
    pub cards: Vec<CardView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelView {
    pub id: ModelId,
    pub name: String,
    pub state: State,
    pub pinned: bool,
    pub run: Option<RunId>,
    pub in_flight: u32,
    pub queued: usize,
    /// When a request last came or went; None before the first.
    pub last_used: Option<Moment>,
    /// What the run may take.
    pub claim: Vec<Share>,
    /// What it was last seen to take.
    pub measured: Vec<Share>,
    /// Added to the demand on every card, because memory ran out before.
    pub learned: Bytes,
    /// How long loads are held back after crashes; None when they are not.
    pub held_back: Option<Duration>,
    pub last_failure: Option<Reason>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardView {
    pub id: CardId,
    pub name: String,
    pub total: Bytes,
    /// What all claims together may take: budget, reserve and strangers taken into account.
    pub capacity: Bytes,
    pub claimed: Bytes,
    /// Capacity that nobody claims.
    pub free: Bytes,
    /// Used by processes that are not ours.
    pub foreign: Bytes,
    pub holders: Vec<HolderView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HolderView {
    pub run: RunId,
    pub model: String,
    pub claim: Bytes,
    pub measured: Option<Bytes>,
}
