//! Defines the scheduler's settings of one model, such as its cards and timeouts, and its settings for all
//! models.

use std::num::NonZeroUsize;
use std::time::Duration;

use plimsoll_base::{CardId, CardLimit, Company, Priority};

/// Settings for the admission of one model. Its memory need is determined by the survey before each load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    pub name: String,
    /// Cards it may use; empty for any.
    pub allowed: Vec<CardId>,
    /// Never stopped to make room for another model, nor for being idle.
    pub pinned: bool,
    /// Stop after this long without a request, counted from when it became idle or ready.
    pub ttl: Option<Duration>,
    /// Time after the load for which it counts as busy between two requests, while its clients go on.
    pub hold: Duration,
    /// Port that its engine always listens on. Models that share one are never loaded at once.
    pub port: Option<u16>,
    /// Models beside which it may run.
    pub company: Company,
    /// Requests that the engine gets at once; the rest wait here.
    pub concurrency: Option<u32>,
    /// Requests that the engine works on at once, as its flags say. As many are sent where `concurrency` says
    /// nothing.
    pub slots: Option<u32>,
    /// Importance of a load beside those of other models.
    pub priority: Priority,
    /// Requests after which the engine gets no more and is started again.
    pub max_requests: Option<u32>,
    /// A load without progress for this long is killed.
    pub load_timeout: Duration,
    /// Time after which a stopping engine is killed.
    pub stop_timeout: Duration,
    /// Requests are admitted by the depth that they may reach, and the claim follows. Otherwise the claim
    /// stays as granted.
    pub by_depth: bool,
    /// Its engine measures free memory while it starts, and fails or takes a wrong amount if that changes
    /// meanwhile.
    pub measures_free: bool,
    /// Load at start, if it fits without stopping another model.
    pub preload: bool,
}

impl ModelSpec {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

impl Default for ModelSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            allowed: Vec::new(),
            pinned: false,
            ttl: None,
            hold: Duration::from_secs(10),
            port: None,
            company: Company::default(),
            concurrency: None,
            slots: None,
            priority: Priority::default(),
            max_requests: None,
            // A large model reads its file for minutes, but reports progress meanwhile.
            load_timeout: Duration::from_secs(120),
            stop_timeout: Duration::from_secs(10),
            by_depth: true,
            measures_free: false,
            preload: false,
        }
    }
}

/// Settings that hold for all models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    pub cards: Vec<CardLimit>,
    /// The most models that run at a time; `None` if memory alone limits them.
    pub models_max: Option<NonZeroUsize>,
    /// Time that a queued model waits before its victims' traffic is cut, and time that a busy new model is
    /// protected before it can be a victim itself.
    pub patience: Duration,
    /// Time that a shutdown takes at most. Requests in flight may finish until shortly before its end.
    pub drain: Duration,
    /// Maximum number of waiting requests of one model; more are refused.
    pub queue: usize,
    /// Guarded processes may be requested to release idle memory before a model is stopped for another.
    pub asks: bool,
    /// The largest waiting model loads first, and preloads load one after another: for cards that share the
    /// host's memory.
    pub largest_first: bool,
    /// Idle runs leave while the claims on their card pass its capacity, because other processes took memory.
    pub gives_way: bool,
    /// A load is decided on a reading of the cards no older than this.
    pub reading_age: Duration,
}

impl SchedulerSettings {
    pub fn new(cards: Vec<CardLimit>) -> Self {
        Self {
            cards,
            models_max: None,
            patience: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            queue: 1024,
            asks: false,
            largest_first: false,
            gives_way: false,
            reading_age: Duration::from_millis(50),
        }
    }
}
