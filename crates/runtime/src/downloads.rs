//! Adds models at run time, by download or derived from another model, and removes both.

mod fit;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::StatusCode;
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::FlagOrigin;
use plimsoll_hub::{
    Bounds, DeriveError, DerivedModel, DownloadPlan, DownloadProgress, DownloadedModel, Hub, HubError,
};
use plimsoll_model::Dialect;
use plimsoll_scheduler::ModelId;
use serde_json::{Value, json};

use super::Runtime;
use super::survey::Patience;
use plimsoll_route::{DownloadOrder, HttpProblem, ModelService};
use plimsoll_task::{NoAnswer, spawn_blocking, spawn_local};

/// Downloads at a time; each has a thread.
const MOST: usize = 4;
/// Time for one request to the hub, whose answer has 8 MiB at most.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two events of a download.
const EVERY: Duration = Duration::from_millis(250);

/// Failed downloads that displays show.
const MOST_FAILED: usize = 8;

/// Downloads by the name of the model.
#[derive(Debug, Default)]
pub(super) struct Downloads {
    running: RefCell<BTreeMap<String, Arc<RunningDownload>>>,
    /// Files of configured models that come from another host of the fleet: bytes that have come, and all.
    copies: RefCell<BTreeMap<String, (u64, u64)>>,
    /// The last that failed, with the cause, until they are asked for again.
    failed: RefCell<VecDeque<(String, String)>>,
    /// Notes of derived models are written and removed one at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Downloads {
    fn forget_failure(&self, name: &str) {
        self.failed.borrow_mut().retain(|(failed, _)| failed != name);
    }

    fn note_failure(&self, name: &str, error: &str) {
        self.forget_failure(name);
        let mut failed = self.failed.borrow_mut();
        if failed.len() >= MOST_FAILED {
            failed.pop_front();
        }
        failed.push_back((name.to_owned(), error.to_owned()));
    }

    /// Entries of models that are being downloaded, as in llama-server's `/v1/models`.
    pub(super) fn as_models(&self) -> Vec<Value> {
        let downloads = self.running.borrow();
        let entry = |(name, running): (&String, &Arc<RunningDownload>)| {
            json!({
                "id": name, "aliases": [], "tags": [], "object": "model", "owned_by": "llamacpp",
                "status": { "value": "downloading", "args": [], "progress": running.progress() },
                "source": "cache", "can_remove": true,
            })
        };
        downloads.iter().map(entry).collect()
    }

    /// Downloads in progress, for displays.
    pub(super) fn shown(&self) -> Vec<Value> {
        let running = self.running.borrow();
        let shown = running.iter().filter(|(_, running)| running.total.get().is_some());
        let failed = self.failed.borrow();
        let failed = failed.iter().map(|(name, error)| json!({ "name": name, "error": error }));
        let copies = self.copies.borrow();
        let copies = copies.iter().map(
            |(name, (done, total))| json!({ "name": name, "done": done, "total": total, "memory": null }),
        );
        shown.map(|(name, running)| running.shown(name)).chain(copies).chain(failed).collect()
    }
}

#[derive(Debug, Default)]
struct RunningDownload {
    cancelled: AtomicBool,
    /// Bytes of each file that have come, and of all of it.
    files: Mutex<BTreeMap<String, (u64, u64)>>,
    /// Bytes of all files.
    total: OnceLock<u64>,
    /// Planned memory of the model, in words.
    memory: OnceLock<String>,
}

impl RunningDownload {
    /// Notes the progress; false if the download is to end.
    fn take(&self, progress: DownloadProgress) -> bool {
        let DownloadProgress { address, done, total } = progress;
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(address, (done, total));
        !self.cancelled.load(Ordering::Relaxed)
    }

    /// `progress` of llama-server's router (`server-models.cpp: update_download_progress @ 0.5.0`).
    fn progress(&self) -> Value {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let each =
            files.iter().map(|(file, (done, total))| (file.clone(), json!({ "done": done, "total": total })));
        each.collect()
    }
}

impl RunningDownload {
    /// The download for displays, of which all files are one.
    fn shown(&self, name: &str) -> Value {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let done: u64 = files.values().map(|(done, _)| done).sum();
        json!({ "name": name, "done": done, "total": self.total.get(), "memory": self.memory.get() })
    }
}

impl Runtime {
    /// Begins the download of a model. Its headers are read first, so that it is one, and fits on the disk
    /// and on a card.
    pub(super) async fn begin_download(&self, order: &DownloadOrder) -> Result<Option<String>, HttpProblem> {
        let folder = self.downloads_folder()?;
        let name = &order.name;
        let running = Arc::<RunningDownload>::default();
        {
            let mut downloads = self.files.downloads.running.borrow_mut();
            if self.resolve(name).is_some() || downloads.contains_key(name) {
                return Err(refused("model_exists", format!("model '{name}' already exists")));
            }
            if downloads.len() >= MOST {
                let text = format!("{MOST} downloads are in progress; try again when one has ended");
                return Err(HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_downloads", text));
            }
            downloads.insert(name.clone(), Arc::clone(&running));
        }
        // A client that leaves meanwhile drops this future, and the place with it.
        let place = DownloadPlace { downloads: Rc::clone(&self.files.downloads), name: name.clone() };
        let requested = order.requested.clone();
        // The operator chose the hub, and with it the servers that it sends to.
        let public_only = order.public_only && order.is_address();
        let bounds = Bounds { patience: PATIENCE, public_only, ..Bounds::default() };
        let planned = spawn_blocking(move || {
            let hub = Hub::of_environment(None, bounds)?;
            hub.plan_download(&requested, Dialect::Ggml).map(|plan| (hub, plan))
        });
        let (hub, plan) = flat(planned.await).map_err(|error| refused("download_refused", error))?;
        let memory = fit::foresee(self.readings.surveyor(Patience::Kept), order).await?;
        self.files.downloads.forget_failure(name);
        let _ = running.total.set(plan.size().get());
        let words = memory.as_ref().map_or_else(String::new, |text| format!("; the model {text}"));
        tracing::info!("download {name}: started, {} in all{words}", plan.size());
        memory.clone().map(|text| running.memory.set(text));
        spawn_local(self.me().finish_download(place, (hub, plan), folder, running));
        Ok(memory)
    }

    async fn finish_download(
        self: Rc<Self>,
        place: DownloadPlace,
        (hub, plan): (Hub, DownloadPlan),
        folder: PathBuf,
        running: Arc<RunningDownload>,
    ) {
        let name = place.name.clone();
        let notify = || {
            self.reports.events.download(
                &name,
                "download_progress",
                json!({ "progress": running.progress() }),
            );
            self.board.touch();
        };
        let taker = Arc::clone(&running);
        let mut task = spawn_blocking(move || hub.download(&plan, &folder, &|progress| taker.take(progress)));
        let ended = loop {
            tokio::select! {
                ended = &mut task => break flat(ended),
                () = tokio::time::sleep(EVERY) => notify(),
            }
        };
        notify();
        drop(place);
        match ended {
            Ok(()) => {
                tracing::info!("download {name}: complete");
                // Whoever removes the model at once hears of its end first.
                let _turn = self.files.downloads.changing.lock().await;
                // Its failure is logged, and the model is served from the next reload on.
                let _ = self.reload().await;
                self.reports.events.download(&name, "download_finished", json!({}));
            }
            Err(error) => {
                tracing::warn!("download {name}: {error}");
                if !running.cancelled.load(Ordering::Relaxed) {
                    self.files.downloads.note_failure(&name, &error);
                }
                self.reports.events.download(&name, "download_failed", json!({ "error": error }));
            }
        }
        self.board.touch();
    }

    /// Notes a derived model, and serves it.
    pub(super) async fn note_derived(&self, model: DerivedModel) -> Result<(), HttpProblem> {
        let folder = self.downloads_folder()?;
        let _turn = self.files.downloads.changing.lock().await;
        let name = model.name.clone();
        // A client may write a derived model again, and no other.
        let is_taken = match self.resolve(&name) {
            Some(owner) => !self.has_derived(owner, &name),
            None => {
                self.refusal(&name).is_some() || self.files.downloads.running.borrow().contains_key(&name)
            }
        };
        if is_taken {
            return Err(refused("model_exists", format!("model '{name}' already exists")));
        }
        let of = model.of.clone();
        match spawn_blocking(move || model.note(&folder)).await {
            Ok(Ok(())) => {}
            Ok(Err(DeriveError::Disk(error))) => return Err(failed("not_noted", error.to_string())),
            Ok(Err(error)) => return Err(refused("model_refused", error.to_string())),
            Err(error) => return Err(failed("not_noted", error.to_string())),
        }
        self.reload().await?;
        if !self.resolve(&name).is_some_and(|owner| self.has_derived(owner, &name)) {
            // The configuration has changed meanwhile.
            return Err(refused("model_refused", format!("model '{of}' is no longer in the configuration")));
        }
        tracing::info!("{name} is now another name of {of}");
        Ok(())
    }

    fn has_derived(&self, model: ModelId, name: &str) -> bool {
        self.state.entry(model).filters.derived.contains_key(name)
    }

    /// Cancels the download of this name, or removes the downloaded or derived model.
    pub(super) async fn remove_download(&self, name: &str) -> Result<(), HttpProblem> {
        let folder = self.downloads_folder()?;
        if let Some(running) = self.files.downloads.running.borrow().get(name) {
            running.cancelled.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let _turn = self.files.downloads.changing.lock().await;
        let wanted = name.to_owned();
        let removed = spawn_blocking(move || {
            let mut models = DownloadedModel::all(&folder).into_iter();
            if let Some(model) = models.find(|model| model.name == wanted) {
                return Some(model.remove(&folder));
            }
            let mut derived = DerivedModel::all(&folder).into_iter();
            derived.find(|model| model.name == wanted).map(|model| model.remove(&folder))
        });
        match removed.await {
            Ok(Some(Ok(()))) => {}
            Ok(None) => {
                let text = format!("model '{name}' was not downloaded by this server, so it is not removed");
                return Err(refused("model_not_removable", text));
            }
            Ok(Some(Err(error))) => return Err(failed("not_removed", error.to_string())),
            Err(error) => return Err(failed("not_removed", error.to_string())),
        }
        tracing::info!("removed the model {name} from the folder of downloads");
        self.reload().await?;
        self.reports.events.download(name, "model_remove", json!({}));
        Ok(())
    }

    /// Shows how much of a model's files has come from another host of the fleet.
    pub fn show_copy(&self, name: &str, done: u64, total: u64) {
        self.files.downloads.copies.borrow_mut().insert(name.to_owned(), (done, total));
        self.board.touch();
    }

    pub fn end_copy(&self, name: &str) {
        self.files.downloads.copies.borrow_mut().remove(name);
        self.board.touch();
    }

    /// True if the model lies in the folder of downloads.
    pub(super) fn is_downloaded(&self, entry: &ConfiguredModel) -> bool {
        let folder = self.settings.serve.downloads.as_ref().map(|folder| folder.to_string_lossy());
        matches!((&*entry.origin, folder), (FlagOrigin::File { name, .. }, Some(folder)) if **name == *folder)
    }

    fn downloads_folder(&self) -> Result<PathBuf, HttpProblem> {
        self.settings.serve.downloads.clone().ok_or_else(|| {
            let text = "downloads are off; set `downloads` under [serve] to a folder, and restart the server";
            HttpProblem::new(StatusCode::NOT_IMPLEMENTED, "downloads_off", text)
        })
    }
}

/// The place of a download among those in progress.
struct DownloadPlace {
    downloads: Rc<Downloads>,
    name: String,
}

impl Drop for DownloadPlace {
    fn drop(&mut self) {
        self.downloads.running.borrow_mut().remove(&self.name);
    }
}

fn flat<T>(ended: Result<Result<T, HubError>, NoAnswer>) -> Result<T, String> {
    let done = ended.map_err(|error| error.to_string())?;
    done.map_err(|error| error.to_string().replace("\nhint: ", "; ").replace('\n', " "))
}

fn refused(code: &'static str, text: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, code, text)
}

fn failed(code: &'static str, text: String) -> HttpProblem {
    HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, code, text)
}
