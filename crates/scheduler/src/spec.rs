//! What the configuration says about a model, as far as admission goes, and about the whole machine.

use std::time::Duration;

use plimsoll_base::{CardId, CardLimit};

/// A model's terms of admission. What it needs is not among them: the survey before each load says that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    pub name: String,
    /// Cards it may use; empty for any.
    pub allowed: Vec<CardId>,
    /// Never stopped to make room for another, nor for being idle.
    pub pinned: bool,
    /// Stop after this long without a request, counted from when it became idle or ready.
    pub ttl: Option<Duration>,
    /// Requests that the engine gets at once; the rest wait here.
    pub concurrency: Option<u32>,
    /// A load without progress for this long is killed.
    pub load_timeout: Duration,
    /// An engine that was asked to stop is killed after this long.
    pub stop_timeout: Duration,
    /// Requests are admitted by the depth that they may reach, and the claim follows; else it stands as it was granted.
    pub by_depth: bool,
    /// Load at start, as far as it fits without stopping anybody.
    pub preload: bool,
}

impl ModelSpec {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            allowed: Vec::new(),
            pinned: false,
            ttl: None,
            concurrency: None,
            load_timeout: Duration::from_secs(120),
            stop_timeout: Duration::from_secs(10),
            by_depth: true,
            preload: false,
        }
    }
}

/// What holds for all models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub cards: Vec<CardLimit>,
    /// How long a queued model waits before traffic to its victims is cut, and how long a busy newcomer is
    /// left alone before it can be a victim in turn.
    pub patience: Duration,
    /// At shutdown, how long requests in flight may take to finish.
    pub drain: Duration,
    /// Requests that one model may have waiting; more are refused.
    pub queue: usize,
    /// Whether there may be neighbours that can be asked for what they hold idle, before anybody goes for a newcomer.
    pub asks: bool,
    /// Of several that wait to be loaded the largest goes first, and preloads go one after another: for cards that take the host's
    /// memory.
    pub largest_first: bool,
}

impl Settings {
    pub fn new(cards: Vec<CardLimit>) -> Self {
        Self {
            cards,
            patience: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            queue: 1024,
            asks: false,
            largest_first: false,
        }
    }
}
