//! Preloads guard, the library that counts and limits GPU memory, into the daemon's engines.
//!
//! A measurement below an engine's claim (the memory that it may take) does not lower the claim, because the
//! engine may still grow.

mod budgets;
mod depths;
mod options;
mod refusals;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, CardKind, End, MemoryModel, RequestedMemory};
use plimsoll_config::{GuardMode, GuardSettings};
use plimsoll_doctor::RefusedAllocation;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::guard::{DepthReporter, PAGES, Preload, preload, read_pages};
use plimsoll_process::Environment;
use plimsoll_process::confinement::EngineUser;
use plimsoll_process::reading::MeasuredProcess;
use plimsoll_scheduler::{ModelId, RunId, SchedulerEffect, SchedulerEvent};
use plimsoll_wire::cache::CacheLayout;
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CardSnapshot, PageSnapshot};
use tokio::task::AbortHandle;

use self::budgets::PendingRequest;
use self::options::spills;
use plimsoll_runtime::{EngineRun, Extension, Runtime};
use plimsoll_task::spawn_local;

/// Additional tokens that make a deeper answer worth a sample.
const DEEPER: u64 = 256;

#[derive(Debug)]
pub(super) struct GuardHandler {
    /// Settings of models that have none of their own.
    usual: GuardSettings,
    /// The library and the folder of the pages, or the reason of their absence.
    means: Result<(PathBuf, OwnedFolder), String>,
    warned: Cell<bool>,
    children: Cell<u64>,
    /// Needs of models, for those that may spill.
    demands: RefCell<HashMap<ModelId, Arc<dyn MemoryModel>>>,
    guarded: RefCell<HashMap<RunId, Rc<GuardedRun>>>,
}

/// Run of an engine under guard.
#[derive(Debug)]
pub(super) struct GuardedRun {
    pages: PathBuf,
    writers: PageWriters,
    settings: GuardSettings,
    /// The cache whose used positions change places with weights, if depths are to be reported.
    exchanged: Option<CacheLayout>,
    reporter: RefCell<Option<AbortHandle>>,
    pending: RefCell<Option<PendingRequest>>,
    deepest: Cell<u64>,
}

impl GuardHandler {
    /// Looks for the library; without a card there is nothing to guard.
    pub(super) fn new(
        usual: GuardSettings,
        user: Option<&EngineUser>,
        mut cards: impl Iterator<Item = CardKind>,
    ) -> Self {
        // DECISION: every engine on a CUDA card has guard preloaded for exact measurement. Guard only counts
        // by default, because an engine that the plan underestimated should survive. Memory that neither
        // guard nor the driver attributes to an engine counts as memory of other processes.
        let means = if cards.any(|kind| kind == CardKind::Cuda) {
            means(user)
        } else {
            Err("this machine has no CUDA card".to_owned())
        };
        Self {
            usual,
            means,
            warned: Cell::new(false),
            children: Cell::new(0),
            demands: RefCell::default(),
            guarded: RefCell::default(),
        }
    }

    /// True if processes can be started under guard, and can be sent requests through their pages.
    pub(super) fn is_available(&self) -> bool {
        self.means.is_ok()
    }

    pub(super) fn of(&self, run: RunId) -> Option<Rc<GuardedRun>> {
        self.guarded.borrow().get(&run).cloned()
    }

    /// Folders with the pages of engines without a request. They call no driver function, so they could not
    /// answer a question.
    pub(super) fn idle_pages(&self, runtime: &Runtime) -> Vec<PathBuf> {
        let idle = runtime.state.idle_runs().into_iter();
        idle.filter_map(|run| Some(self.of(run)?.pages.clone())).collect()
    }

    fn guard(&self, run: &EngineRun, cards: &[&Card], environment: &mut Environment) -> Option<GuardedRun> {
        let settings = options::settings_of(run, &self.usual);
        // An engine on the host makes no CUDA call.
        if cards.is_empty() || settings.mode() == GuardMode::Off {
            return None;
        }
        let (library, folder) = match &self.means {
            Ok(means) => means,
            Err(missing) => {
                if !self.warned.replace(true) {
                    tracing::warn!(
                        "engines run without guard, so their memory is neither counted nor \
                        limited: {missing}"
                    );
                }
                return None;
            }
        };
        // A number of its own for each child, because a model may be started again before its old folder is
        // removed.
        let child = self.children.replace(self.children.get() + 1);
        let part = folder.part(&child.to_string());
        let pages = part
            .inspect_err(|error| tracing::warn!("{} runs without guard: {error}", run.entry.name))
            .ok()?;
        let needs = self.needs(&settings, run, cards);
        let options = options::of_run(&settings, run, cards, &needs);
        let guard = Preload { library, options: &options, pages: &pages, trace: None };
        preload(environment, &guard);
        Some(GuardedRun {
            pages,
            writers: PageWriters::default(),
            settings,
            exchanged: needs.iter().find_map(|need| need.exchanged_cache().filter(|_| spills(run)).copied()),
            reporter: RefCell::default(),
            pending: RefCell::default(),
            deepest: Cell::new(0),
        })
    }

    /// Memory that the engine will request on these cards, each of which shows it at most its budget. Only
    /// engines that may spill need it: it decides which allocations go to the host.
    fn needs(&self, settings: &GuardSettings, run: &EngineRun, cards: &[&Card]) -> Vec<RequestedMemory> {
        let demand = self.demands.borrow().get(&run.model).cloned();
        let Some(demand) = demand.filter(|_| settings.is_to_be_planned()) else { return Vec::new() };
        let shown = cards.iter().map(|card| Card {
            free: settings
                .budget_for(Some(run.placement().on(&card.id)))
                .map_or(card.free, |most| most.min(card.free)),
            ..Card::clone(card)
        });
        demand.requested(&shown.collect::<Vec<_>>())
    }

    /// Sums over the run's processes for each card.
    pub(super) fn sums<T: Default + std::ops::AddAssign>(
        &self,
        runtime: &Runtime,
        run: &EngineRun,
        of: impl Fn(&CardSnapshot, u8) -> T,
    ) -> Vec<(CardId, T)> {
        let card_of = |card: &CardSnapshot| card_of(runtime, run, card);
        self.of(run.id).map_or_else(Vec::new, |guarded| guarded.sums(card_of, of))
    }

    fn occupied_by_pages(&self, runtime: &Runtime, run: &EngineRun) -> Vec<(CardId, Bytes)> {
        self.sums(runtime, run, |card, _| Bytes::new(card.allocated))
    }
}

impl Extension for GuardHandler {
    fn start(self: Rc<Self>, runtime: &Rc<Runtime>) {
        spawn_local(budgets::watch(self, Rc::clone(runtime)));
    }

    fn on_effect(&self, runtime: &Rc<Runtime>, effect: &SchedulerEffect) {
        match effect {
            SchedulerEffect::AnswerBudget { run, claim } => self.answer_budget(runtime, *run, *claim),
            SchedulerEffect::ClaimChanged { run, share } => self.follow_claim(runtime, *run, share),
            _ => {}
        }
    }

    fn surveyed(&self, model: ModelId, demand: &Arc<dyn MemoryModel>) {
        self.demands.borrow_mut().insert(model, Arc::clone(demand));
    }

    fn can_isolate(&self, run: &EngineRun, cards: &[&Card]) -> bool {
        let is_on = options::settings_of(run, &self.usual).mode() != GuardMode::Off;
        is_on && self.means.is_ok() && cards.iter().all(|card| card.identity().is_some())
    }

    fn prepare(&self, run: &EngineRun, cards: &[&Card], environment: &mut Environment) {
        let guarded = self.guard(run, cards, environment).map(Rc::new);
        let mut all = self.guarded.borrow_mut();
        // A second attempt of the same run, on another port, has a new folder.
        all.remove(&run.id);
        all.extend(guarded.map(|guarded| (run.id, guarded)));
    }

    fn loaded(&self, runtime: &Rc<Runtime>, run: &Rc<EngineRun>) {
        let Some(guarded) = self.of(run.id) else { return };
        let reporter = guarded.exchanged.as_ref().and_then(DepthReporter::new);
        // A sleeping engine is loaded again when it wakes.
        if let Some(reporter) = reporter.filter(|_| guarded.reporter.borrow().is_none()) {
            let pages = guarded.pages.clone();
            let task = spawn_local(depths::report(Rc::clone(runtime), Rc::clone(run), reporter, pages));
            guarded.reporter.replace(Some(task.abort_handle()));
        }
    }

    fn measured(&self, runtime: &Runtime, run: &EngineRun) -> Vec<(CardId, Bytes)> {
        self.occupied_by_pages(runtime, run)
    }

    fn spilled(&self, run: &EngineRun) -> Bytes {
        let pages = self.of(run.id).filter(|_| spills(run)).map_or_else(Vec::new, |guarded| guarded.live());
        pages.iter().flat_map(|page| page.cards()).map(|card| Bytes::new(card.spilled)).sum()
    }

    fn wants_tokens(&self, run: &EngineRun) -> bool {
        self.of(run.id).is_some()
    }

    fn answered(&self, runtime: &Runtime, run: &EngineRun, tokens: u64) {
        let Some(guarded) = self.of(run.id) else { return };
        if tokens < guarded.deepest.get().saturating_add(DEEPER) {
            return;
        }
        // Memory of a pool grows with the deepest answer only, so shallower ones are not read.
        guarded.deepest.set(tokens);
        let occupied = self.occupied_by_pages(runtime, run);
        let used: Bytes = occupied.into_iter().map(|(_, bytes)| bytes).sum();
        if !used.is_zero() {
            let run = run.id;
            runtime.submit(SchedulerEvent::GrowthObserved { run, tokens, used });
        }
    }

    fn last_refusal(&self, runtime: &Runtime, run: &EngineRun) -> Option<RefusedAllocation> {
        refusals::last(runtime, run, self.of(run.id)?.pages())
    }

    fn ended(&self, _: &Runtime, run: &EngineRun, _: &End) {
        self.guarded.borrow_mut().remove(&run.id);
    }
}

fn means(user: Option<&EngineUser>) -> Result<(PathBuf, OwnedFolder), String> {
    let library = plimsoll_probe::library::GUARD.find().map_err(|error| error.to_string())?;
    // The loader only prints that it leaves out what it cannot read, so that budgets would hold nothing.
    if let Some(user) = user
        && !user.can_read(&library).is_ok_and(|can| can)
    {
        let (name, library) = (&user.name, library.display());
        return Err(format!("user {name} cannot read {library}; move it where every user can"));
    }
    let folder = OwnedFolder::create(PAGES)
        .map_err(|error| format!("cannot create a folder for guard's shared-memory files: {error}"))?;
    Ok((library, folder))
}

impl GuardedRun {
    /// Pages of its processes that are still alive.
    fn live(&self) -> Vec<PageSnapshot> {
        let mut pages = read_pages(&self.pages);
        pages.retain(|page| self.writers.live(&self.pages, page.pid));
        pages
    }

    /// Sums over all its processes for each card; `of` gets the card's number in the process, too.
    fn sums<T: Default + std::ops::AddAssign>(
        &self,
        card_of: impl Fn(&CardSnapshot) -> Option<CardId>,
        of: impl Fn(&CardSnapshot, u8) -> T,
    ) -> Vec<(CardId, T)> {
        let mut sums: Vec<(CardId, T)> = Vec::new();
        let pages = self.live();
        for (card, number) in pages.iter().flat_map(|page| page.cards().iter().zip(0..)) {
            // A page lists every card that the process can see.
            let Some(id) = card_of(card).filter(|_| card.allocations > 0 || card.allocated > 0) else {
                continue;
            };
            match sums.iter_mut().find(|(other, _)| *other == id) {
                // Workers of one engine may share a card.
                Some((_, sum)) => *sum += of(card, number),
                None => sums.push((id, of(card, number))),
            }
        }
        sums
    }

    pub(super) fn pages(&self) -> &Path {
        &self.pages
    }
}

/// Removes the pages, which were read for the last time when the process ended.
impl Drop for GuardedRun {
    fn drop(&mut self) {
        if let Some(reporter) = self.reporter.take() {
            reporter.abort();
        }
        let _ = fs::remove_dir_all(&self.pages);
    }
}

/// The card that a page's entry stands for: by its identity or, if cards are described without one, the
/// run's only card.
fn card_of(runtime: &Runtime, run: &EngineRun, card: &CardSnapshot) -> Option<CardId> {
    let named = runtime.settings.cards().find(|known| known.identity() == Some(Uuid(card.uuid)));
    if let Some(named) = named {
        return Some(named.id.clone());
    }
    match runtime.settings.cards_of(run.placement())[..] {
        [only] if only.identity().is_none() => Some(only.id.clone()),
        _ => None,
    }
}

/// The processes behind pages, each as it was when its page was first seen.
///
/// A page holds a number only, and the number of a process that ended is given to another one. A new page of
/// the same number is another file.
#[derive(Debug, Default)]
struct PageWriters(RefCell<HashMap<(u32, u64), Option<MeasuredProcess>>>);

impl PageWriters {
    /// True while the process that wrote this page lives; a zombie holds no memory any more.
    fn live(&self, folder: &Path, pid: u32) -> bool {
        // A page is named after its process (`probe/guard.rs`).
        let file = fs::symlink_metadata(folder.join(format!("{pid}.page"))).map_or(0, |about| about.ino());
        let mut known = self.0.borrow_mut();
        let writer = known.entry((pid, file)).or_insert_with(|| MeasuredProcess::find(pid));
        writer.is_some_and(|writer| writer.lives())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_whose_process_has_ended_is_not_taken_for_the_next_one_of_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let page = folder.path().join(format!("{own}.page"));
        fs::write(&page, "").unwrap();
        let writers = PageWriters::default();
        assert!(writers.live(folder.path(), own));
        // The writer had ended when its page was first seen; the number is this process's now.
        let file = fs::metadata(&page).unwrap().ino();
        writers.0.borrow_mut().insert((own, file), None);
        assert!(!writers.live(folder.path(), own));
        // The process of that number now makes a page of its own.
        fs::write(folder.path().join("new"), "").unwrap();
        fs::rename(folder.path().join("new"), &page).unwrap();
        assert!(writers.live(folder.path(), own));
    }

    #[test]
    fn a_page_of_a_process_that_is_gone_stays_dead() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id();
        fs::write(folder.path().join(format!("{pid}.page")), "").unwrap();
        let writers = PageWriters::default();
        assert!(writers.live(folder.path(), pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!writers.live(folder.path(), pid));
    }
}
