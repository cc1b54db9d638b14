//! Plans the memory of a program that `plimsoll doctor` ran, if its command line is llama.cpp's.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_base::Reason;
use plimsoll_doctor::{Cause, Diagnosis};
use plimsoll_flags::ProgramKind;
use plimsoll_planner::{EngineBuild, EngineKind, Plan};

use super::super::plan::{by_words, served};

/// Adds the plan's sums to the reasons, and puts its hints before the general ones.
pub(super) fn add(diagnosis: &mut Diagnosis, command: &[OsString]) {
    // Only causes that depend on the model and its flags; a plan says nothing about a driver fault.
    let helps = matches!(
        diagnosis.cause,
        Cause::ModelTooLarge | Cause::KvCacheTooLarge | Cause::ComputeBufferTooLarge | Cause::PoolGrowth
    );
    if let Some(plan) = helps.then(|| plan(command)).flatten() {
        diagnosis.reason.because.extend(sums(&plan));
        let general = std::mem::take(&mut diagnosis.hints);
        diagnosis.hints = plan.hints.into_iter().chain(general).collect();
    }
}

fn plan(command: &[OsString]) -> Option<Plan> {
    let (name, words) = command.split_first()?;
    let name = Path::new(name).file_name()?.to_str()?;
    let words: Vec<String> =
        words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    // The newest formulas: starting the program again only for its version is not worth the wait.
    let engine = EngineBuild { kind: EngineKind::LlamaCpp, build: None };
    by_words(&words, engine, ProgramKind::from_name(name)?, &served(&plimsoll_cards::look())).ok()
}

fn sums(plan: &Plan) -> Vec<Reason> {
    let mut sums: Vec<Reason> = plan.warnings.iter().chain(&plan.reasons).cloned().collect();
    if let Some(context) = plan.largest_context {
        let text = format!("the largest context that fits is {context} tokens");
        sums.push(Reason::new("largest_context", text).fact("tokens", context));
    }
    sums
}
