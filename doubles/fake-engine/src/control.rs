//! Speaks llama-server's protocol with its router for the fake engine, on a child's stdin and stdout (see
//! `plimsoll_wire::control`).
//!
//! As in `server-models.cpp:server_child::setup @ b10605`, stdin is read only after the model is loaded. So a
//! child that hangs during its load ignores the exit line, and does not notice the end of its router.

use std::io::{self, BufRead, Write};
use std::thread;

use plimsoll_wire::control::{EARLY_READY, EXIT_COMMAND, STATE_PREFIX};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{death, log};

/// Writes a state line, its keys in llama-server's order.
pub(crate) fn report(state: &str, payload: &Value) {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, r#"{STATE_PREFIX}{{"state":"{state}","payload":{payload}}}"#)
        .and_then(|()| stdout.flush())
        .ok();
}

/// Says that it is ready as builds before the state line do.
pub(crate) fn report_early_ready() {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{EARLY_READY}").and_then(|()| stdout.flush()).ok();
}

pub(crate) fn report_progress(value: f64) {
    report("loading", &json!({ "stages": ["text_model"], "current": "text_model", "value": value }));
}

/// Resolves when the router says exit; end of file on stdin ends the process at once.
pub(crate) fn exit_command(ignore: bool) -> oneshot::Receiver<()> {
    let (reported, notify) = oneshot::channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        let mut commands = lines.filter(|line| !ignore && line.contains(EXIT_COMMAND));
        if commands.next().is_some() {
            log(format_args!("srv    operator(): exit command received, exiting..."));
            reported.send(()).ok();
        } else if !ignore {
            log(format_args!("srv    operator(): EOF on stdin detected, forcing shutdown..."));
            death::exit(1);
        }
    });
    notify
}
