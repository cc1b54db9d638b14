//! Reads the memory of the cards, and passes the readings to the scheduler as events.
//!
//! An engine's memory is recognised by its process group and by the figures of guard (the preloaded library).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId, CardKind, Share};
use plimsoll_cards::{HOST_CARD, Holder, Reading};
use plimsoll_process::{resident, resident_less_cache};
use plimsoll_scheduler::{ModelState, Moment, RunId, SchedulerEvent};
use rustix::process::{Pid, getpgid};

use super::Runtime;
use super::moved::outside;
use super::parts::Readings;
use super::run::EngineRun;
use plimsoll_task::{spawn_blocking, spawn_local};

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);
/// The same where idle models leave for other processes: one that grows must not have used up what is left to
/// it.
const SHORT_PERIOD: Duration = Duration::from_millis(200);
/// Time from the end of a load to a reading, unless the engine is ordered to stop before.
const AFTER_LOAD: Duration = Duration::from_millis(10);
/// Share of a run's memory that must be free again: drivers keep a little, and other processes allocate in
/// the meantime.
const BACK: (u64, u64) = (3, 4);

/// Reads the cards for as long as the daemon lives.
pub(super) async fn watch(runtime: Rc<Runtime>) {
    let is_short = runtime.settings.scheduler.gives_way || !runtime.settings.serve.yield_to.is_empty();
    let period = if is_short { SHORT_PERIOD } else { PERIOD };
    loop {
        runtime.read_cards().await;
        runtime.board.sample(&runtime.readings, runtime.reports.events.is_watched()).await;
        // After the answer, so that a slow driver is never asked faster than it answers.
        tokio::time::sleep(period).await;
    }
}

/// Answers the scheduler's ReadCards.
pub(super) async fn read_for_load(runtime: Rc<Runtime>) {
    runtime.read_cards().await;
}

/// Carries out the scheduler's AwaitMemory: most of the run's memory has to become free, in addition to the
/// memory that was free before.
pub(super) async fn await_return(runtime: Rc<Runtime>, run: RunId, taken: Vec<Share>) {
    runtime.await_free(&runtime.readings.expected_back(&taken)).await;
    runtime.submit(SchedulerEvent::MemoryReturned { run });
}

impl Runtime {
    /// Replaces the last reading, the base of later counts. The scheduler gets the next one of [`watch`].
    pub(super) fn read_after_load(&self, run: &Rc<EngineRun>) {
        // Memory of the host comes back with the process, and nothing is counted.
        let mut given = run.placement().cards().filter_map(|id| self.settings.card(id));
        if given.all(|card| card.kind == CardKind::Host) {
            return;
        }
        let (runtime, run) = (self.me(), Rc::clone(run));
        spawn_local(async move {
            // The thread that reads would share the processors with the first request.
            tokio::select! {
                () = tokio::time::sleep(AFTER_LOAD) => {}
                () = run.reported.notified() => {}
            }
            let reading = runtime.readings.sampler.read().await;
            runtime.readings.last.replace(reading);
        });
    }

    /// Reads the cards once.
    pub async fn read_cards(&self) {
        // The time before the question: memory that is taken after it may be missing from the answer.
        let taken = self.state.now();
        let reading = self.readings.sampler.read().await;
        let of_host = self.readings.host_use().await;
        self.notice_moved(&reading);
        self.end_strays(&reading);
        for (run, used) in self.measured(&reading, &of_host) {
            self.submit(SchedulerEvent::Measured { run, used });
            self.keep_need(run);
        }
        self.take_reading(reading, taken);
    }

    /// Saves the measured need of an engine without a plan, and logs a need beyond its card.
    fn keep_need(&self, run: RunId) {
        let Some(run) = self.state.run(run) else { return };
        self.reports.operator_log.beyond(&run);
        let entry = self.state.entry(run.model);
        if entry.memory.is_some() || entry.part().is_some() {
            return;
        }
        let view = self.state.view(run.model);
        // While it loads, its memory still grows.
        let Some(view) = view.filter(|view| view.state == ModelState::Ready && view.run == Some(run.id))
        else {
            return;
        };
        let need = self.settings.on_own_cards(&view.claim).unwrap_or_default();
        if let Some((file, text)) = self.readings.needs.measured(&entry, run.placement().alone, need) {
            drop(spawn_blocking(move || {
                if let Err(error) = file.write(&text) {
                    tracing::debug!("a measured memory need could not be saved: {error}");
                }
            }));
        }
    }

    fn take_reading(&self, reading: Reading, taken: Moment) {
        let free = reading.free.clone();
        let names = &self.settings.serve.yield_to;
        let began = self.readings.preceding.newly_on(&reading, names, || self.state.process_groups());
        for (card, pid, name) in began {
            let label = self.settings.label(&card);
            tracing::info!(
                "{name} (process {pid}), a program of `yield-to`, uses {label}: idle models on \
                it are unloaded"
            );
            self.submit(SchedulerEvent::PrecedenceTaken { card, name: name.clone() });
        }
        self.readings.last.replace(reading);
        self.submit(SchedulerEvent::CardsRead { free, taken });
    }

    /// Waits until the cards have this much free, or nothing changes any more.
    async fn await_free(&self, at_least: &[(CardId, Bytes)]) {
        if !at_least.is_empty() {
            let reading = self.readings.sampler.returned(at_least).await;
            self.take_reading(reading, self.state.now());
        }
    }

    /// Reads the cards after an engine ran out of memory, once the dead process's memory is back, so that
    /// memory still in use is that of others.
    pub(super) async fn read_after_failure(&self, run: &EngineRun) {
        let free = run.free_at_start();
        self.await_free(&free).await;
    }

    fn measured(
        &self,
        reading: &Reading,
        of_host: &[(RunId, CardId, Bytes)],
    ) -> Vec<(RunId, Vec<(CardId, Bytes)>)> {
        let used = self.state.runs().into_iter().map(|run| {
            let mut used = self.used_by(&run, reading);
            let its = of_host.iter().filter(|(id, ..)| *id == run.id);
            let spilled: Bytes = self.extensions.iter().map(|extension| extension.spilled(&run)).sum();
            let spilled = spilled + outside(&run, reading);
            used.extend(its.map(|(_, card, bytes)| (card.clone(), *bytes + spilled)));
            (run.id, used)
        });
        used.filter(|(_, used)| !used.is_empty()).collect()
    }

    fn used_by(&self, run: &EngineRun, reading: &Reading) -> Vec<(CardId, Bytes)> {
        let Some(group) = run.pid() else { return Vec::new() };
        let own = reading.holders.iter().filter(|holder| group_of(holder) == Some(group));
        let by_driver = own.filter_map(|holder| Some((holder.card.clone(), holder.used?)));
        let extensions = self.extensions.iter();
        let mut used: Vec<(CardId, Bytes)> =
            extensions.flat_map(|extension| extension.measured(self, run)).collect();
        // The larger figure is believed: the driver lists no processes in some containers, and guard misses
        // memory that bypasses it.
        for (card, bytes) in summed(by_driver) {
            match used.iter_mut().find(|(other, _)| *other == card) {
                Some((_, most)) => *most = bytes.max(*most),
                None => used.push((card, bytes)),
            }
        }
        used
    }
}

impl Readings {
    /// Free memory of the run's cards now.
    pub(super) fn free_on(&self, run: &EngineRun) -> Vec<(CardId, Bytes)> {
        let reading = self.last.borrow();
        let cards = self.state.settings.cards_of(run.placement()).into_iter();
        cards.filter_map(|card| Some((card.id.clone(), reading.free_on(&card.id)?))).collect()
    }

    fn expected_back(&self, taken: &[Share]) -> Vec<(CardId, Bytes)> {
        let reading = self.last.borrow();
        let expected = taken.iter().filter_map(|share| {
            let card = self.state.settings.card(&share.card)?;
            // The host has the pages back with the process.
            if card.kind == CardKind::Host {
                return None;
            }
            let back = reading.free_on(&share.card)? + share.bytes.scaled(BACK.0, BACK.1);
            Some((share.card.clone(), back.min(card.total)))
        });
        expected.collect()
    }

    /// Memory of each run on the host, where that is one of the cards. The files of /proc are read on another
    /// thread.
    async fn host_use(&self) -> Vec<(RunId, CardId, Bytes)> {
        let Some(host) = self.state.settings.host() else { return Vec::new() };
        let gauge = |run: &EngineRun| -> Option<fn(u32) -> Option<Bytes>> {
            let placement = run.placement();
            // A run of unknown need is given what it has mapped, too, because it works with all of that.
            if placement.alone && placement.cards().any(|id| *id == host.id) {
                return Some(resident);
            }
            // The kernel's figures are those of the whole machine: a described part of it has none.
            (host.id.as_str() == HOST_CARD).then_some(resident_less_cache as _)
        };
        let runs = self.state.runs();
        let wanted: Vec<_> = runs.iter().filter_map(|run| Some((run.id, run.pid()?, gauge(run)?))).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let card = host.id.clone();
        let read = move |(run, pid, gauge): (RunId, u32, fn(u32) -> Option<Bytes>)| {
            Some((run, card.clone(), gauge(pid)?))
        };
        let read = spawn_blocking(move || wanted.into_iter().filter_map(read).collect());
        read.await.unwrap_or_default()
    }
}

/// Adds up the memory of a run's processes on each card.
fn summed(pieces: impl Iterator<Item = (CardId, Bytes)>) -> BTreeMap<CardId, Bytes> {
    let mut sums = BTreeMap::new();
    for (card, bytes) in pieces {
        *sums.entry(card).or_insert(Bytes::ZERO) += bytes;
    }
    sums
}

pub(super) fn group_of(holder: &Holder) -> Option<u32> {
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw)?;
    // A process of another PID namespace has no group here, and counts as foreign.
    let group = getpgid(Some(pid)).ok()?;
    u32::try_from(group.as_raw_nonzero().get()).ok()
}
