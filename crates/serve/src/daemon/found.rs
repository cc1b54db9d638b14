//! Watches model folders: serves a new file once it is complete, and stops serving a removed one.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use plimsoll_import::{Places, Settled};
use plimsoll_runtime::Runtime;
use plimsoll_task::spawn_blocking;
use tokio::time::sleep;

/// Time between two looks.
///
/// DECISION: the folders are listed again and again, not watched by inotify. That works on network disks and
/// in containers too, and a file is not opened before it has kept still for a while in any case.
const EVERY: Duration = Duration::from_secs(2);

/// A configuration, and the places whose models are served beside its own.
#[derive(Clone, Debug)]
pub(super) struct WatchedConfig {
    pub(super) path: PathBuf,
    pub(super) places: Option<Places>,
    /// The files there when they were read.
    pub(super) settled: Settled,
}

/// Reads the configuration again when the files change; never ends.
pub(super) async fn watch(runtime: Rc<Runtime>, config: WatchedConfig) {
    let WatchedConfig { path, places, mut settled } = config;
    let Some(places) = places else { return std::future::pending().await };
    loop {
        sleep(EVERY).await;
        let places = places.clone();
        // A disk may hang; the one thread that serves must not.
        let Ok(now) = spawn_blocking(move || places.settled(SystemTime::now())).await else { continue };
        if now != settled {
            settled = now;
            // A failure is logged, and changes nothing.
            let _ = runtime.read_config(&path).await;
        }
    }
}
