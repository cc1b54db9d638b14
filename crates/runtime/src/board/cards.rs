//! Shows the memory in use on each card, by the last reading, and its holders.

use plimsoll_base::{Bytes, CardId};
use plimsoll_cards::Reading;
use plimsoll_scheduler::{CardView, RunId};

use super::TermsOfRuns;
use super::parts::{CardPart, HolderKind, HolderReading, parts};
use crate::memory::group_of;
use crate::parts::Readings;

impl Readings {
    /// Memory in use on the card by the driver's last reading; `None` without one.
    ///
    /// DECISION: a described part of the host's memory has no reading of its own, so what its models hold is
    /// in use.
    pub(super) fn used(&self, card: &CardView) -> Option<Bytes> {
        if self.state.settings.is_part_of_host(&card.id) {
            return Some(card.holders.iter().map(|holder| holder.measured.unwrap_or(holder.claim)).sum());
        }
        let free = self.last.borrow().free_on(&card.id)?;
        Some(card.total.saturating_sub(free))
    }

    /// The load line: memory for all models on a card without other processes.
    pub(super) fn limit(&self, card: &CardId) -> Option<Bytes> {
        self.state.scheduler.borrow().ledger().account(card).map(|account| account.limit())
    }

    /// The memory in use on the card, by its holders and the planned terms of their runs.
    pub(super) fn parts_of(&self, card: &CardView, used: Bytes, terms: &TermsOfRuns) -> Vec<CardPart> {
        let is_part = self.state.settings.is_part_of_host(&card.id);
        let planned = |run: RunId| {
            let of_run = terms.get(&run)?.iter().find(|(id, _)| *id == card.id)?;
            Some(of_run.1.as_slice())
        };
        let models = card.holders.iter().filter_map(|holder| {
            let terms = planned(holder.run).unwrap_or_default();
            let (kind, name) = (HolderKind::Model, holder.model.as_str());
            let bytes = holder.measured.or(is_part.then_some(holder.claim))?;
            Some(HolderReading { kind, name, process: None, bytes, terms })
        });
        let reading = self.last.borrow();
        let foreign = self.foreign(&reading, &card.id);
        parts(used, models.chain(foreign))
    }

    /// Processes of the reading that are no engines of ours.
    fn foreign<'a>(
        &self,
        reading: &'a Reading,
        card: &CardId,
    ) -> impl Iterator<Item = HolderReading<'a>> + use<'a> {
        let engines = self.state.process_groups();
        let on_card = reading.holders.iter().filter(|holder| holder.card == *card);
        let foreign = on_card.filter(|holder| group_of(holder).is_none_or(|group| !engines.contains(&group)));
        let named: Vec<_> = foreign
            .filter_map(|holder| {
                let name = holder.name.as_deref().unwrap_or_default();
                let (kind, process) = (HolderKind::Foreign, Some(holder.pid));
                Some(HolderReading { kind, name, process, bytes: holder.used?, terms: &[] })
            })
            .collect();
        named.into_iter()
    }
}
