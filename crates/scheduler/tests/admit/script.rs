//! Describes a run of a simulated machine: its models, the lives of their engines, and the acts of clients
//! and operators. Times are in milliseconds.

use plimsoll_base::Priority;

pub(crate) const SURVEY: u64 = 10;
pub(crate) const STOP: u64 = 50;
/// A reading of the cards, and a health check.
pub(crate) const READ: u64 = 3;
pub(crate) const CHECK: u64 = 4;
/// Small requests to an engine that failed a client's.
pub(crate) const PROBE: u64 = 700;
pub(crate) const RETURN: u64 = 100;
/// Until neighbours have answered, or nobody waits for them any more.
pub(crate) const REQUESTED: u64 = 300;
/// How one life of an engine goes; times in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Serves {
        load: u64,
    },
    CrashesLoading {
        after: u64,
    },
    OutOfMemory {
        after: u64,
    },
    NeverReady,
    Unstartable,
    /// Dies this long after it became ready.
    DiesServing {
        load: u64,
        after: u64,
        out_of_memory: bool,
    },
    /// Answers with errors alone, this long after it became ready, until it is killed.
    Poisoned {
        load: u64,
        after: u64,
    },
    /// Serves, and ignores a polite stop.
    Stubborn {
        load: u64,
    },
}

/// How a plan answers a question.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlanFate {
    Answers,
    /// After so many milliseconds.
    Late(u64),
    /// About other cards than those that were asked about.
    OtherCards,
    /// More than any card has, on a card that does not exist, or one card twice.
    Nonsense(u8),
    /// The right answer to an earlier search.
    OtherSearch,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Ask {
        model: u32,
        takes: u64,
        patient_for: u64,
        prompt: u64,
    },
    /// The n-th living run from the youngest back asks for more of its first card.
    RequestBudget {
        back: usize,
        gib: u64,
    },
    /// The client of the n-th request from now back leaves.
    Leave {
        back: usize,
    },
    Foreign {
        card: usize,
        gib: u64,
    },
    Measure,
    /// The n-th living run from the youngest back falls asleep, if it is idle.
    Sleep {
        back: usize,
    },
    Replace {
        model: u32,
    },
    Retune {
        model: u32,
    },
    Remove {
        model: u32,
    },
    Load {
        model: u32,
    },
    Unload {
        model: u32,
    },
    /// No time, or no memory, ends it.
    Yield {
        card: usize,
        gib: u64,
        time: u64,
    },
    Precedence {
        card: usize,
    },
    /// No time ends the pin.
    Pin {
        model: u32,
        time: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// None for unknown.
    pub(crate) gib: Option<u64>,
    pub(crate) pinned: bool,
    pub(crate) concurrency: Option<u32>,
    pub(crate) ttl: Option<u64>,
    pub(crate) survey_fails: bool,
    /// Priority of the model and of its requests.
    pub(crate) priority: Priority,
    pub(crate) grows: Option<Grows>,
    /// GiB of the host, where that is the last card.
    pub(crate) host: u64,
    /// Requests after which its engine starts anew.
    pub(crate) most: Option<u32>,
    /// Its engine measures free memory while it starts.
    pub(crate) measures: bool,
}

/// How a model's memory grows with depth, beside what it needs when loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grows {
    /// At full depth.
    pub(crate) gib: u64,
    pub(crate) slots: u64,
    pub(crate) unified: bool,
    pub(crate) keeps: bool,
    /// It is let in with less than it takes at full depth.
    pub(crate) elastic: bool,
}

/// Tokens that a slot of every simulated engine has at most.
pub(crate) const CONTEXT: u64 = 1000;
/// Tokens of every answer at most.
pub(crate) const ANSWER: u64 = 50;
/// The time that an engine takes to count a prompt.
pub(crate) const COUNT: u64 = 5;

/// A client that asks again as soon as it has its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) model: u32,
    pub(crate) takes: u64,
    pub(crate) prompt: u64,
}
