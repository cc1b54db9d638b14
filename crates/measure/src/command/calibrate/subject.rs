//! Writes the small test model of `plimsoll measure calibrate`, which runs the same kernels as a real model.

use std::path::Path;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::Options;
use plimsoll_model::tiny::TinyModel;
use plimsoll_model::types;
use plimsoll_plan::{Estimate, Models};
use plimsoll_planner::{EngineBuild, MeasuredContext};
use plimsoll_probe::headers::read_model;
use plimsoll_verb::report::ErrorReport;

/// Enough for the prompt, however its tokens are counted.
const CONTEXT: &str = "4096";

/// Writes the model file.
pub(super) fn write(path: &Path) -> Result<(), ErrorReport> {
    // DECISION: drivers load kernels at their first use. So the model has quantised matrices, unquantised
    // ones (for cuBLAS), and heads of 128 values (for flash attention).
    let model = TinyModel {
        embedding: 512,
        feed_forward: 1024,
        // Flash attention has a kernel for heads of 128 in every build; the default's 32 would not load one.
        head_length: 128,
        matrix: types::Q8_0,
        // cuBLAS multiplies F16 matrices, so its workspace is part of the measurement.
        spared: types::F16,
        ..TinyModel::default()
    };
    std::fs::write(path, model.file()).map_err(ErrorReport::of_file("cannot write the test model", path))
}

/// The engine's flags, without those for its address.
pub(super) fn flags(model: &Path) -> Vec<String> {
    let model = model.to_string_lossy();
    // `-ngl 99` puts every layer on the card. One slot, because llama-server divides `-c` among its slots.
    ["--model", &model, "-ngl", "99", "-c", CONTEXT, "-np", "1"].map(str::to_owned).to_vec()
}

/// The model's run-time pool as planned, without cuBLAS.
pub(super) fn pool(model: &Path, engine: EngineBuild, card: &Card) -> Result<Bytes, ErrorReport> {
    let without = MeasuredContext {
        card: card.name.clone(),
        driver: String::new(),
        engine: engine.kind,
        build: engine.build,
        context: Bytes::ZERO,
        opened: None,
        // A measured zero, not `None`: without a measurement the planner would add a published value for
        // cuBLAS.
        cublas: Some(Bytes::ZERO),
        speed: None,
        version: String::new(),
        measured: String::new(),
    };
    let models = Models::from(read_model(model, engine.kind.dialect())?);
    let estimate = Estimate { engine, contexts: vec![without], ..Estimate::new(models) };
    let plan = estimate.plan(&Options::from_argv(&flags(model))?, std::slice::from_ref(card))?;
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
        let granules = pool(&path, EngineBuild::LLAMA_CPP, &card).unwrap();
        assert!(granules >= Bytes::mib(2) && granules <= Bytes::mib(12), "{granules}");
    }
}
