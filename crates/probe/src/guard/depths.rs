//! Reports how many tokens each slot of llama-server holds, so that guard can move the used part of the KV
//! cache onto the card.
//!
//! DECISION: the engine is asked for its slots (`GET /slots`), not its log or its memory. It is asked only
//! while guard reports on its page that it could exchange memory and that the engine computes. An engine that
//! answers nothing, because it has a key or was started with `--no-slots`, keeps the placement that it began
//! with.

use std::path::Path;
use std::time::Duration;

use plimsoll_base::BusRate;
use plimsoll_wire::cache::CacheLayout;
use serde::Deserialize;
use tokio::time::sleep;

use super::{read_pages, report_depths};

/// Interval between questions. A batch of a prompt takes longer, and an answer grows by some twenty tokens
/// meanwhile.
const PERIOD: Duration = Duration::from_millis(100);
/// Positions beyond the used ones that are to be on the card at least: what an answer grows by in some
/// intervals.
const AHEAD: u32 = 64;

/// Time for an answer, which a computing server gives between two batches.
pub const SLOTS_WITHIN: Duration = Duration::from_secs(5);
/// Longest list of slots: it shows the parameters of each last request.
pub const LONGEST_SLOTS: usize = 16 << 20;

/// Reporter of the depths in one llama-server.
#[derive(Debug)]
pub struct DepthReporter {
    streams: usize,
    positions: u32,
    /// Content of the slots at the last answer.
    before: Vec<u32>,
    reports: u32,
}

/// A slot, as `GET /slots` shows it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Slot {
    #[serde(default)]
    id: usize,
    #[serde(default)]
    is_processing: bool,
    /// Tokens in its cache; absent if it was never used (`server-context.cpp: to_json @ b11063`).
    #[serde(default)]
    n_prompt_tokens: u32,
}

impl DepthReporter {
    /// For a server that has a cache of this layout; `None` for more streams than can be reported.
    pub fn new(layout: &CacheLayout) -> Option<Self> {
        let streams = usize::try_from(layout.streams()).ok()?;
        Some(Self { streams, positions: layout.positions(), before: Vec::new(), reports: 0 })
    }

    /// Reports to the processes with pages in `folder`, until it is dropped. `slots` asks the engine for its
    /// slots, for at most [`SLOTS_WITHIN`], and returns the body of the answer. `on_bus` gets the rate of the
    /// bus once guard has measured it.
    pub async fn report(
        mut self,
        folder: &Path,
        mut slots: impl AsyncFnMut() -> Option<Vec<u8>>,
        on_bus: impl FnOnce(BusRate),
    ) {
        let mut on_bus = Some(on_bus);
        let mut waits = 0;
        loop {
            sleep(PERIOD).await;
            let pages = read_pages(folder);
            if let Some(bus) = pages.iter().find_map(|page| BusRate::of_mebibytes(page.bus_rate))
                && let Some(on_bus) = on_bus.take()
            {
                on_bus(bus);
            }
            let now = pages.iter().map(|page| u64::from(page.waits)).sum();
            if std::mem::replace(&mut waits, now) == now {
                continue;
            }
            let Some(answer) = slots().await else { continue };
            let Ok(slots) = serde_json::from_slice::<Vec<Slot>>(&answer) else { continue };
            let depths = self.depths(&slots);
            self.reports += 1;
            for page in read_pages(folder).iter().filter(|page| page.waits > 0) {
                // A process that has ended needs no report.
                let _ = report_depths(folder, page.pid, &depths, self.reports);
            }
        }
    }

    /// Positions of each stream that are in use, or soon will be.
    fn depths(&mut self, slots: &[Slot]) -> Vec<u32> {
        let before = std::mem::take(&mut self.before);
        self.before = vec![0; slots.len()];
        let mut depths = vec![0_u32; self.streams];
        for slot in slots {
            let used = slot.n_prompt_tokens;
            let last = before.get(slot.id).copied().unwrap_or(0);
            if let Some(place) = self.before.get_mut(slot.id) {
                *place = used;
            }
            // A prompt grows by a batch until the next answer, and by another one until what it says is done.
            let growth = used.saturating_sub(last).saturating_mul(2).max(AHEAD);
            let wanted = if slot.is_processing { used.saturating_add(growth) } else { used };
            // Slots that share a cache hold positions of it also while they are idle; of a stream's own cache
            // an idle slot reads nothing.
            let depth = match (self.streams, depths.get_mut(slot.id)) {
                (1, _) => depths.first_mut(),
                (_, depth) => depth.filter(|_| slot.is_processing),
            };
            if let Some(depth) = depth {
                *depth = depth.saturating_add(wanted).min(self.positions);
            }
        }
        depths
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll_wire::page::{MAGIC, Page, VERSION};

    use super::*;

    fn reporter(layout: &str) -> DepthReporter {
        DepthReporter::new(&CacheLayout::read(layout).unwrap()).unwrap()
    }

    fn slot(id: usize, is_processing: bool, n_prompt_tokens: u32) -> Slot {
        Slot { id, is_processing, n_prompt_tokens }
    }

    #[test]
    fn a_prompt_is_reported_ahead_of_its_growth() {
        let mut of = reporter("1:8192:1x4/32768");
        assert_eq!(of.depths(&[slot(0, true, 2000)]), [6000]);
        assert_eq!(of.depths(&[slot(0, true, 3000)]), [5000]);
        assert_eq!(of.depths(&[slot(0, true, 3010)]), [3010 + AHEAD]);
        assert_eq!(of.depths(&[slot(0, true, 8100)]), [8192]);
        assert_eq!(of.depths(&[slot(0, false, 8100)]), [8100]);
    }

    #[test]
    fn slots_with_caches_of_their_own_are_reported_apart() {
        let mut of = reporter("2:8192:1x4/65536");
        assert_eq!(of.depths(&[slot(0, true, 10), slot(1, false, 500)]), [10 + AHEAD, 0]);
    }

    #[test]
    fn slots_that_share_a_cache_are_one_depth() {
        let mut of = reporter("1:8192:1x4/32768");
        assert_eq!(of.depths(&[slot(0, true, 10), slot(1, false, 500)]), [10 + AHEAD + 500]);
    }

    #[tokio::test]
    async fn a_computing_server_is_asked_and_its_depths_are_on_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.page");
        let mut page = vec![0; Page::SIZE];
        page[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        page[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        page[16..20].copy_from_slice(&7_u32.to_ne_bytes());
        // The process has waited for its card with a cache that can be exchanged.
        page[Page::WAITS_OFFSET] = 1;
        let rate = std::mem::offset_of!(Page, bus_rate);
        page[rate..rate + 4].copy_from_slice(&51_u32.to_ne_bytes());
        fs::write(&path, &page).unwrap();
        let bus = std::cell::Cell::new(None);
        let slots = r#"[{"id":0,"is_processing":true,"n_prompt_tokens":1000,"params":{"seed":1}},{"id":1}]"#;
        let seen = async {
            loop {
                let page = fs::read(&path).unwrap();
                let word = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
                if word(Page::DEPTH_REPORTS_OFFSET) == 1 {
                    return [word(Page::DEPTHS_OFFSET), word(Page::DEPTHS_OFFSET + 4)];
                }
                sleep(PERIOD).await;
            }
        };
        let answer = async || Some(slots.as_bytes().to_vec());
        let depths = tokio::select! {
            depths = seen => depths,
            () = reporter("2:8192:1x4/65536").report(folder.path(), answer, |rate| bus.set(Some(rate))) => unreachable!("it reports for ever"),
        };
        assert_eq!(depths, [3000, 0]);
        assert_eq!(bus.get(), BusRate::of_mebibytes(51));
    }
}
