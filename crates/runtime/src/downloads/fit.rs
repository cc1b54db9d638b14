//! Forecasts the memory of a model before it is downloaded, from the headers of its remote files.

use http::StatusCode;
use plimsoll_base::{Advice, Hint};
use plimsoll_config::{ConfiguredModel, Launch};
use plimsoll_flags::{FlagOrigin, Options};

use super::super::forecast::Forecast;
use super::super::survey::Surveyor;
use plimsoll_route::{DownloadOrder, HttpProblem};
use plimsoll_task::spawn_blocking;

// DECISION: a download is refused where the model fits on no card even with a short context. Less would
// refuse models that need a smaller context than their own; and an operator may want the file for another
// machine, so `force` overrides it.
/// Tokens of the context with which a model has to fit at least.
const LEAST_CONTEXT: &str = "1024";

/// Planned memory of the model, in words; `None` if it is unknown before its download.
pub(super) async fn foresee(
    surveyor: Surveyor,
    order: &DownloadOrder,
) -> Result<Option<String>, HttpProblem> {
    if order.public_only && order.is_address() {
        // The forecast would ask the server once more, wherever it leads by then.
        return Ok(None);
    }
    let entries = [entry(order, &[]), entry(order, &["--ctx-size", LEAST_CONTEXT])];
    let entries: Vec<ConfiguredModel> = entries.into_iter().flatten().collect();
    // Headers come from the network.
    let looked = spawn_blocking(move || surveyor.forecast(&entries, None));
    let forecasts = looked.await.unwrap_or_default();
    let [own, least] = &forecasts[..] else { return Ok(None) };
    match (own.never_fits(), least.never_fits()) {
        (false, _) => Ok(own.refused.is_none().then(|| own.text.clone())),
        (true, false) => Ok(Some(format!(
            "{} with a context of {LEAST_CONTEXT} tokens; with its own context, the model fits on no card",
            least.text
        ))),
        (true, true) if order.force => Ok(Some(own.text.clone())),
        (true, true) => Err(never(least)),
    }
}

/// The model with llama-server's defaults, as it will be served.
fn entry(order: &DownloadOrder, more: &[&str]) -> Option<ConfiguredModel> {
    let flag = if order.is_address() { "--model-url" } else { "--hf-repo" };
    let words = [flag, &order.requested].into_iter().chain(more.iter().copied());
    let options = Options::from_argv(&words.map(str::to_owned).collect::<Vec<_>>()).ok()?;
    let origin = FlagOrigin::file(&"the download".into(), 0);
    let launch = Launch::LlamaServer { program: None, options };
    Some(ConfiguredModel { launch, ..ConfiguredModel::new(order.name.clone(), origin) })
}

fn never(forecast: &Forecast) -> HttpProblem {
    let reason = forecast.refused.clone();
    let problem = reason.map(|reason| HttpProblem::because(StatusCode::PAYLOAD_TOO_LARGE, reason));
    let mut problem = problem.unwrap_or_else(|| {
        HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "never_fits", forecast.text.clone())
    });
    problem.hints.extend(forecast.hints.iter().cloned());
    let force = "to download it all the same, pass `--force`, or `\"force\": true` over HTTP".to_owned();
    problem.hints.push(Hint::new(Advice::Other(force)));
    problem
}
