//! Defines the priority of a request or of a model in a queue.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// DECISION: a priority changes the time from which a wait counts, by a fixed span. So a request of low
/// priority is passed only by those that come within this span after it, and none waits for ever.
const SPAN: Duration = Duration::from_secs(60);

/// Importance of a request or of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The time by which a wait counts as begun later than it did. Zero for the highest priority.
    pub fn delay(self) -> Duration {
        match self {
            Self::High => Duration::ZERO,
            Self::Normal => SPAN,
            Self::Low => SPAN * 2,
        }
    }
}
