//! Saves the prompt caches (slots) of a llama-server before its model is stopped, and restores them after its
//! next load.
//!
//! DECISION: warm swaps are off unless `warm` sets a size limit, because the files hold users' prompts. Then
//! measurements decide whether a save pays. The time to save and restore a token comes from earlier swaps. It
//! must be less than the time to compute the token, which the engine reports. A save that takes longer than
//! half of that is aborted together with the engine, which ends anyway. The engine's own cache of idle
//! prompts (`-cram`) is not saved.

mod engine;
mod key;
mod store;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Order, counted};
use plimsoll_config::ConfiguredModel;
use plimsoll_scheduler::ModelId;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use self::engine::EngineSlot;
use self::store::{SavedSlot, SlotFileError, SlotStore};
use super::private_folder::RemovedFolder;
use super::run::EngineRun;
use plimsoll_route::{PromptPrefixes, RequestPrompt, Upstream};
use plimsoll_task::{spawn_blocking, spawn_local};

/// A prompt that takes less time than this is computed anew.
const LEAST: Duration = Duration::from_millis(250);
/// Prompts of a model that are remembered.
const PROMPTS: usize = 8;
/// Interval at which the size of a file is looked at while an engine writes it.
const LOOK: Duration = Duration::from_millis(20);
/// Time for the files of the run before, which may still be digested.
const FILES_WITHIN: Duration = Duration::from_secs(5);

/// Times to save and to restore a token, as measured last, and the least time to compute one.
///
/// DECISION: an engine that has restored a slot computes only the ends of its prompts, and each of those few
/// tokens takes much longer than one of a whole prompt.
#[derive(Clone, Copy, Debug, Default)]
struct SlotCosts {
    save: Duration,
    restore: Duration,
    compute: Option<Duration>,
}

/// Saved slots of all models.
#[derive(Debug, Default)]
pub(super) struct WarmSlots {
    store: Option<Arc<SlotStore>>,
    /// Held by the task that works on the files.
    files: Mutex<()>,
    /// Prompts that have arrived since the last run of a model was saved.
    prompts: RefCell<HashMap<ModelId, VecDeque<PromptPrefixes>>>,
    costs: RefCell<HashMap<String, SlotCosts>>,
    next: Cell<u64>,
    /// Models with a log line on why their slots are not saved.
    reported: RefCell<HashSet<ModelId>>,
}

/// The slots of one run: its key, and the folder in which its engine writes and reads.
#[derive(Debug)]
pub(super) struct RunSlots {
    key: String,
    folder: RemovedFolder,
    /// Source from which each slot was restored.
    restored: RefCell<HashMap<u32, SavedSlot>>,
}

impl RunSlots {
    /// Flags that let the engine save slots and report what prompts cost.
    pub(super) fn flags(&self) -> [String; 3] {
        ["--slot-save-path".to_owned(), self.folder.0.to_string_lossy().into_owned(), "--metrics".to_owned()]
    }
}

/// The user's folder of saved slots.
fn folder() -> io::Result<PathBuf> {
    let base = plimsoll_file::user_base("XDG_CACHE_HOME", ".cache");
    let base = base.ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    Ok(base.join("plimsoll/slots"))
}

impl WarmSlots {
    /// Opens the folder; without a bound, nothing is saved. `confined`: engines run as another user.
    pub(super) fn new(bound: Bytes, confined: bool) -> Self {
        let open = || {
            if confined {
                // Files of another user would have to be trusted, or copied.
                return Err(io::Error::other("engines run as another user (`engine-user`)"));
            }
            SlotStore::open(&folder()?, bound)
        };
        // A folder that was in use stays within its bound, and zero empties none: the user may come back.
        let store = (!bound.is_zero()).then(open).and_then(|store| {
            store
                .inspect_err(|error| {
                    tracing::warn!("`warm` is off, because prompt caches cannot be saved: {error}")
                })
                .ok()
        });
        Self { store: store.map(Arc::new), ..Self::default() }
    }

    /// Notes a prompt, by which a saved slot is recognised.
    pub(super) fn arrived(&self, model: ModelId, prompt: &RequestPrompt<'_>) {
        if self.store.is_some()
            && let Some(prefixes) = prompt.prefixes()
        {
            let mut prompts = self.prompts.borrow_mut();
            let prompts = prompts.entry(model).or_default();
            prompts.push_front(prefixes);
            prompts.truncate(PROMPTS);
        }
    }

    /// True if a waiting prompt continues one of these, or if none waits.
    fn is_likely(&self, model: ModelId, saved: &SavedSlot) -> bool {
        let prompts = self.prompts.borrow();
        let waiting = prompts.get(&model).filter(|waiting| !waiting.is_empty());
        let continues = |waiting: &PromptPrefixes| saved.prompts.iter().any(|saved| waiting.continues(saved));
        waiting.is_none_or(|waiting| waiting.iter().any(continues))
    }

    fn costs(&self, key: &str) -> SlotCosts {
        self.costs.borrow().get(key).copied().unwrap_or_default()
    }

    /// The least time that a token of a prompt has taken.
    fn least(&self, of_run: &RunSlots, measured: Duration) -> Duration {
        let restored = of_run.restored.borrow();
        let before = restored.values().map(|slot| per(slot.prompt(), slot.tokens));
        let known = before.chain(self.costs(&of_run.key).compute);
        let least = known.fold(measured, Duration::min);
        self.learn(&of_run.key, |costs| costs.compute = Some(least));
        least
    }

    fn learn(&self, key: &str, learn: impl FnOnce(&mut SlotCosts)) {
        learn(self.costs.borrow_mut().entry(key.to_owned()).or_default());
    }

    /// The folder for a run; `None` where its slots cannot be saved, which is reported once for each model.
    pub(super) async fn of_run(
        &self,
        model: ModelId,
        entry: &Rc<ConfiguredModel>,
        program: Option<PathBuf>,
        (inherited, context): (&[(std::ffi::OsString, std::ffi::OsString)], Option<u64>),
    ) -> Option<Rc<RunSlots>> {
        let store = Arc::clone(self.store.as_ref().filter(|_| entry.warm)?);
        let (its, inherited) = (ConfiguredModel::clone(entry), inherited.to_vec());
        let number = self.next.replace(self.next.get() + 1);
        let created = spawn_blocking(move || {
            let key = key::slot_key(&its, program.as_deref(), &inherited, context).map_err(str::to_owned)?;
            let folder = store.part(&number.to_string()).map_err(|error| error.to_string())?;
            Ok::<_, String>(RunSlots { key, folder: RemovedFolder(folder), restored: RefCell::default() })
        });
        let created = created.await.unwrap_or_else(|error| Err(error.to_string()));
        let reported = |why: &String| {
            if self.reported.borrow_mut().insert(model) {
                tracing::info!("{}: prompt caches are not saved: {why}", entry.name);
            }
        };
        created.inspect_err(reported).ok().map(Rc::new)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SlotStore) -> T + Send + 'static,
    ) -> Option<T> {
        let store = Arc::clone(self.store.as_ref()?);
        spawn_blocking(move || work(&store)).await.ok()
    }

    /// Keeps the folder within its bound while an engine writes a file; returns when the file alone passes
    /// it.
    async fn overflow(&self, file: &Path) {
        loop {
            sleep(LOOK).await;
            let written = fs::symlink_metadata(file).map_or(0, |about| about.len());
            let room = self.blocking(move |store| store.make_room(Bytes::new(written))).await;
            if matches!(room, Some(Ok(false))) {
                return;
            }
        }
    }
}

/// A file that an engine has written, and its description.
type WrittenSlot = (PathBuf, SavedSlot, Option<SavedSlot>);

impl WarmSlots {
    /// Restores the slots that the waiting requests, or the last ones, are likely to need.
    pub(super) async fn restore(&self, run: &EngineRun, of_run: &RunSlots, engine: &Upstream) {
        // The files of the run before may still be digested.
        let Ok(_files) = timeout(FILES_WITHIN, self.files.lock()).await else { return };
        let key = of_run.key.clone();
        let Some((saved, refused)) = self.blocking(move |store| store.list(&key)).await else { return };
        for (path, error) in refused {
            tracing::warn!("{}: removed the saved prompt cache {}: {error}", run.entry.name, path.display());
        }
        let pays = |slot: &SavedSlot| {
            self.is_likely(run.model, slot)
                && times(self.costs(&of_run.key).restore, slot.tokens) < slot.prompt()
        };
        let mut saved = saved.into_iter().filter(pays).peekable();
        if saved.peek().is_none() {
            return;
        }
        let slots = engine::slots(engine).await.unwrap_or_default();
        for (slot, saved) in slots.iter().zip(saved) {
            self.restore_slot(run, of_run, engine, slot.id, saved).await;
        }
    }

    async fn restore_slot(
        &self,
        run: &EngineRun,
        of_run: &RunSlots,
        engine: &Upstream,
        id: u32,
        saved: SavedSlot,
    ) {
        let (name, begun) = (&run.entry.name, Instant::now());
        let file = format!("restore-{id}");
        let (into, its) = (of_run.folder.0.join(&file), saved.clone());
        let staged = self.blocking(move |store| store.stage(&its, &into)).await;
        let restored = match staged {
            Some(Ok(())) => match timeout(saved.prompt(), engine::restore(engine, id, &file)).await {
                Ok(restored) => restored.ok_or(SlotFileError::Refused),
                // It goes on and may end well; the slot is only too slow.
                Err(_) => Ok(0),
            },
            Some(Err(error)) => Err(error),
            None => return,
        };
        let spent = begun.elapsed();
        let _ = fs::remove_file(of_run.folder.0.join(&file));
        if saved.tokens > 0 {
            self.learn(&of_run.key, |costs| costs.restore = per(spent, saved.tokens));
        }
        let its = saved.clone();
        match restored {
            Ok(0) => tracing::info!(
                "{name}: the prompt cache of slot {id} was not restored within {:.1} s",
                spent.as_secs_f64()
            ),
            Ok(tokens) => {
                tracing::info!(
                    "{name}: restored {} of the prompt cache of slot {id} in {:.2} s; computing them takes \
                        about {:.1} s",
                    counted(tokens, "token"),
                    spent.as_secs_f64(),
                    saved.prompt().as_secs_f64()
                );
                self.blocking(move |store| store.touch(&its)).await;
                of_run.restored.borrow_mut().insert(id, saved);
            }
            Err(error) => {
                tracing::warn!("{name}: a saved prompt cache was removed: {error}");
                self.blocking(move |store| store.remove(&its)).await;
            }
        }
    }

    /// Saves the slots that are worth it. Returns false if one takes longer: the engine is then to be killed,
    /// because nothing else makes it leave off.
    pub(super) async fn save(
        self: &Rc<Self>,
        run: &EngineRun,
        of_run: &Rc<RunSlots>,
        engine: &Upstream,
        limit: Duration,
    ) -> bool {
        let deadline = Instant::now() + limit;
        let prompts = self.prompts.borrow_mut().remove(&run.model).unwrap_or_default();
        let Some(each) = engine::time_per_token(engine).await else { return true };
        let each = self.least(of_run, each);
        let Some(mut slots) = engine::slots(engine).await else { return true };
        slots.retain(|slot| !slot.is_processing && slot.tokens > 0);
        // The most expensive first, should there be no time for all.
        slots.order_by_key(|slot| std::cmp::Reverse(slot.tokens));
        let mut written: Vec<WrittenSlot> = Vec::new();
        let mut in_time = true;
        for slot in slots {
            let prompt = times(each, slot.tokens);
            let costs = self.costs(&of_run.key);
            let limit = (prompt / 2).min(deadline.saturating_duration_since(Instant::now()));
            let expected = times(costs.save, slot.tokens);
            if prompt < LEAST || expected > limit || expected + times(costs.restore, slot.tokens) > prompt {
                tracing::debug!(
                    "{}: the prompt cache of slot {} is not saved, because computing the prompt again is \
                        about as fast",
                    run.entry.name,
                    slot.id
                );
                continue;
            }
            match self.save_slot(run, of_run, engine, slot, limit).await {
                Ok(Some((path, tokens))) => {
                    let ms = u64::try_from(times(each, tokens).as_millis()).unwrap_or(u64::MAX);
                    let saved = SavedSlot::new(&of_run.key, tokens, ms, prompts.iter().cloned().collect());
                    let before = of_run.restored.borrow_mut().remove(&slot.id);
                    written.push((path, saved, before.filter(|before| before.tokens <= tokens)));
                }
                Ok(None) => {}
                Err(()) => {
                    in_time = false;
                    break;
                }
            }
        }
        if !written.is_empty() {
            // The engine need not wait for the digests.
            spawn_local(adopt(Rc::clone(self), run.entry.name.clone(), Rc::clone(of_run), written));
        }
        in_time
    }

    /// Saves one slot; the error is a save that has to be broken off.
    async fn save_slot(
        &self,
        run: &EngineRun,
        of_run: &RunSlots,
        engine: &Upstream,
        slot: EngineSlot,
        limit: Duration,
    ) -> Result<Option<(PathBuf, u64)>, ()> {
        let (name, file, begun) = (&run.entry.name, format!("save-{}", slot.id), Instant::now());
        let path = of_run.folder.0.join(&file);
        let saved = tokio::select! {
            saved = engine::save(engine, slot.id, &file) => saved,
            () = sleep(limit) => {
                // At least so long; the next time it is known beforehand.
                self.learn(&of_run.key, |costs| costs.save = per(begun.elapsed() * 2, slot.tokens));
                let limit = limit.as_secs_f64();
                tracing::info!(
                    "{name}: the prompt cache of slot {} was not saved within {limit:.1} s",
                    slot.id
                );
                return Err(());
            }
            () = self.overflow(&path) => {
                tracing::info!(
                    "{name}: the prompt cache of slot {} is not saved, because it takes more disk space than \
                        `warm` allows",
                    slot.id
                );
                self.learn(&of_run.key, |costs| costs.save = Duration::MAX);
                return Err(());
            }
        };
        let Some(tokens) = saved.filter(|tokens| *tokens > 0) else {
            tracing::debug!("{name}: the engine did not save the prompt cache of slot {}", slot.id);
            let _ = fs::remove_file(&path);
            return Ok(None);
        };
        let spent = begun.elapsed();
        self.learn(&of_run.key, |costs| costs.save = per(spent, tokens));
        let saved = counted(tokens, "token");
        tracing::info!("{name}: saved {saved} of slot {} in {:.2} s", slot.id, spent.as_secs_f64());
        Ok(Some((path, tokens)))
    }
}

/// Takes the files of a run over into the folder, one run after the other.
async fn adopt(warm: Rc<WarmSlots>, name: String, of_run: Rc<RunSlots>, written: Vec<WrittenSlot>) {
    let _files = warm.files.lock().await;
    for (path, saved, before) in written {
        let adopted = warm.blocking(move |store| {
            let adopted = store.adopt(&path, saved);
            // The source of the slot is a part of its content now.
            if let (Ok(slot), Some(before)) = (&adopted, &before)
                && !store.is_same(slot, before)
            {
                store.remove(before);
            }
            adopted
        });
        if let Some(Err(error)) = adopted.await {
            tracing::warn!("{name}: a saved prompt cache is lost: {error}");
        }
    }
    drop(of_run);
}

/// Time for so many tokens.
fn times(each: Duration, tokens: u64) -> Duration {
    let nanos = each.as_nanos().saturating_mul(u128::from(tokens));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Time for each of so many tokens, of which there is at least one.
fn per(time: Duration, tokens: u64) -> Duration {
    let nanos = time.as_nanos() / u128::from(tokens.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_restored_prompts_do_not_make_a_token_dearer() {
        let (warm, second) = (WarmSlots::default(), Duration::from_secs(1));
        let run = |restored: &[SavedSlot]| RunSlots {
            key: "key".to_owned(),
            folder: RemovedFolder(PathBuf::new()),
            restored: RefCell::new((0..).zip(restored.iter().cloned()).collect()),
        };
        let saved = SavedSlot::new("key", 1000, 2000, Vec::new());
        assert_eq!(warm.least(&run(&[saved]), second), Duration::from_millis(2), "as the prompt took");
        assert_eq!(warm.least(&run(&[]), second), Duration::from_millis(2), "it was known before");
        assert_eq!(warm.least(&run(&[]), Duration::from_millis(1)), Duration::from_millis(1));
    }
}
