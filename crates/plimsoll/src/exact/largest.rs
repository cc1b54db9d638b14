//! The largest context that fits, each one asked of the engine.

use std::time::{Duration, Instant};

use plimsoll_core::flags::table::{Effect, by_effect};
use plimsoll_core::flags::{Options, Origin, Setting, Value, Wish};
use plimsoll_core::plan::exact::{RefusalKind, Search, Transcript, fits};
use plimsoll_core::plan::{self, PlanRequest};

use super::{ExactError, Oracle};

/// A search that starts near takes three or four.
const MOST_QUESTIONS: u32 = 16;
/// What a person waits for without wondering.
const LIMIT: Duration = Duration::from_secs(5);

/// Searches from where the default plan says that the border is.
pub(crate) fn largest_context(
    oracle: &mut Oracle,
    options: &Options,
    request: &PlanRequest<'_>,
    asked: &Transcript,
) -> Result<Result<Option<u64>, Option<u64>>, ExactError> {
    let estimate = plan::plan(request)?;
    let context = asked.context().unwrap_or(estimate.context);
    let fits_now = fits(request, asked)?;
    let mut search = Search::new(
        request,
        estimate.largest_context,
        context,
        fits_now,
        MOST_QUESTIONS,
    );
    let start = Instant::now();
    while let Some(context) = search.question().filter(|_| start.elapsed() < LIMIT) {
        search.tell(context, fits_at(oracle, options, request, context)?);
    }
    Ok(search.answer())
}

fn fits_at(
    oracle: &mut Oracle,
    options: &Options,
    request: &PlanRequest<'_>,
    context: u64,
) -> Result<bool, ExactError> {
    let wish = Wish {
        context: u32::try_from(context).unwrap_or(u32::MAX),
        ..request.wish.clone()
    };
    let request = PlanRequest {
        wish: &wish,
        ..*request
    };
    match oracle.ask(&with_context(options, context)) {
        Ok(transcript) => Ok(fits(&request, &transcript)?),
        Err(ExactError::Refused(refusal)) if refusal.kind == RefusalKind::Memory => Ok(false),
        Err(error) => Err(error),
    }
}

fn with_context(options: &Options, context: u64) -> Options {
    let mut options = options.clone();
    options.retain(|setting| setting.flag.effect != Effect::Context);
    if let Some(flag) = by_effect(Effect::Context) {
        options.push(Setting {
            flag,
            value: Value::Text(context.to_string()),
            origin: Origin::Argument(0),
        });
    }
    options
}
