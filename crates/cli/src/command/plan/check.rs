//! `plimsoll plan --check PID|URL`: compares a plan with the memory of a running engine.
//!
//! The plan is made from the engine's own command line and environment.

mod process;

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use plimsoll_process::reading::MeasuredProcess;
use serde_json::Value;

pub(in crate::command) use self::process::again;

use plimsoll_measure::load::{Client, LoadFailure, Target};

use super::Arguments;
use crate::check::{Check, Checked, ReportedFigure};
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
    let checked = match checkable(text)? {
        Checkable::Process(pid) => process::checked(arguments, pid)?,
        Checkable::Server(target) => served(arguments, &target)?,
    };
    // Rows without a measurement count as right; without this a check of nothing would succeed.
    if checked.cards.iter().all(|row| row.measured.is_none()) {
        return Err(ErrorReport::new(format!(
            "nothing can be compared: the driver reports no memory of process {} on the planned cards",
            checked.pid
        ))
        .with_status(NO_VERDICT));
    }
    let agrees = |stated: &ReportedFigure| stated.planned == stated.engine;
    let ok = checked.cards.iter().all(|row| row.ok) && checked.stated.iter().all(agrees);
    let check = Check { schema: "plimsoll.check/1", models: [checked], ok };
    print_as(arguments.json.as_deref(), &check, || screen::check(&check))?;
    Ok(status(ok))
}

/// Checks the llama-server at an address, or behind the plimsoll server there, and asks it for its own
/// figures.
fn served(arguments: &Arguments, target: &Target) -> Result<Checked, ErrorReport> {
    let props = get(target, "/props")?;
    if let Some(engines) = engines_behind(target)? {
        let [(_, pid)] = engines[..] else {
            return Err(ErrorReport::new(if engines.is_empty() {
                format!("the plimsoll server at {target} has loaded no model\nhint: plimsoll load MODEL")
            } else {
                let all = engines.iter().map(|(name, pid)| format!("{pid} ({name})")).collect::<Vec<_>>();
                format!("several engines run behind {target}; give the PID of one: {}", all.join(", "))
            }));
        };
        return process::checked(arguments, pid);
    }
    let props = props.ok_or_else(|| {
        ErrorReport::new(format!(
            "the answer from {target}/props is not JSON, so the server is not a llama-server\nhint: for a plimsoll \
                server, `plimsoll ps` shows reserved and measured memory, and which engines can be checked"
        ))
    })?;
    let pid = MeasuredProcess::listening_on(target.port).ok_or_else(|| {
        ErrorReport::new(format!("no process of this user listens at {target}; give its PID"))
    })?;
    let mut checked = process::checked(arguments, pid.pid)?;
    process::compare(&mut checked.stated, &props);
    Ok(checked)
}

/// Name and process of each engine of a plimsoll server; `None` for another program. llama-swap's list has no
/// processes.
fn engines_behind(target: &Target) -> Result<Option<Vec<(String, u32)>>, ErrorReport> {
    let answer = get(target, "/running")?;
    let Some(running) = answer.as_ref().and_then(|answer| answer["running"].as_array()) else {
        return Ok(None);
    };
    let engine = |entry: &Value| {
        let pid = u32::try_from(entry["pid"].as_u64()?).ok()?;
        Some((entry["model"].as_str()?.to_owned(), pid))
    };
    Ok(running.iter().map(engine).collect())
}

/// The JSON at a path; `None` where the server has no such page, or the page is no JSON.
fn get(target: &Target, path: &'static str) -> Result<Option<Value>, ErrorReport> {
    let runtime = crate::command::runtime()?;
    let key = std::env::var("PLIMSOLL_API_KEY").ok();
    let requested = async {
        let mut client = Client::new(target, key.as_deref(), PATIENCE);
        client.json(Method::GET, path, Default::default()).await
    };
    match tokio::task::LocalSet::new().block_on(&runtime, requested) {
        Ok(answer) => Ok(Some(answer)),
        Err(LoadFailure::Status { status: 401, .. }) => Err(ErrorReport::new(format!(
            "{target} refuses: the request contains no valid API key\nhint: pass a key in the variable \
                PLIMSOLL_API_KEY, or give the PID of the engine"
        ))),
        Err(LoadFailure::Status { .. } | LoadFailure::Malformed(_)) => Ok(None),
        Err(failure) => Err(ErrorReport::new(format!("cannot query {target}{path}: {failure}"))),
    }
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
        let stated = |text: &str| checkable(text).unwrap_err().to_string();
        assert!(stated("http://192.0.2.1:8080").contains("is not on this machine"));
        for text in ["chat", "http://", "https://127.0.0.1:8080"] {
            assert!(stated(text).contains("is neither a process ID nor an address"), "{text}");
        }
    }
}
