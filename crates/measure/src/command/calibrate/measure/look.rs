//! Reads the memory of an engine on its card at one moment, from the driver and from guard (the preloaded
//! library).
//!
//! The engine is idle at that moment.

use plimsoll_base::Bytes;
use plimsoll_cards::Reading;
use plimsoll_probe::guard::read_pages;
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::CardSnapshot;

use super::{CalibrationRun, MeasureError};

#[derive(Clone, Copy, Debug)]
pub(super) struct CalibrationLook {
    /// Memory that the engine holds, by the driver.
    pub(super) used: Bytes,
    counted: Counted,
}

/// Figures from guard's page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Memory that the engine requested.
    requested: Bytes,
    /// Sum of its contexts at opening; zero where NVML gave guard no figure.
    opened: Bytes,
}

impl CalibrationRun<'_> {
    pub(super) async fn look(&self) -> Result<CalibrationLook, MeasureError> {
        let reading = self.rig.sampler.read().await;
        let identity = self.card.identity();
        let pages = read_pages(&self.pages);
        let cards = pages.iter().flat_map(|page| page.cards());
        let here = cards.filter(|card| identity == Some(Uuid(card.uuid)));
        let counted = Counted::of(here).ok_or(MeasureError::NotOnCard)?;
        // The engine may be a wrapper script whose child holds the card.
        let family = plimsoll_process::reading::tree(self.child.pid());
        let used = match reading.used_by(&family, &self.card.id) {
            Some(used) => used,
            // Only with `--alone`: on a shared card the difference would include other processes.
            None if self.rig.alone => self.difference(&reading).ok_or(MeasureError::FreeUnknown)?,
            None => return Err(MeasureError::Nameless),
        };
        Ok(CalibrationLook { used, counted })
    }

    /// Decrease of free memory since before the start.
    fn difference(&self, reading: &Reading) -> Option<Bytes> {
        Some(self.free?.saturating_sub(reading.free_on(&self.card.id)?))
    }
}

impl Counted {
    /// The sum over the processes that allocated on the card; `None` without such a process.
    fn of<'a>(cards: impl Iterator<Item = &'a CardSnapshot>) -> Option<Self> {
        cards
            .filter(|card| card.allocations > 0)
            .map(|card| Self {
                // Guard counts the measured context into `allocated`, so that a budget covers it.
                requested: Bytes::new(card.allocated.saturating_sub(card.context)),
                opened: Bytes::new(card.context),
            })
            .reduce(|sum, one| Self {
                requested: sum.requested + one.requested,
                opened: sum.opened + one.opened,
            })
    }
}

impl CalibrationLook {
    /// Memory of context, modules and handles, which the engine holds but did not request.
    pub(super) fn context(self) -> Result<Bytes, MeasureError> {
        let (used, requested) = (self.used, self.counted.requested);
        if used > requested {
            Ok(used.saturating_sub(requested))
        } else {
            Err(MeasureError::Less { used, requested })
        }
    }

    /// The size of the context at opening. `None` if guard could not measure it, or measured more than the
    /// whole, as it does if another process allocates at that moment.
    pub(super) fn opened(self) -> Option<Bytes> {
        let opened = self.counted.opened;
        let whole = self.context().ok()?;
        (opened > Bytes::ZERO && opened <= whole).then_some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(used: u64, requested: u64, opened: u64) -> CalibrationLook {
        let (requested, opened) = (Bytes::mib(requested), Bytes::mib(opened));
        CalibrationLook { used: Bytes::mib(used), counted: Counted { requested, opened } }
    }

    #[test]
    fn a_driver_that_counts_less_than_guard_is_not_believed() {
        assert_eq!(look(600, 10, 0).context().unwrap(), Bytes::mib(590));
        let error = look(10, 10, 0).context().unwrap_err().to_string();
        assert!(error.contains("10 MiB") && error.contains("hint: "), "{error}");
    }

    #[test]
    fn an_opened_context_is_part_of_the_whole_or_unknown() {
        let opened = |opened| look(600, 10, opened).opened();
        assert_eq!(opened(518), Some(Bytes::mib(518)));
        assert_eq!(opened(590), Some(Bytes::mib(590)));
        assert_eq!((opened(0), opened(591)), (None, None));
    }

    #[test]
    fn processes_that_asked_for_nothing_do_not_count() {
        let card = |allocated, context, allocations| CardSnapshot {
            allocated,
            context,
            allocations,
            ..CardSnapshot::default()
        };
        assert_eq!(Counted::of([card(7, 7, 0)].iter()), None);
        let counted = Counted::of([card(7, 7, 0), card(107, 7, 2), card(15, 5, 1)].iter());
        let (requested, opened) = (Bytes::new(110), Bytes::new(12));
        assert_eq!(counted, Some(Counted { requested, opened }));
    }
}
