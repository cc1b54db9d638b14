//! Holds the measured transfer rate of the bus between host memory and a card.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Bytes;

const SECOND: u128 = 1_000_000_000;

/// Bytes a second that come from host memory to a card, as measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BusRate(NonZeroU64);

impl BusRate {
    /// `None` for no bytes a second, which is no measurement.
    pub fn new(bytes_per_second: u64) -> Option<Self> {
        NonZeroU64::new(bytes_per_second).map(Self)
    }

    /// The same for MiB a second.
    pub fn of_mebibytes(per_second: u32) -> Option<Self> {
        Self::new(u64::from(per_second) << 20)
    }

    /// Time in which these bytes come to the card.
    pub fn time(self, bytes: Bytes) -> Duration {
        let nanoseconds = u128::from(bytes.get()) * SECOND / u128::from(self.0.get());
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_part_of_a_second() {
        let bus = BusRate::new(50_000_000_000).unwrap();
        assert_eq!(bus.time(Bytes::new(131_072_000)), Duration::from_nanos(2_621_440));
        assert_eq!(BusRate::new(1).unwrap().time(Bytes::MAX), Duration::from_nanos(u64::MAX));
        assert_eq!(BusRate::of_mebibytes(3), BusRate::new(3 << 20));
        assert_eq!((BusRate::new(0), BusRate::of_mebibytes(0)), (None, None));
    }
}
