//! Estimates a model's memory with an engine, flags and cards, and searches the largest context that fits.

use plimsoll_base::{Card, Curve};
use plimsoll_flags::{FlagError, ModelParams, Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::fit::{ClosedForms, ContextPoint, Dimension, Fit, course, fit};
use plimsoll_planner::{EngineBuild, MeasuredContext, Plan, PlanError, PlanRequest, Processor};

/// Models that one engine loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models {
    pub main: Model,
    pub draft: Option<Model>,
    pub projector: Option<Model>,
}

impl From<Model> for Models {
    fn from(main: Model) -> Self {
        Self { main, draft: None, projector: None }
    }
}

/// All that the memory of a model depends on, besides flags and cards.
///
/// Flags may vary from plan to plan, but they name the models that are here.
#[derive(Clone, Debug)]
pub struct Estimate {
    pub models: Models,
    pub engine: EngineBuild,
    pub program: ProgramKind,
    /// Measured driver contexts, which are preferred to the published values.
    pub contexts: Vec<MeasuredContext>,
    /// The processor that computes with weights in host memory; `None` if it is not known.
    pub processor: Option<Processor>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    #[error(transparent)]
    Flags(#[from] FlagError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Estimate {
    /// For llama-server in the newest build that the formulas cover, with published driver contexts.
    pub fn new(models: Models) -> Self {
        Self {
            models,
            engine: EngineBuild::LLAMA_CPP,
            program: ProgramKind::LlamaServer,
            contexts: Vec::new(),
            processor: None,
        }
    }

    pub fn request<'a>(&'a self, params: &'a ModelParams, cards: &'a [Card]) -> PlanRequest<'a> {
        PlanRequest {
            model: &self.models.main,
            draft: self.models.draft.as_ref(),
            projector: self.models.projector.as_ref(),
            params,
            engine: self.engine,
            program: self.program,
            cards,
            contexts: &self.contexts,
            processor: self.processor,
        }
    }

    /// Puts a question to the planner.
    pub fn answer<T>(
        &self,
        options: &Options,
        cards: &[Card],
        question: impl FnOnce(&PlanRequest<'_>) -> Result<T, PlanError>,
    ) -> Result<T, EstimateError> {
        let params = options.params(self.program)?;
        Ok(question(&self.request(&params, cards))?)
    }

    pub fn plan(&self, options: &Options, cards: &[Card]) -> Result<Plan, EstimateError> {
        self.answer(options, cards, plimsoll_planner::plan)
    }

    /// Memory over the depth of the context. `longest_answer` is the engine's own limit (`-n`).
    pub fn curve(
        &self,
        options: &Options,
        cards: &[Card],
        longest_answer: Option<u64>,
    ) -> Result<Curve, EstimateError> {
        self.answer(options, cards, |request| plimsoll_planner::curve(request, longest_answer))
    }

    /// The largest value of each dimension that fits.
    pub fn fit(
        &self,
        options: &Options,
        cards: &[Card],
        dimensions: &[Dimension],
    ) -> Result<Fit, EstimateError> {
        self.answer(options, cards, |request| fit(request, &ClosedForms(*request), dimensions))
    }

    /// Memory of about `count` contexts, and of those of `besides`.
    pub fn course(
        &self,
        options: &Options,
        cards: &[Card],
        count: u64,
        besides: &[u64],
    ) -> Result<Vec<ContextPoint>, EstimateError> {
        self.answer(options, cards, |request| Ok(course(request, &ClosedForms(*request), count, besides)))
    }
}
