//! Answers `/api/what-if`: a model planned with other flags, the memory that it would take, and the models to
//! stop.

use plimsoll_config::{ConfiguredModel, Launch};
use plimsoll_flags::Options;
use plimsoll_scheduler::ModelId;
use plimsoll_scheduler::place::NeedAnswers;
use serde_json::{Value, json};

use crate::forecast::{advise, with_answers};
use crate::{SchedulerState, Surveyor};
use plimsoll_route::WhatIfError;
use plimsoll_task::spawn_blocking;

/// Plans the model with this entry and asks the scheduler, without a change to anything.
pub(crate) async fn dry_run(
    state: &SchedulerState,
    surveyor: Surveyor,
    model: ModelId,
    entry: ConfiguredModel,
) -> Result<Value, WhatIfError> {
    let served = surveyor.cards();
    // Headers come from disk, as for a load.
    let looked = spawn_blocking(move || surveyor.look(&entry, &surveyor.program(&entry)?));
    let demand = match looked.await.map_err(|error| WhatIfError::Failed(error.to_string()))? {
        Ok(demand) => demand,
        Err(reason) => {
            return Ok(json!({ "fits": "never", "shares": [], "stops": [], "reason": reason }));
        }
    };
    let (need, now) = (demand.need(), state.now());
    let ask =
        |answers: &NeedAnswers| state.scheduler.borrow().at(now).what_if(model, &need, answers).transpose();
    let mut stated = with_answers(&*demand, &mut NeedAnswers::default(), ask);
    if let Some(stated) = &mut stated {
        advise(&*demand, &mut stated.advice, &mut stated.hints);
    }
    let mut answer = json!(stated);
    let placed = stated.iter().flat_map(|stated| &stated.shares);
    let on: Vec<_> = placed.map(|share| &share.card).collect();
    let cards: Vec<_> = served.into_iter().filter(|card| on.contains(&&card.id)).collect();
    let terms = demand.terms(&cards).into_iter();
    answer["terms"] = terms.map(|(card, terms)| json!({ "card": card, "terms": terms })).collect();
    answer["lowered_context"] = json!(demand.lowered_context());
    Ok(answer)
}

/// The entry with flags over its own.
pub(crate) fn with_flags(entry: &ConfiguredModel, flags: &[String]) -> Result<ConfiguredModel, WhatIfError> {
    let mut entry = entry.clone();
    if flags.is_empty() {
        return Ok(entry);
    }
    let changes = Options::from_argv(flags).map_err(|error| WhatIfError::Flags(error.to_string()))?;
    match &mut entry.launch {
        Launch::LlamaServer { options, .. } | Launch::Command { options: Some(options), .. } => {
            *options = changes.merged_over(options);
        }
        Launch::Command { options: None, .. } => return Err(WhatIfError::NoFlags),
    }
    // A declared size holds for the configured flags only.
    entry.memory = None;
    Ok(entry)
}
