//! Limits the data that another host may send about the fleet: first to the size of all records, then to a
//! rate of changes per second.
//!
//! DECISION: the store says how many records there are, and their bytes follow from that with room to spare.
//! More data than the share is a lie or a fault of the host. Changes are read at a pace, so that no host
//! takes the thread on which this one serves and renews its lease.

use std::time::Duration;

use plimsoll_base::Bytes;

use super::follow_host::NewsError;
use super::pace::Pace;

/// Bytes of one record, and of all beyond that: records of 10 000 hosts take 1.2 KB each as lines.
const RECORD: usize = 8 << 10;
const ALONGSIDE: usize = 16 << 20;
/// Records that were written or deleted since the store was asked.
const MEANWHILE: usize = 1000;
/// Bytes of changes beyond those of all records, for as long as one host is followed.
const CHANGES: usize = 8 << 20;
/// Bytes of changes a second: at 10 000 hosts that swap a model a minute, 200 KB.
const PACE: Bytes = Bytes::mib(1);
/// Longer than any line waits for those before it.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Cost of the shortest line: its work is not in its bytes.
const LEAST: usize = 512;

pub(super) struct NewsShare {
    /// Records and bytes that may still come.
    records: usize,
    bytes: usize,
    /// Bytes of changes that may still come.
    changes: usize,
    pace: Pace,
}

impl NewsShare {
    /// The share of a host, where the store has so many records.
    pub(super) fn of(stored: usize) -> Self {
        let records = stored.saturating_add(stored / 4).saturating_add(MEANWHILE);
        let bytes = stored.saturating_mul(RECORD).saturating_add(ALONGSIDE);
        Self { records, bytes, changes: CHANGES, pace: Pace::new(PACE) }
    }

    /// Takes a line of records.
    pub(super) fn record(&mut self, records: usize, length: usize) -> Result<(), NewsError> {
        let length = length.max(LEAST);
        let left = self.records.checked_sub(records).zip(self.bytes.checked_sub(length));
        (self.records, self.bytes) = left.ok_or(NewsError::TooMuch)?;
        self.changes = self.changes.saturating_add(length);
        Ok(())
    }

    /// Takes a line of changes, once those before it have had their time.
    pub(super) async fn change(&mut self, length: usize) -> Result<(), NewsError> {
        let length = length.max(LEAST);
        self.changes = self.changes.checked_sub(length).ok_or(NewsError::TooMuch)?;
        self.pace.turn(u64::try_from(length).unwrap_or(u64::MAX), LONGEST_WAIT).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_as_many_and_as_long_as_the_store_can_have() {
        let mut share = NewsShare::of(50_000);
        // 10 000 hosts: 60 MB in lines of 256 records.
        (0..196).for_each(|_| share.record(256, 320_000).unwrap());
        let mut share = NewsShare::of(1500);
        let taken = (0..).take_while(|_| share.record(256, 300).is_ok()).count();
        assert!(taken * 256 <= 3000, "{taken}");
        let mut share = NewsShare::of(1500);
        let taken = (0..).take_while(|_| share.record(1, 1 << 20).is_ok()).count();
        assert!((16..30).contains(&taken), "{taken} MiB");
    }

    #[tokio::test]
    async fn changes_end_and_a_short_line_costs_its_work() {
        let most = |length: usize| async move {
            // So that the test need not wait.
            let mut share = NewsShare { pace: Pace::new(Bytes::gib(1000)), ..NewsShare::of(0) };
            let mut lines = 0;
            while share.change(length).await.is_ok() {
                lines += 1;
            }
            lines
        };
        assert_eq!((most(64 << 10).await, most(1).await), (CHANGES / (64 << 10), CHANGES / LEAST));
    }

    #[tokio::test]
    async fn a_change_waits_for_those_before_it() {
        let (mut share, began) = (NewsShare::of(0), std::time::Instant::now());
        for _ in 0..3 {
            share.change(100 << 10).await.unwrap();
        }
        // 200 KiB at 1 MiB a second.
        assert!(began.elapsed() > Duration::from_millis(190), "{:?}", began.elapsed());
    }
}
