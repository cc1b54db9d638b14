//! What the engine is given to run: a model of a few MiB that takes every way through the engine that a real one takes.
//!
//! DECISION: drivers load kernels when they are first used, so what a context takes depends on what ran. The model has quantised
//! matrices and plain ones (which go through cuBLAS), and heads of 128 (for which there is flash attention).

use std::path::Path;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{FlagError, Options, Program};
use plimsoll_model::{Dialect, types};
use plimsoll_planner::{Engine, EngineKind, MeasuredContext, PlanError, PlanRequest};
use plimsoll_probe::headers::{ReadModelError, read_model};
use plimsoll_specimens::{Kinds, Recipe};

use crate::command::synth as writer;

/// Enough for the prompt, however its tokens are counted.
const CONTEXT: &str = "4096";
const LAYERS: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SubjectError {
    #[error("there is no tiny model to make")]
    Shape,
    #[error(transparent)]
    Write(#[from] writer::Error),
    #[error(transparent)]
    Read(#[from] ReadModelError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Writes the model.
pub(super) fn write(path: &Path) -> Result<(), SubjectError> {
    let tiny = plimsoll_specimens::shape("tiny").ok_or(SubjectError::Shape)?;
    let recipe = Recipe {
        layers: LAYERS,
        embedding: 512,
        feed_forward: 1024,
        heads: 4,
        heads_kv: 2,
        head_length: 128,
        kinds: Kinds {
            matrix: types::Q8_0,
            spared: types::F16,
            ..tiny.kinds
        },
        ..tiny
    };
    writer::write_model(path, &recipe)?;
    Ok(())
}

/// The flags it runs with, those for its address left out.
pub(super) fn flags(model: &Path) -> Vec<String> {
    let model = model.to_string_lossy();
    ["--model", &model, "-ngl", "99", "-c", CONTEXT, "-np", "1"]
        .map(str::to_owned)
        .to_vec()
}

/// What its run-time pool takes by the plan, without cuBLAS.
pub(super) fn pool(model: &Path, engine: Engine, card: &Card) -> Result<Bytes, SubjectError> {
    let dialect = match engine.kind {
        EngineKind::LlamaCpp => Dialect::Ggml,
        EngineKind::IkLlamaCpp => Dialect::Ik,
    };
    let without = MeasuredContext {
        card: card.name.clone(),
        driver: String::new(),
        engine: engine.kind,
        build: engine.build,
        context: Bytes::ZERO,
        opened: None,
        cublas: Some(Bytes::ZERO),
        version: String::new(),
        measured: String::new(),
    };
    let plan = plimsoll_planner::plan(&PlanRequest {
        model: &read_model(model, dialect)?,
        draft: None,
        projector: None,
        wish: &Options::from_argv(&flags(model))?.wish(Program::LlamaServer)?,
        engine,
        program: Program::LlamaServer,
        cards: std::slice::from_ref(card),
        contexts: &[without],
    })?;
    let pool = |planned: &plimsoll_planner::CardPlan| planned.terms.pool.known();
    Ok(plan.cards.iter().map(pool).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small_and_its_pool_is_one_granule() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("subject.gguf");
        write(&path).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 32 << 20);
        let card: Card = "name=H200,total=143771MiB,free=140000MiB,cc=9.0".parse().unwrap();
        let granules = pool(&path, Engine::LLAMA_CPP, &card).unwrap();
        assert!(
            granules >= Bytes::mib(2) && granules <= Bytes::mib(12),
            "{granules}"
        );
    }
}
