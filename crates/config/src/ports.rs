//! Warns of models that share a fixed port, and of requests that go to another port than the engine's.
//!
//! It warns of a port that several models share, and of a llama-server that listens on a different port than
//! the one that the daemon uses.

use std::collections::BTreeMap;

use plimsoll_flags::{Warning, quoted};

use crate::engine_flags::own_llama_server;
use crate::roster::{Configuration, ConfiguredModel, Launch, PORT};

/// Models that one warning names.
const MOST_NAMED: usize = 3;
/// Default port of a llama-server.
const USUAL: &str = "8080";

impl Configuration {
    /// Warns of models that share a fixed port, and of requests that go to another port than the engine's.
    pub fn notify_ports(&mut self) {
        let mut reported: Vec<Warning> = self.models.iter().filter_map(elsewhere).collect();
        reported.extend(shared(&self.models));
        reported.extend(foreign(&self.models));
        self.warnings.extend(reported);
    }
}

impl ConfiguredModel {
    /// The port of its command, where it is the same whatever port the model gets.
    pub fn fixed_port(&self) -> Option<u16> {
        let fixed = self.launch.listens_on(1).filter(|_| matches!(self.launch, Launch::Command { .. }));
        fixed.filter(|port| self.launch.listens_on(2) == Some(*port))
    }
}

/// A llama-server that listens on another port than the one that requests go to.
fn elsewhere(entry: &ConfiguredModel) -> Option<Warning> {
    let Launch::Command { argv, .. } = &entry.launch else { return None };
    let (requested, flags) = (entry.fixed_port()?, argv.get(own_llama_server(argv)? + 1..)?);
    let by_flag = port_flag(flags);
    let by_variable =
        || entry.env.iter().find(|(name, _)| name == "LLAMA_ARG_PORT").map(|(_, port)| port.as_str());
    let port = match by_flag {
        Some(port) => port?,
        None => by_variable().unwrap_or(USUAL),
    };
    // A command that listens on the placeholder is told of where it is read.
    if port.contains(PORT) || by_flag.is_none() && argv.iter().any(|word| word.contains(PORT)) {
        return None;
    }
    let port: u16 = port.parse().ok().filter(|port| *port != requested)?;
    let text = format!(
        "requests for `{}` go to port {requested}, but its command listens on port {port}",
        quoted(&entry.name)
    );
    Some(Warning::new(entry.origin.0.clone(), text).hint("write `--port ${PORT}` and leave `proxy` out"))
}

/// The value of the last `--port`, which is the one that counts; an inner `None` if nothing follows it.
pub(crate) fn port_flag(words: &[String]) -> Option<Option<&String>> {
    words.iter().rposition(|word| word == "--port").map(|at| words.get(at + 1))
}

/// Engines that this server does not own, reported once for all.
fn foreign(models: &[ConfiguredModel]) -> Option<Warning> {
    let named: Vec<&ConfiguredModel> =
        models.iter().filter(|model| model.launch.elsewhere().is_some()).collect();
    let names: Vec<String> =
        named.iter().take(MOST_NAMED).map(|model| format!("`{}`", quoted(&model.name))).collect();
    let more = match named.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!(
        "requests for {}{more} go to other hosts or to containers by name, which plimsoll does not \
            isolate; memory of this machine is reserved for them only if their commands or `memory` state \
            it",
        names.join(", ")
    );
    let at = named.first()?.origin.0.clone();
    Some(Warning::new(at, text).hint("set `memory` for those that take memory of this machine"))
}

/// Models that share a port are loaded one at a time, whatever memory is free.
fn shared(models: &[ConfiguredModel]) -> Vec<Warning> {
    let mut users: BTreeMap<u16, Vec<&ConfiguredModel>> = BTreeMap::new();
    for model in models {
        if let Some(port) = model.fixed_port() {
            users.entry(port).or_default().push(model);
        }
    }
    let shared = users.into_iter().filter(|(_, models)| models.len() > 1);
    let reported = shared.filter_map(|(port, models)| {
        let names: Vec<String> = models.iter().map(|model| format!("`{}`", model.name)).collect();
        let text = format!(
            "{} all listen on port {port}, so only one of them can be loaded at a time",
            names.join(", ")
        );
        let at = models.last()?.origin.0.clone();
        Some(Warning::new(at, text).hint("pass `${PORT}` to each command instead of a number"))
    });
    reported.collect()
}
