//! Reads the headers of a model on Hugging Face's hub, so that flags can be chosen before its engine fetches
//! it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_flags::{Options, ProgramKind};
use plimsoll_hub::{Bounds, Hub, ModelPlace};
use plimsoll_model::{Dialect, Model};
use plimsoll_plan::Models;
use plimsoll_probe::headers::read_model;

/// Time for one request. The engine asks the same server.
const PATIENCE: Duration = Duration::from_secs(10);

/// A repository of the hub, with the quantisation that is wanted: `USER/REPO:QUANT`.
///
/// DECISION: its headers are read once, and its copies share them. So a reload without a network does not
/// choose other flags, for which a loaded model would be started again.
#[derive(Clone, Debug)]
pub struct Repository {
    name: String,
    models: Arc<OnceLock<Models>>,
}

impl Repository {
    pub fn new(name: String) -> Self {
        Self { name, models: Arc::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The headers of its files, from a cache of this machine or from the hub.
    pub(super) fn models(&self, dialect: Dialect) -> Result<Models, String> {
        if let Some(models) = self.models.get() {
            return Ok(models.clone());
        }
        let models = fetch(&self.name, dialect).map_err(|error| error.replace('\n', "; "))?;
        Ok(self.models.get_or_init(|| models).clone())
    }
}

fn fetch(name: &str, dialect: Dialect) -> Result<Models, String> {
    let words = ["--hf-repo".to_owned(), name.to_owned()];
    let options = Options::from_argv(&words).map_err(|error| error.to_string())?;
    let params = options.params(ProgramKind::LlamaServer).map_err(|error| error.to_string())?;
    let bounds = Bounds { patience: PATIENCE, ..Bounds::default() };
    let hub = Hub::of_environment(None, bounds).map_err(|error| error.to_string())?;
    let found = hub.locate(&params, dialect).map_err(|error| error.to_string())?;
    let model = |place: ModelPlace| -> Result<Model, String> {
        match place {
            ModelPlace::File(path) => read_model(&path, dialect).map_err(|error| error.to_string()),
            ModelPlace::Remote(model) => model.model().map_err(|error| error.to_string()),
        }
    };
    let main = found.main.ok_or_else(|| format!("{name} names no model"))?;
    let draft = found.draft.map(model).transpose()?;
    let projector = found.projector.map(model).transpose()?;
    Ok(Models { main: model(main)?, draft, projector })
}
