//! Types for time, and for identifiers of models and requests.
//!
//! The scheduler reads no clock; its caller supplies time and identifiers.

use std::ops::Add;
use std::time::Duration;

use serde::Serialize;

/// A model of the configuration. The driver numbers models densely from 0 and never reuses a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ModelId(pub u32);

/// A model's search for memory. A later search of the model has another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchId(pub u64);

/// A client's request. The driver never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

/// Origin of a request, as far as the driver can distinguish clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Time since an origin that the driver chose; it never runs backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    pub const START: Self = Self(Duration::ZERO);
    /// Later than any event.
    pub const NEVER: Self = Self(Duration::MAX);

    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if it is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, later: Duration) -> Self {
        // Saturating, because a timeout of the configuration may be `Duration::MAX`.
        Self(self.0.saturating_add(later))
    }
}

/// Serialises as seconds since the start.
impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}
