//! Plans remote models named by flags (`-hf`, `--model-url`) before the engine has downloaded them.
//!
//! Fetched headers are kept for later plans.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_config::ConfiguredModel;
use plimsoll_flags::{ModelParams, Options, RemoteSource};
use plimsoll_hub::{Bounds, Hub, HubError, ModelPlace};
use plimsoll_model::{Dialect, Model};
use plimsoll_probe::headers::{ReadModelError, read_model};

use super::named;

/// Time for one request: llama-server asks the same server, and fails if it does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
// After a server that cannot be reached none is asked for a while, so that many models without a network cost
// one wait.
/// Time without a question after a server could not be reached.
const REST: Duration = Duration::from_secs(30);
/// Sets of models whose headers are kept.
const KEPT: usize = 256;

/// Models as their headers describe them.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteModels {
    pub(super) main: Option<Model>,
    pub(super) draft: Option<Model>,
    pub(super) projector: Option<Model>,
}

/// Inputs of a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RemoteKey {
    sources: [Option<RemoteSource>; 3],
    file: Option<String>,
    projects: bool,
    is_ggml: bool,
    hub: String,
}

#[derive(Debug, Default)]
struct Fetched {
    models: HashMap<RemoteKey, Arc<RemoteModels>>,
    /// The end of the rest after a server that could not be reached.
    rest: Option<Instant>,
    /// Models whose headers could not be fetched, with the time of the log line.
    reported: HashMap<String, Instant>,
}

impl Fetched {
    /// True if a failure of the model was not logged a moment ago.
    fn is_news(&mut self, model: &str, now: Instant) -> bool {
        let is_news = self.reported.get(model).is_none_or(|at| now.saturating_duration_since(*at) >= REST);
        if is_news {
            self.reported.insert(model.to_owned(), now);
        }
        is_news
    }
}

static FETCHED: LazyLock<Mutex<Fetched>> = LazyLock::new(Mutex::default);

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    File(#[from] ReadModelError),
    #[error("the server of the model file could not be reached a moment ago")]
    Resting,
}

/// The models that the flags name on servers; none where they cannot be fetched, which is logged.
pub(super) fn models(
    entry: &ConfiguredModel,
    flags: &Options,
    params: &ModelParams,
    dialect: Dialect,
) -> RemoteModels {
    let sources = params.remote_sources().map(Option::<&RemoteSource>::cloned);
    if sources.iter().all(Option::is_none) {
        return RemoteModels::default();
    }
    let variables = named::variables(entry);
    let variable = |name: &str| variables.get(name).map(OsString::from);
    let bounds = Bounds { patience: PATIENCE, ..Bounds::default() };
    let hub = Hub::of_variables(variable, flags.text("--hf-token"), bounds).map_err(FetchError::from);
    let fetched = hub.and_then(|hub| {
        let key = RemoteKey {
            sources,
            file: params.remote_file.clone(),
            projects: params.projector_auto,
            is_ggml: dialect == Dialect::Ggml,
            hub: hub.address().to_string(),
        };
        kept(key, || fetch(&hub, params, dialect))
    });
    match fetched {
        Ok(models) => models,
        Err(error) => {
            if let FetchError::Hub(error) = &error
                && error.failure.is_passing()
            {
                locked(|fetched| fetched.rest = Some(Instant::now() + REST));
            }
            let text = error.to_string().replace('\n', "; ");
            // A plan, its check and its forecast ask within a moment, and report it once.
            if locked(|fetched| fetched.is_news(&entry.name, Instant::now())) {
                tracing::warn!("model {}  its memory need is unknown until it is loaded: {text}", entry.name);
            }
            RemoteModels::default()
        }
    }
}

/// The models that were fetched before for this key; else those that `fetch` returns, which are kept.
fn kept(
    key: RemoteKey,
    fetch: impl FnOnce() -> Result<RemoteModels, FetchError>,
) -> Result<RemoteModels, FetchError> {
    if let Some(known) = locked(|fetched| fetched.models.get(&key).cloned()) {
        return Ok((*known).clone());
    }
    let models = fetch()?;
    locked(|fetched| {
        if fetched.models.len() < KEPT {
            fetched.models.insert(key, Arc::new(models.clone()));
        }
    });
    Ok(models)
}

fn fetch(hub: &Hub, params: &ModelParams, dialect: Dialect) -> Result<RemoteModels, FetchError> {
    let rests = locked(|fetched| fetched.rest.is_some_and(|end| Instant::now() < end));
    // A cache on this machine needs no server.
    let offline = ModelParams { offline: true, ..params.clone() };
    let found = match hub.locate(if rests { &offline } else { params }, dialect) {
        Err(_) if rests && !params.offline => return Err(FetchError::Resting),
        found => found?,
    };
    let model = |place: Option<ModelPlace>| match place {
        Some(ModelPlace::File(path)) => read_model(&path, dialect).map(Some).map_err(FetchError::from),
        Some(ModelPlace::Remote(remote)) => Ok(Some(remote.model()?)),
        None => Ok(None),
    };
    Ok(RemoteModels {
        main: model(found.main)?,
        draft: model(found.draft)?,
        projector: model(found.projector)?,
    })
}

fn locked<T>(act: impl FnOnce(&mut Fetched) -> T) -> T {
    act(&mut FETCHED.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_a_model_is_reported_once_until_it_is_asked_for_anew() {
        let (mut fetched, now) = (Fetched::default(), Instant::now());
        let mut reported = |model, later| fetched.is_news(model, now + later);
        assert!(reported("a", Duration::ZERO) && reported("b", Duration::ZERO));
        assert!(!reported("a", Duration::from_secs(1)) && !reported("a", REST - Duration::from_secs(1)));
        assert!(reported("a", REST) && !reported("a", REST + Duration::from_secs(1)));
    }
}
