//! Answers a question about one model: flags, cards and host memory in, a plan out.
//!
//! DECISION: the command line, the Python package and the page all ask by [`Question`]. Their plans can
//! differ only in what they know of the machine, which the [`Estimate`] and the [`Room`] carry.

use plimsoll_base::{Advice, CardSpec, CardSpecError};
use plimsoll_flags::{EngineBuild, FlagError, Options, ParseEngineError, ParseProgramError, ProgramKind};
use plimsoll_planner::{Plan, speed};
use serde::{Deserialize, Serialize};

use super::{Estimate, EstimateError, HostSize, HostSizeError, Room};

/// A question as other programs write it, in JSON. Each value is written as the command line takes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionText {
    /// Flags of the engine, as words: `["-m", "model.gguf", "-c", "8192"]`.
    pub flags: Vec<String>,
    /// Cards, as `--card` takes them: `3090`, `2x3060`, `name=X,total=24GiB,cc=8.6`.
    pub cards: Vec<String>,
    /// Host memory of the machine, as `--host` takes it.
    pub host: Option<String>,
    /// The engine, as `--build` takes it.
    pub engine: Option<String>,
    /// The engine's program, as `--program` takes it.
    pub program: Option<String>,
    /// Tokens in use for which the speed is predicted, as `--depth` takes them.
    pub depth: Option<u32>,
}

/// What a plan is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    pub options: Options,
    pub engine: EngineBuild,
    pub program: ProgramKind,
    pub room: Room,
    /// Predict the speed once this many tokens are in use, instead of with a full context.
    pub depth: Option<u32>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    #[error("the question cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Card(#[from] CardSpecError),
    #[error(
        "no card is given\nhint: name a product such as 3090, or describe a card: name=X,total=24GiB,cc=8.6"
    )]
    NoCard,
    #[error("the host's memory cannot be read: {0}")]
    Host(#[from] HostSizeError),
    #[error(transparent)]
    Engine(#[from] ParseEngineError),
    #[error(transparent)]
    Program(#[from] ParseProgramError),
    #[error("--depth {depth} is beyond the context of {context} tokens\nhint: -c {depth} extends it")]
    Depth { depth: u32, context: u64 },
    #[error(transparent)]
    Estimate(#[from] EstimateError),
}

/// The document of an answer, such as a plan (`plimsoll.plan/1`), as `--json` prints it: its keys in
/// alphabetical order, and a line feed at the end.
pub fn document(answer: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&serde_json::to_value(answer)?)? + "\n")
}

impl From<FlagError> for QuestionError {
    fn from(error: FlagError) -> Self {
        Self::Estimate(error.into())
    }
}

impl QuestionText {
    /// Reads a question's JSON.
    pub fn from_json(json: &[u8]) -> Result<Self, QuestionError> {
        Ok(serde_json::from_slice(json)?)
    }

    /// Reads what the texts mean.
    pub fn read(&self) -> Result<Question, QuestionError> {
        let cards = self.cards.iter().map(|card| card.parse()).collect::<Result<Vec<CardSpec>, _>>()?;
        if cards.is_empty() {
            return Err(QuestionError::NoCard);
        }
        let host: Option<HostSize> = self.host.as_ref().map(|host| host.parse()).transpose()?;
        Ok(Question {
            options: Options::from_argv(&self.flags)?,
            engine: self.engine.as_ref().map_or(Ok(EngineBuild::LLAMA_CPP), |engine| engine.parse())?,
            program: self.program.as_ref().map_or(Ok(ProgramKind::default()), |program| program.parse())?,
            room: Room::described(&cards, host),
            depth: self.depth,
        })
    }
}

impl Question {
    /// The plan by the formulas.
    pub fn answer(&self, estimate: &Estimate) -> Result<Plan, QuestionError> {
        let mut plan = estimate.plan(&self.options, &self.room.cards)?;
        self.complete(estimate, &mut plan)?;
        Ok(plan)
    }

    /// Gives a plan, whose sizes an engine may have stated, what the question has besides cards: the depth,
    /// the host's memory, doubts about the input, and the bus.
    pub fn complete(&self, estimate: &Estimate, plan: &mut Plan) -> Result<(), QuestionError> {
        let Self { options, room, .. } = self;
        if let Some(depth) = self.depth {
            let context = plan.context;
            if u64::from(depth) > context {
                return Err(QuestionError::Depth { depth, context });
            }
            plan.speed = estimate.answer(options, &room.cards, |request| speed(request, depth.into()))?;
        }
        room.limit(estimate).limit_plan(options, plan, room.doubts(options));
        for hint in &mut plan.hints {
            if let Advice::SpillCache(advice) = &mut hint.advice {
                advice.bus = room.bus;
            }
        }
        Ok(())
    }
}
