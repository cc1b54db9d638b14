//! Models named by llama-server's flags, read from the headers of files on this machine.

use std::path::Path;

use plimsoll_base::Card;
use plimsoll_flags::{ModelParams, ProgramKind};
use plimsoll_hub::HubFailure;
use plimsoll_model::{Dialect, Model};
use plimsoll_planner::{EngineBuild, MeasuredContext, PlanRequest};
use plimsoll_probe::contexts;
use plimsoll_probe::headers::read_model;

use super::remote;
use crate::report::ErrorReport;

/// The models that the flags name, and the measured sizes of contexts.
pub(super) struct Models {
    pub(super) main: Model,
    pub(super) draft: Option<Model>,
    pub(super) projector: Option<Model>,
    contexts: Vec<MeasuredContext>,
}

impl Models {
    pub(super) fn new(main: Model, draft: Option<Model>, projector: Option<Model>) -> Self {
        Self { main, draft, projector, contexts: contexts::measured() }
    }

    pub(super) fn request<'a>(
        &'a self,
        wish: &'a ModelParams,
        engine: EngineBuild,
        program: ProgramKind,
        cards: &'a [Card],
    ) -> PlanRequest<'a> {
        PlanRequest {
            model: &self.main,
            draft: self.draft.as_ref(),
            projector: self.projector.as_ref(),
            wish,
            engine,
            program,
            cards,
            contexts: &self.contexts,
        }
    }

    pub(super) fn read(wish: &ModelParams, engine: EngineBuild) -> Result<Self, ErrorReport> {
        let dialect = engine.kind.dialect();
        let here = downloaded(wish, dialect)?;
        let read = |path: &String| read_model(Path::new(path), dialect);
        let Some(main) = &here.model else {
            return Err(ErrorReport::new("no model is given\nhint: plimsoll plan -- -m model.gguf"));
        };
        // The draft model and the projector are on the same cards, and often decide whether the whole fits.
        let draft = here.draft_model.as_ref().map(read).transpose()?;
        Ok(Self::new(read(main)?, draft, here.projector.as_ref().map(read).transpose()?))
    }
}

/// The flags with the files of what was downloaded. Nothing is fetched: the callers' programs run already, or
/// will fetch the model themselves.
fn downloaded(wish: &ModelParams, dialect: Dialect) -> Result<ModelParams, ErrorReport> {
    if !remote::names_some(wish) {
        return Ok(wish.clone());
    }
    let offline = ModelParams { offline: true, ..wish.clone() };
    let located =
        remote::hub(None, None)?.locate(&offline, dialect).map_err(|error| match error.failure {
            HubFailure::Offline => ErrorReport::new(format!(
                "the model `{}` is not on this machine, and a plan reads its header\nhint: let llama-server \
                download it once, or give the file with -m; `plimsoll plan -hf` fetches the header alone",
                error.of
            )),
            _ => error.into(),
        })?;
    remote::put(offline, &located, |place| match place {
        plimsoll_hub::ModelPlace::File(path) => Ok(path.to_string_lossy().into_owned()),
        plimsoll_hub::ModelPlace::Remote(model) => {
            Err(ErrorReport::new(format!("`{}` was fetched", model.name)))
        }
    })
}
