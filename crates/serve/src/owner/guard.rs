//! Guard around engines: which child gets it, what its pages say, and what is answered.
//!
//! DECISION: every engine on a CUDA card is started under guard, which counts and refuses nothing unless the model's settings or
//! `serve`'s flags say so: what is measured is then exact, and an engine that the plan judged wrong lives. Where the library is
//! missing the engine runs as ever, and that is said once. Of what a page and the driver say about a run the larger is
//! believed: the driver names no processes in some containers, and a page knows nothing of what bypasses guard, nor, without a budget, of the
//! context. What neither names is a stranger's in the books, by the driver's word for what is free.
//!
//! A claim is what a run may take, so what is measured below it leaves it as it is: growth is still to come. A run whose
//! need nobody knew has its measure for its claim, as ever.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardId, CardKind, Demand, Share};
use plimsoll_config::{GuardMode, GuardWish, GuardedCard};
use plimsoll_doctor::Refused;
use plimsoll_launch::Environment;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::guard::{PAGES, Preload, answer_plea, preload, read_pages, set_budget};
use plimsoll_scheduler::{Event, ModelId, RunId};
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CardSnapshot, OomSnapshot, PageSnapshot as Snapshot};
use plimsoll_wire::tree::key;
use rustix::time::{ClockId, clock_gettime};

use super::Owner;
use super::run::Run;
use super::talk::label;

/// Time between two looks for pleas: whoever pleads stands still until it is answered.
const PLEAS: Duration = Duration::from_millis(50);
/// The same where nobody may plead.
const NO_PLEAS: Duration = Duration::from_secs(1);
/// A deeper answer is worth a look only by so many tokens.
const DEEPER: u64 = 256;

/// What it takes to guard a child.
#[derive(Debug)]
pub(super) struct Guard {
    usual: GuardWish,
    /// The library and the folder of the pages, or what is missing.
    means: Result<(PathBuf, OwnedFolder), String>,
    /// What is missing has been said.
    told: Cell<bool>,
    children: Cell<u64>,
    /// What models need, for those that may spill.
    demands: RefCell<HashMap<ModelId, Arc<dyn Demand>>>,
}

/// A child under guard.
#[derive(Debug)]
pub(super) struct Guarded {
    pages: PathBuf,
    wish: GuardWish,
    plea: RefCell<Option<Plea>>,
    deepest: Cell<u64>,
}

/// A plea that the scheduler has and has not answered.
#[derive(Clone, Debug)]
struct Plea {
    pid: u32,
    number: u64,
    card: CardId,
}

impl Guard {
    /// Looks for what is needed; with no card there is nothing to guard.
    pub(super) fn new(usual: GuardWish, mut cards: impl Iterator<Item = CardKind>) -> Self {
        let means = match cards.any(|kind| kind == CardKind::Cuda) {
            true => means(),
            false => Err("there is no card".to_owned()),
        };
        Self {
            usual,
            means,
            told: Cell::new(false),
            children: Cell::new(0),
            demands: RefCell::default(),
        }
    }

    /// Whether there can be pages, ours or others'.
    pub(super) fn is_there(&self) -> bool {
        self.means.is_ok()
    }

    /// Remembers what a model needs, until it is surveyed again.
    pub(super) fn surveyed(&self, model: ModelId, demand: Arc<dyn Demand>) {
        self.demands.borrow_mut().insert(model, demand);
    }

    /// Puts guard into the environment of a child that gets these cards; `None` if it goes without.
    pub(super) fn prepare(
        &self,
        run: &Run,
        cards: &[&Card],
        environment: &mut Environment,
    ) -> Option<Guarded> {
        let wish = run.entry.guard.or(&self.usual);
        if cards.is_empty() || wish.mode() == GuardMode::Off {
            return None;
        }
        let (library, folder) = match &self.means {
            Ok(means) => means,
            Err(missing) => {
                if !self.told.replace(true) {
                    tracing::warn!("engines run unguarded: {missing}");
                }
                return None;
            }
        };
        let child = self.children.replace(self.children.get() + 1);
        let part = folder.part(&child.to_string());
        let pages = part
            .inspect_err(|error| tracing::warn!("{} runs unguarded: {error}", run.entry.name))
            .ok()?;
        let options = self.options(&wish, run, cards);
        let guard = Preload {
            library,
            options: &options,
            pages: &pages,
            trace: None,
        };
        preload(environment, &guard);
        Some(Guarded {
            pages,
            wish,
            plea: RefCell::default(),
            deepest: Cell::new(0),
        })
    }

    /// A card that is only described has no UUID to name it by; then one budget holds for every card.
    fn options(&self, wish: &GuardWish, run: &Run, cards: &[&Card]) -> plimsoll_wire::options::GuardOptions {
        let placement = run.placement();
        let budget = |card: &Card| wish.budget_for(Some(placement.on(&card.id)));
        let needs = match wish.is_to_be_planned() {
            true => self.needs(run.model, cards, budget),
            false => Vec::new(),
        };
        let need = |card: &Card| needs.iter().find(|(id, _)| *id == card.id).map(|(_, need)| *need);
        let named = cards.iter().filter_map(|card| {
            Some(GuardedCard {
                uuid: Uuid::read(card.uuid.as_deref()?)?,
                budget: budget(card),
                need: need(card),
            })
        });
        let named: Vec<GuardedCard> = named.collect();
        let mut options = wish.options(&named);
        if named.len() < cards.len() {
            let most = cards.iter().map(|card| placement.on(&card.id)).max();
            options.budget = wish.budget_for(most).map(Bytes::get);
            options.need = match cards {
                [card] => need(card).map(Bytes::get),
                _ => None,
            };
        }
        options
    }

    /// What the engine will ask of these cards, each of which shows it no more than its budget.
    fn needs(
        &self,
        model: ModelId,
        cards: &[&Card],
        budget: impl Fn(&Card) -> Option<Bytes>,
    ) -> Vec<(CardId, Bytes)> {
        let demand = self.demands.borrow().get(&model).cloned();
        let shown = cards.iter().map(|card| Card {
            free: budget(card).map_or(card.free, |budget| budget.min(card.free)),
            ..Card::clone(card)
        });
        let shown: Vec<Card> = shown.collect();
        demand.map_or_else(Vec::new, |demand| demand.asked(&shown))
    }
}

fn means() -> Result<(PathBuf, OwnedFolder), String> {
    let library = plimsoll_probe::library::GUARD
        .find()
        .map_err(|error| error.to_string())?;
    let folder = OwnedFolder::create(PAGES).map_err(|error| format!("no folder for its pages: {error}"))?;
    Ok((library, folder))
}

impl Guarded {
    /// The pages of its processes, those that are still there.
    fn live(&self) -> Vec<Snapshot> {
        let mut pages = read_pages(&self.pages);
        pages.retain(|page| is_alive(page.pid));
        pages
    }

    /// Of what is held on each card the sum over its processes; `of` is told the number that the card has there.
    fn sums<T: Default + std::ops::AddAssign>(
        &self,
        card_of: impl Fn(&CardSnapshot) -> Option<CardId>,
        of: impl Fn(&CardSnapshot, u8) -> T,
    ) -> Vec<(CardId, T)> {
        let mut sums: Vec<(CardId, T)> = Vec::new();
        let pages = self.live();
        for (card, number) in pages.iter().flat_map(|page| page.cards().iter().zip(0..)) {
            let Some(id) = card_of(card).filter(|_| card.allocations > 0 || card.allocated > 0) else {
                continue;
            };
            match sums.iter_mut().find(|(other, _)| *other == id) {
                Some((_, sum)) => *sum += of(card, number),
                None => sums.push((id, of(card, number))),
            }
        }
        sums
    }

    pub(super) fn pages(&self) -> &Path {
        &self.pages
    }

    /// The budget follows the claim.
    fn is_claimed(&self) -> bool {
        self.wish.mode() == GuardMode::Budget && self.wish.budget.is_none()
    }
}

/// The pages are read for the last time when the child is gone.
impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.pages);
    }
}

/// Looks for pleas for as long as the daemon lives.
pub(super) async fn watch(owner: Rc<Owner>) {
    loop {
        let pleaders = owner.guarded(|guarded| guarded.wish.reclaim == Some(true));
        for (run, guarded) in &pleaders {
            owner.hear(run, guarded);
        }
        let pause = if pleaders.is_empty() { NO_PLEAS } else { PLEAS };
        tokio::time::sleep(pause).await;
    }
}

impl Owner {
    fn guarded(&self, which: impl Fn(&Guarded) -> bool) -> Vec<(Rc<Run>, Rc<Guarded>)> {
        let state = self.state.borrow();
        let guarded = state
            .runs
            .values()
            .filter_map(|run| Some((Rc::clone(run), run.guarded()?)));
        guarded.filter(|(_, guarded)| which(guarded)).collect()
    }

    /// What the pages say that the run holds of each card.
    pub(super) fn held_by_pages(&self, run: &Run) -> Vec<(CardId, Bytes)> {
        self.sums(run, |card, _| Bytes::new(card.allocated))
    }

    pub(super) fn sums<T: Default + std::ops::AddAssign>(
        &self,
        run: &Run,
        of: impl Fn(&CardSnapshot, u8) -> T,
    ) -> Vec<(CardId, T)> {
        let card_of = |card: &CardSnapshot| self.card_of(run, card);
        run.guarded()
            .map_or_else(Vec::new, |guarded| guarded.sums(card_of, of))
    }

    /// The card that a page means: by its UUID, or the run's only one where cards are described without.
    fn card_of(&self, run: &Run, card: &CardSnapshot) -> Option<CardId> {
        let named = self.terms.cards().find(|known| {
            let uuid = known.uuid.as_deref().and_then(Uuid::read);
            uuid == Some(Uuid(card.uuid))
        });
        if let Some(named) = named {
            return Some(named.id.clone());
        }
        let mut cards = run.placement().cards();
        let only = cards.next().filter(|_| cards.next().is_none())?;
        let nameless = self.terms.cards().find(|known| known.id == *only)?.uuid.is_none();
        nameless.then(|| only.clone())
    }

    /// Learns from an answer of this depth.
    pub(super) fn deepened(&self, run: &Run, tokens: u64) {
        let Some(guarded) = run.guarded() else { return };
        if tokens < guarded.deepest.get().saturating_add(DEEPER) {
            return;
        }
        guarded.deepest.set(tokens);
        let used: Bytes = self.held_by_pages(run).into_iter().map(|(_, bytes)| bytes).sum();
        if !used.is_zero() {
            self.submit(Event::Deepened {
                run: run.id,
                tokens,
                used,
            });
        }
    }

    /// Hands a plea to the scheduler; one at a time.
    fn hear(&self, run: &Run, guarded: &Guarded) {
        if guarded.plea.borrow().is_some() {
            return;
        }
        let pages = guarded.live();
        let pleading = pages.iter().find_map(|page| Some((page, page.plea?)));
        let Some((page, (number, index, asked))) = pleading else {
            return;
        };
        let on_page = usize::try_from(index)
            .ok()
            .and_then(|index| page.cards().get(index));
        let Some((snapshot, card)) = on_page.and_then(|card| Some((card, self.card_of(run, card)?))) else {
            let _ = answer_plea(&guarded.pages, page.pid, number);
            return;
        };
        let held = self.held_by_pages(run);
        let held = held
            .into_iter()
            .find(|(id, _)| *id == card)
            .map(|(_, bytes)| bytes);
        let asked = Bytes::new(asked);
        guarded.plea.replace(Some(Plea {
            pid: page.pid,
            number,
            card: card.clone(),
        }));
        self.submit(Event::Pleaded {
            run: run.id,
            card,
            asked,
            wanted: held.unwrap_or(Bytes::new(snapshot.allocated)) + asked,
        });
    }

    /// Carries the scheduler's answer to the process that pleaded.
    pub(super) fn answer_plea(&self, run: RunId, claim: Option<Bytes>) {
        let run = self.state.borrow().runs.get(&run).cloned();
        let Some((run, guarded)) = run.and_then(|run| Some((Rc::clone(&run), run.guarded()?))) else {
            return;
        };
        let Some(plea) = guarded.plea.take() else { return };
        if let Some(claim) = claim.filter(|_| guarded.is_claimed()) {
            self.set_budgets(&run, &guarded, &plea.card, claim);
        }
        // Who died meanwhile needs no answer.
        let _ = answer_plea(&guarded.pages, plea.pid, plea.number);
    }

    /// What a guarded engine may take of a card is what it may take by the books.
    pub(super) fn follow_claim(&self, run: RunId, share: &Share) {
        let run = self.state.borrow().runs.get(&run).cloned();
        let guarded = run.and_then(|run| Some((Rc::clone(&run), run.guarded()?)));
        if let Some((run, guarded)) = guarded.filter(|(_, guarded)| guarded.is_claimed()) {
            self.set_budgets(&run, &guarded, &share.card, share.bytes);
        }
    }

    /// The claim is the budget of all its processes together.
    fn set_budgets(&self, run: &Run, guarded: &Guarded, card: &CardId, claim: Bytes) {
        let pages = guarded.live();
        let seen = pages.iter().flat_map(|page| page.cards().iter().zip(0..));
        let on_card = seen.filter(|(seen, _)| self.card_of(run, seen).as_ref() == Some(card));
        let keys: BTreeSet<u64> = on_card.map(|(seen, number)| key(seen.uuid, number)).collect();
        for key in keys {
            let _ = set_budget(&guarded.pages, key, claim);
        }
    }

    /// The last that guard refused the run, with who else holds the card.
    pub(super) fn last_refusal(&self, run: &Run) -> Option<Refused> {
        let guarded = run.guarded()?;
        let pages = read_pages(guarded.pages());
        let count = pages.iter().map(|page| page.oom_count).sum();
        let all = pages
            .iter()
            .flat_map(|page| page.ooms().map(move |oom| (page, oom)));
        let (page, oom) = all.max_by_key(|(_, oom)| oom.time)?;
        let card = page.cards().get(usize::try_from(oom.card).ok()?)?;
        Some(self.refused(run, card, oom, count))
    }

    fn refused(&self, run: &Run, card: &CardSnapshot, oom: &OomSnapshot, count: u64) -> Refused {
        let id = self.card_of(run, card);
        let cards: Vec<_> = self.terms.cards().collect();
        let named = id.as_ref().map(|id| label(&cards, id));
        let snapshot = self.state.borrow().scheduler.snapshot(self.now());
        let growth = snapshot.models.iter().find(|model| model.id == run.model);
        Refused {
            why: oom.refusal,
            card: named.unwrap_or_else(|| Uuid(card.uuid).to_string()),
            asked: Bytes::new(oom.asked),
            allocated: Bytes::new(oom.allocated),
            budget: oom.budget.map(Bytes::new),
            free: Bytes::new(oom.free),
            count,
            ago: since(oom.time),
            growth: growth.and_then(|model| Some(model.growth?.bytes_per_token)),
            neighbours: id.map_or_else(Vec::new, |id| neighbours(&snapshot, run.id, &id)),
        }
    }
}

/// Who else holds how much of the card: runs by name, strangers together.
fn neighbours(snapshot: &plimsoll_scheduler::Snapshot, run: RunId, card: &CardId) -> Vec<(String, Bytes)> {
    let Some(card) = snapshot.cards.iter().find(|view| view.id == *card) else {
        return Vec::new();
    };
    let runs = card.holders.iter().filter(|holder| holder.run != run);
    let runs = runs.map(|holder| (holder.model.clone(), holder.measured.unwrap_or(holder.claim)));
    let strangers = [("other programs".to_owned(), card.foreign)];
    runs.chain(strangers)
        .filter(|(_, bytes)| !bytes.is_zero())
        .collect()
}

/// How long ago this moment of the monotonic clock was, in nanoseconds.
fn since(moment: u64) -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos).saturating_sub(Duration::from_nanos(moment))
}

/// A zombie holds nothing any more.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
