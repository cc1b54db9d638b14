//! `plimsoll plan --check PID|URL`: comparison of a plan with the memory of a running engine.
//!
//! The plan is made from the engine's own command line and environment. For the URL of a `plimsoll serve`
//! daemon, the memory that it granted is compared with the memory that it measured.

mod process;

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use plimsoll_base::{Bytes, CardId};
use plimsoll_probe::process::MeasuredProcess;
use serde_json::Value;

pub(in crate::command) use self::process::{again, held};

use plimsoll_lab::load::{Client, LoadFailure, Target};

use super::Arguments;
use crate::check::{CARD_MARGIN, Check, Checked, HOST_MARGIN, ReportedFigure, Row, margin};
use crate::report::{ErrorReport, NO_VERDICT, print_as, status};
use crate::screen;

/// Time limit of a whole answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subject of the check.
#[derive(Clone, Debug)]
enum Checkable {
    Process(u32),
    Server(Target),
}

fn checkable(text: &str) -> Result<Checkable, ErrorReport> {
    // A bare number is a process id: an address always has a scheme here, so the two cannot be confused.
    if let Ok(pid) = text.parse() {
        return Ok(Checkable::Process(pid));
    }
    let target = text.parse::<Target>().ok().filter(|_| text.starts_with("http://"));
    let target = target.ok_or_else(|| {
        let remedy = "give a PID or an address such as http://127.0.0.1:8080";
        ErrorReport::new(format!("`{text}` is neither a process ID nor an address; {remedy}"))
    })?;
    // The process behind the port is measured through this machine's driver and `/proc`.
    if !target.is_here() {
        return Err(ErrorReport::new(format!(
            "`{text}` is not on this machine; only loopback addresses are allowed"
        )));
    }
    Ok(Checkable::Server(target))
}

pub(super) fn run(arguments: &Arguments, text: &str) -> Result<ExitCode, ErrorReport> {
    let models = match checkable(text)? {
        Checkable::Process(pid) => vec![process::checked(arguments, pid)?],
        Checkable::Server(target) => served(arguments, &target)?,
    };
    let rows = || models.iter().flat_map(|model| &model.cards);
    // Rows without a measurement count as right; without this a check of nothing would succeed.
    let measured = rows().any(|row| row.measured.is_some());
    if !measured {
        let why = match models.iter().find_map(|model| model.pid) {
            Some(pid) => format!("the driver reports no memory for process {pid} on the planned cards"),
            None => "the server has not measured the memory of its models".to_owned(),
        };
        return Err(ErrorReport::new(format!("nothing is measured: {why}")).with_status(NO_VERDICT));
    }
    let agrees = |said: &ReportedFigure| said.planned == said.engine;
    let ok = rows().all(|row| row.ok) && models.iter().flat_map(|model| &model.said).all(agrees);
    let check = Check { schema: "plimsoll.check/1", models, ok };
    print_as(arguments.json, &check, || screen::check(&check))?;
    Ok(status(ok))
}

/// Checks a daemon of ours, else a llama-server.
fn served(arguments: &Arguments, target: &Target) -> Result<Vec<Checked>, ErrorReport> {
    // llama-server answers 404 here, so the daemon's own page decides which of the two it is.
    if let Some(status) = get(target, "/api/status")? {
        if arguments.exact.is_some() {
            return Err(ErrorReport::new(format!(
                "--exact does not work with a plimsoll server such as {target}\nhint: omit --exact, or give \
                    the PID of one of its engines"
            )));
        }
        return Ok(claimed(arguments.margin, &status));
    }
    let props = get(target, "/props")?.ok_or_else(|| {
        ErrorReport::new(format!(
            "the answer from {target}/props is not JSON, so the server is not a llama-server"
        ))
    })?;
    let pid = MeasuredProcess::listening_on(target.port).ok_or_else(|| {
        ErrorReport::new(format!("no process of this user listens at {target}; give its PID"))
    })?;
    let mut checked = process::checked(arguments, pid.pid)?;
    process::compare(&mut checked.said, &props);
    Ok(vec![checked])
}

/// The JSON at a path; `None` where the server has no such page, or the page is no JSON.
fn get(target: &Target, path: &'static str) -> Result<Option<Value>, ErrorReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ErrorReport::of("cannot start a client"))?;
    let asked = async {
        let mut client = Client::new(target, None, PATIENCE);
        client.json(Method::GET, path, Default::default()).await
    };
    match tokio::task::LocalSet::new().block_on(&runtime, asked) {
        Ok(answer) => Ok(Some(answer)),
        Err(LoadFailure::Status { .. } | LoadFailure::Malformed(_)) => Ok(None),
        Err(failure) => Err(ErrorReport::new(format!("cannot ask {target}{path}: {failure}"))),
    }
}

/// Claims of a daemon for each running model, with its measurements.
fn claimed(asked: Option<Bytes>, status: &Value) -> Vec<Checked> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let bytes = |value: &Value| value.as_u64().map(Bytes::new);
    let row = |claim: &Value, measured: &[Value]| {
        let id = CardId::new(claim["card"].as_str()?);
        let seen = measured.iter().find(|share| share["card"] == claim["card"]);
        let peak = bytes(&claim["bytes"])?;
        let measured = seen.and_then(|share| bytes(&share["bytes"]));
        // Resident memory includes the program and its libraries, so the host has a wider margin than a card.
        let kind = if id.as_str() == plimsoll_probe::HOST_CARD { HOST_MARGIN } else { CARD_MARGIN };
        Some(Row::new(id, None, peak, measured, margin(asked, kind, peak)))
    };
    let model = |view: Value| {
        let measured = list(&view["measured"]);
        let cards = list(&view["claim"]).iter().filter_map(|claim| row(claim, &measured)).collect();
        Checked {
            model: view["name"].as_str().unwrap_or_default().to_owned(),
            pid: None,
            cards,
            said: Vec::new(),
        }
    };
    list(&status["models"])
        .into_iter()
        .map(model)
        // A model that is not loaded has no claim, and so nothing to compare.
        .filter(|checked| !checked.cards.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_process_or_a_loopback_address() {
        assert!(matches!(checkable("4711").unwrap(), Checkable::Process(4711)));
        for text in ["http://127.0.0.1:8080", "http://[::1]:9/v1/", "http://localhost", "http://127.0.0.1"] {
            assert!(matches!(checkable(text).unwrap(), Checkable::Server(_)), "{text}");
        }
        let said = |text: &str| checkable(text).unwrap_err().to_string();
        assert!(said("http://192.0.2.1:8080").contains("is not on this machine"));
        for text in ["chat", "http://", "https://127.0.0.1:8080"] {
            assert!(said(text).contains("is neither a process ID nor an address"), "{text}");
        }
    }

    #[test]
    fn a_daemons_claims_stand_beside_what_it_measured() {
        let status = serde_json::json!({"models": [
            {"name": "a", "claim": [{"card": "GPU-1", "bytes": 100 << 20}], "measured": [{"card": "GPU-1", "bytes": 170 << 20}]},
            {"name": "asleep", "claim": [], "measured": []},
        ]});
        let checked = claimed(None, &status);
        assert_eq!(checked.len(), 1);
        assert!(!checked[0].cards[0].ok && checked[0].cards[0].difference == 70 << 20);
    }
}
