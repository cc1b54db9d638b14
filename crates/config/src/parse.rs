//! Reads a configuration file (TOML, INI or YAML), and makes the checks that all three formats share.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Order};
use plimsoll_flags::{FlagOrigin, quoted};
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::failure::{ConfigError, ConfigMistakes, ConfigProblem};
use super::roster::{Configuration, ConfiguredModel, RefusedModel};
use super::{llama_swap, native, preset};

/// The longest file that is read: a thousand models with long commands are a fraction of it.
pub const LONGEST_CONFIGURATION: Bytes = Bytes::mib(1);

/// Reads a configuration file of which every model can be served.
pub fn parse(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigError> {
    parse_all(file_name, text, env).map_err(|mistakes| *mistakes.first)
}

/// Reads a configuration file of which every model can be served, or reports all its mistakes.
pub fn parse_all(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigMistakes> {
    parse_each(file_name, text, env)?.whole()
}

/// Reads a configuration file in any of the three formats, which the file extension determines. A model with
/// a mistake in its entry is listed in [`Configuration::refused`]; after a mistake anywhere else, all are
/// reported.
///
/// `env` looks up an environment variable, for `${env.NAME}` in llama-swap's YAML.
pub fn parse_each(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigMistakes> {
    let (roster, mut mistakes) = checked(file_name, text, env)?;
    if !mistakes.is_empty() {
        mistakes.extend(roster.refused.iter().flat_map(RefusedModel::errors).cloned());
    }
    ConfigMistakes::none_in(roster, mistakes)
}

/// The readable part of a file, and its mistakes, without those that refuse only their model.
fn checked(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Configuration, Vec<ConfigError>), ConfigMistakes> {
    let file: Arc<str> = file_name.into();
    let refused = |problem| Err(ConfigError::at(&file, 0, problem).into());
    // Before any parser, so that all three formats report it alike.
    if let Some((why, remedy)) = unreadable(text) {
        return refused(ConfigProblem::ReadText { why, remedy });
    }
    let extension = file_name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let (mut roster, mut mistakes) = match extension.to_ascii_lowercase().as_str() {
        // By extension only: INI, YAML and TOML overlap too much to tell by content.
        "ini" => preset::parse(&file, text)?,
        "yaml" | "yml" => llama_swap::parse(&file, text, env)?,
        "toml" => native::parse(&file, text),
        _ => return refused(ConfigProblem::NotifyFormat),
    };
    refuse_unreachable(&mut roster);
    mistakes.extend(default_exists(&file, &roster).err());
    Ok((roster, mistakes))
}

/// Reads a setting that is one word; `None` if it is no word of the type.
pub fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    let text: StrDeserializer<'_, ValueError> = text.into_deserializer();
    T::deserialize(text).ok()
}

/// No text of a file may hold what no command line can; and no file be larger than any real one.
fn unreadable(text: &str) -> Option<(&'static str, &'static str)> {
    if u64::try_from(text.len()).map_or(true, |length| length > LONGEST_CONFIGURATION.get()) {
        return Some(("the file is longer than 1 MiB", "split it"));
    }
    if text.starts_with('\u{feff}') {
        let why = "the file starts with a byte order mark, which llama-server refuses";
        return Some((why, "save the file as UTF-8 without a byte order mark"));
    }
    // No argument of a command line can hold one.
    text.contains('\0').then_some(("the file contains a zero byte", "save the file as UTF-8"))
}

/// Refuses models that no request could reach: by their name, or at their address.
fn refuse_unreachable(roster: &mut Configuration) {
    let mut doubled = doubled_names(roster);
    for model in std::mem::take(&mut roster.models) {
        let mut found = doubled.remove(&model.name).unwrap_or_default();
        found.extend(has_address(&model).err());
        roster.add(model, found);
    }
    for model in &mut roster.refused {
        model.others.extend(doubled.remove(&model.name).unwrap_or_default());
    }
}

/// Names and aliases that lead to an earlier model, by the model that repeats them. Those of a refused one
/// count: its mistake will be mended.
fn doubled_names(roster: &Configuration) -> HashMap<String, Vec<ConfigError>> {
    let served = roster.models.iter().map(|model| (&model.name, &model.aliases, &model.origin.0));
    let refused = roster.refused.iter().map(|model| (&model.name, &model.aliases, &model.origin.0));
    let mut entries: Vec<_> = served.chain(refused).collect();
    entries.order_by_key(|(.., origin)| origin.line());
    let mut taken: HashMap<&String, (&String, &FlagOrigin)> = HashMap::new();
    let mut found: HashMap<String, Vec<ConfigError>> = HashMap::new();
    for (model, aliases, origin) in entries {
        for name in std::iter::once(model).chain(aliases) {
            let Some(&(other, first)) = taken.get(name) else {
                taken.insert(name, (model, origin));
                continue;
            };
            let problem =
                ConfigProblem::NameModel { name: quoted(name), other: quoted(other), first: first.clone() };
            found.entry(model.clone()).or_default().push(ConfigError::new(origin.clone(), problem));
        }
    }
    found
}

/// The default model is one of the file's models.
fn default_exists(file: &Arc<str>, roster: &Configuration) -> Result<(), ConfigError> {
    let Some(default) = &roster.serve.default else { return Ok(()) };
    let good = roster.models.iter().map(|model| (&model.name, &model.aliases));
    let mut names = good.chain(roster.refused.iter().map(|model| (&model.name, &model.aliases)));
    if names.any(|(name, aliases)| name == default || aliases.contains(default)) {
        return Ok(());
    }
    let why = format!("`default = \"{}\"` names no model of the file; write a model's name", quoted(default));
    Err(ConfigError::at(file, 0, ConfigProblem::Parse(why)))
}

/// Requests can be sent to the engine.
fn has_address(entry: &ConfiguredModel) -> Result<(), ConfigError> {
    // The port is a stand-in; only the form is checked here.
    let read = entry.launch.address(1);
    read.map(drop).map_err(|(why, remedy)| {
        ConfigError::new(entry.origin.0.clone(), ConfigProblem::ReadLine { why, remedy })
    })
}
