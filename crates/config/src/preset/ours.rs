//! Reads Plimsoll's own settings in a llama-server preset file: `;plimsoll: key = value`, a comment to
//! llama-server.
//!
//! Settings before the first section or in `[*]` apply to `plimsoll serve` as a whole.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_flags::table::distance_within;
use plimsoll_flags::{quoted, truth};

use serde::de::DeserializeOwned;

use super::grammar::PresetLine;
use super::{ConfigError, ConfigProblem, ConfiguredModel, Launch};
use crate::before_load::ReclaimBeforeLoad;
use crate::depth::TooLarge;
use crate::duration;
use crate::duration::Length;
use crate::guard::{GuardSettings, Size};
use crate::listen::listen_addresses;
use crate::parse::word;
use crate::serve_settings::ServeSettings;
use crate::serve_values::{AskText, FileText, ReserveText, cards, web_origin};

const OF_SERVER: [&str; 24] = [
    "listen",
    "models-max",
    "patience",
    "wait",
    "heartbeat",
    "yield-below",
    "yield-to",
    "warm",
    "engine",
    "api-key-file",
    "reclaim-before-load",
    "engine-ports",
    "engine-user",
    "pass-env",
    "open",
    "card",
    "reserve",
    "downloads",
    "log-file",
    "ask",
    "allow-origin",
    "default",
    "strict-names",
    "autoload",
];
const OF_MODEL: [&str; 17] = [
    "memory",
    "cards",
    "ttl",
    "hold",
    "env",
    "pin",
    "preload",
    "unlisted",
    "warm",
    "load-timeout",
    "concurrency",
    "replicas",
    "max-requests",
    "program",
    "guard",
    "too-large",
    "depth-admission",
];

/// Applies a setting of the server; false for any other, which belongs to models.
pub(super) fn of_server(
    file: &Arc<str>,
    line: &PresetLine,
    serve: &mut ServeSettings,
) -> Result<bool, ConfigError> {
    match line.key.as_str() {
        "listen" => serve.listen = text(file, line, listen_addresses)?,
        "default" => serve.default = Some(line.value.clone()),
        "strict-names" => serve.strict_names = switch(file, line)?,
        "autoload" => serve.autoload = Some(switch(file, line)?),
        "models-max" => {
            let most = line.value.parse();
            serve.models_max = Some(most.map_err(|_| bad(file, line, "a number of models; 0 for no limit"))?);
        }
        "patience" => serve.patience = Some(length(file, line)?),
        "wait" => serve.wait = Some(length(file, line)?),
        "heartbeat" => serve.heartbeat = Some(length(file, line)?),
        "engine" => serve.engine = Some(words(file, line)?),
        "api-key-file" if line.value.is_empty() => {
            return Err(bad(file, line, "the path of a file with one API key per line"));
        }
        "api-key-file" => serve.api_key_files.push(line.value.clone()),
        "reclaim-before-load" => {
            serve.reclaim_before_load = Some(read(file, line, ReclaimBeforeLoad::EXPECTED)?);
        }
        "engine-ports" => serve.engine_ports = switch(file, line)?,
        "engine-user" => serve.engine_user = Some(line.value.clone()),
        "pass-env" => serve.pass_env.extend(words(file, line)?),
        "open" => serve.open = switch(file, line)?,
        "card" => serve.cards.extend(text(file, line, cards)?),
        "reserve" => serve.reserve = Some(read::<ReserveText>(file, line, "a size such as 512MiB")?.0),
        "yield-below" => {
            serve.yield_below = Some(read::<ReserveText>(file, line, "a size such as 1GiB")?.0);
        }
        "yield-to" => serve.yield_to.extend(words(file, line)?),
        "warm" => serve.warm = Some(read::<ReserveText>(file, line, "a size such as 8GiB")?.0),
        "downloads" => serve.downloads = Some(read::<FileText>(file, line, "the path of a folder")?.0),
        "log-file" => serve.log_file = Some(read::<FileText>(file, line, "the path of a file")?.0),
        "ask" => serve.ask = Some(read::<AskText>(file, line, "a time with its unit, such as 500ms")?.0),
        "allow-origin" => serve.allow_origins.push(text(file, line, web_origin)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets one key of a model.
pub(super) fn apply(
    file: &Arc<str>,
    line: &PresetLine,
    entry: &mut ConfiguredModel,
) -> Result<(), ConfigError> {
    match line.key.as_str() {
        "memory" => entry.memory = Some(read::<Size>(file, line, "a size such as 24GiB or 24576MiB")?.into()),
        "cards" => {
            let cards = line
                .value
                // Names of cards contain blanks (`NVIDIA H200`), so only commas separate.
                .split(',')
                .map(str::trim)
                .filter(|card| !card.is_empty());
            entry.cards = cards.map(str::to_owned).collect();
        }
        "ttl" => entry.ttl = Some(length(file, line)?),
        "hold" => entry.hold = Some(length(file, line)?),
        "load-timeout" => entry.load_timeout = Some(length(file, line)?),
        "env" => {
            let pair = line.value.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = pair.ok_or_else(|| bad(file, line, "NAME=VALUE"))?;
            // A model's own line replaces the one of `[*]`; the child gets each variable once.
            entry.env.retain(|(known, _)| known != name);
            entry.env.push((name.to_owned(), value.to_owned()));
        }
        "pin" => entry.pinned = switch(file, line)?,
        "preload" => entry.preload = switch(file, line)?,
        "warm" => entry.warm = switch(file, line)?,
        "unlisted" => entry.unlisted = switch(file, line)?,
        "concurrency" => entry.concurrency = Some(count(file, line)?),
        "replicas" => entry.replicas = Some(count(file, line)?),
        "max-requests" => entry.max_requests = Some(count(file, line)?),
        "program" => {
            // Sections of a preset always start a llama-server; other launches cannot occur.
            if let Launch::LlamaServer { program, .. } = &mut entry.launch {
                *program = Some(words(file, line)?);
            }
        }
        "guard" => {
            let params =
                GuardSettings::read(&line.value).ok_or_else(|| bad(file, line, GuardSettings::EXPECTED))?;
            // Line by line, so that `[*]` gives defaults.
            entry.guard = params.or(&entry.guard);
        }
        "too-large" => entry.too_large = read(file, line, TooLarge::EXPECTED)?,
        "depth-admission" => entry.depth_admission = switch(file, line)?,
        _ => return Err(unknown(file, line)),
    }
    Ok(())
}

fn count(file: &Arc<str>, line: &PresetLine) -> Result<u32, ConfigError> {
    let count = line.value.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| bad(file, line, "a number of at least 1"))
}

fn bad(file: &Arc<str>, line: &PresetLine, expected: &'static str) -> ConfigError {
    let problem = ConfigProblem::ReadValue { key: line.key.clone(), value: quoted(&line.value), expected };
    ConfigError::at(file, line.line, problem)
}

fn unknown(file: &Arc<str>, line: &PresetLine) -> ConfigError {
    // Both lists, since the misspelt key may belong to either place.
    let known = OF_MODEL.into_iter().chain(OF_SERVER);
    let near = known.filter_map(|name| Some((distance_within(&line.key, name, name.len() / 2)?, name)));
    let problem = if OF_SERVER.contains(&line.key.as_str()) {
        ConfigProblem::ReadLine {
            why: "this Plimsoll setting applies to the server, not to a model",
            remedy: "move the setting before the first section or into [*]",
        }
    } else {
        ConfigProblem::FindKey {
            key: quoted(&line.key),
            place: "`;plimsoll:`".to_owned(),
            nearest: near.min().map(|(_, name)| name.to_owned()),
        }
    };
    ConfigError::at(file, line.line, problem)
}

fn length(file: &Arc<str>, line: &PresetLine) -> Result<Duration, ConfigError> {
    read::<Length>(file, line, duration::EXPECTED).map(Into::into)
}

/// Reads a value by the type that the TOML format has for it.
fn read<T: DeserializeOwned>(
    file: &Arc<str>,
    line: &PresetLine,
    expected: &'static str,
) -> Result<T, ConfigError> {
    word(&line.value).ok_or_else(|| bad(file, line, expected))
}

/// Reads a value by a function that explains what is wrong.
fn text<T>(
    file: &Arc<str>,
    line: &PresetLine,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, ConfigError> {
    read(&line.value).map_err(|why| ConfigError::at(file, line.line, ConfigProblem::Parse(why)))
}

fn switch(file: &Arc<str>, line: &PresetLine) -> Result<bool, ConfigError> {
    truth(&line.value).ok_or_else(|| bad(file, line, "on or off"))
}

fn words(file: &Arc<str>, line: &PresetLine) -> Result<Vec<String>, ConfigError> {
    let words: Vec<String> = line.value.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() {
        return Err(bad(file, line, "a program, with its first arguments if it takes any"));
    }
    Ok(words)
}
