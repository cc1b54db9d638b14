//! Combines model header, flags, engine and cards into one memory plan, for the command line, the daemon and
//! other programs.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod chosen;
mod estimate;
mod host_limit;
mod need;
mod prompt_cache;
mod question;
mod room;

use plimsoll_base::Card;
use plimsoll_flags::Options;
use plimsoll_model::Model;
pub use plimsoll_planner::Plan;

pub use self::chosen::{Choice, ChoiceError};
pub use self::estimate::{Estimate, EstimateError, Models};
pub use self::host_limit::{HostLimit, PlannedHost};
pub use self::need::PlannedNeed;
pub use self::prompt_cache::{prompt_cache, usual_prompt_cache};
pub use self::question::{Question, QuestionError, QuestionText, document};
pub use self::room::{HostSize, HostSizeError, Room};

/// Plans a model for llama-server with these flags, which blanks separate.
///
/// ```
/// use plimsoll_model::{Dialect, Model, gguf::Header, tiny::TinyModel};
///
/// let file = TinyModel::default().file();
/// let model = Model::from_headers(&[Header::read(&file, file.len() as u64, Dialect::Ggml)?])?;
/// let cards = ["name=RTX3080,total=10GiB,free=1GiB,cc=8.6".parse()?];
/// let plan = plimsoll_plan::plan(model, "-c 1000000", &cards)?;
/// assert!(!plan.fits && !plan.hints.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(model: Model, flags: &str, cards: &[Card]) -> Result<Plan, EstimateError> {
    let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    Estimate::new(Models::from(model)).plan(&Options::from_argv(&words)?, cards)
}
