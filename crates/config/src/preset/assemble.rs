//! Converts the sections of a llama-server preset file to model entries.
//!
//! Keys become command-line flags, keys that llama-server reserves are dropped, and names are brought into
//! llama-server's canonical form.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_flags::table::{FlagArity, FoundFlag, KnownFlag};
use plimsoll_flags::{FlagError, FlagOrigin, FlagValue, Options, Setting, Warning, quoted, table, truth};

use super::grammar::{PresetLine, Section};
use super::{ConfigError, ConfigProblem, ConfiguredModel, FlagClass, Launch};
use crate::engine_flags::judge;

/// The settings of a section, ordered as llama.cpp orders them: by the first spelling of the flag.
///
/// Keys are taken in the order of their letters, so of two spellings of one flag the later letter wins, not
/// the later line. Mistakes are added to `found`.
pub(super) fn options(
    file: &Arc<str>,
    section: &Section,
    warnings: &mut Vec<Warning>,
    found: &mut Vec<ConfigError>,
) -> Options {
    // std::map again: keys are applied in the order of their letters.
    let mut by_key: BTreeMap<&str, &PresetLine> = BTreeMap::new();
    for line in section.settings.iter().filter(|line| line.key != "version") {
        if let Some(before) = by_key.insert(&line.key, line) {
            warnings.push(lost(file, before, line));
        }
    }
    let mut by_flag: BTreeMap<&str, (&PresetLine, Setting)> = BTreeMap::new();
    for line in by_key.into_values() {
        let setting = match setting(file, section, line, warnings) {
            Ok(Some(setting)) => setting,
            Ok(None) => continue,
            Err(mistake) => {
                found.push(mistake);
                continue;
            }
        };
        let first = setting.flag.names.first().copied().unwrap_or_default();
        if let Some((before, _)) = by_flag.insert(first, (line, setting)) {
            warnings.push(lost(file, before, line));
        }
    }
    by_flag.into_values().map(|(_, setting)| setting).collect()
}

fn lost(file: &Arc<str>, lost: &PresetLine, wins: &PresetLine) -> Warning {
    let text = format!("`{}` has no effect: `{}` on line {} overrides it", lost.key, wins.key, wins.line);
    Warning::new(FlagOrigin::file(file, lost.line), text).hint("keep only one of the two settings")
}

fn setting(
    file: &Arc<str>,
    section: &Section,
    line: &PresetLine,
    warnings: &mut Vec<Warning>,
) -> Result<Option<Setting>, ConfigError> {
    let origin = FlagOrigin::file(file, line.line);
    let Some(found) = table::by_key(&line.key) else {
        let nearest =
            // Keys have no dashes, so both forms are tried for a suggestion.
            table::nearest(&format!("--{}", line.key)).or_else(|| table::nearest(&format!("-{}", line.key)));
        let problem = ConfigProblem::FindKey {
            key: quoted(&line.key),
            place: format!("[{}]", quoted(&section.name)),
            nearest: nearest.map(|name| name.trim_start_matches('-').to_owned()),
        };
        return Err(ConfigError::new(origin, problem));
    };
    if found.flag.known == KnownFlag::Ik {
        let text = format!("`{}` exists only in ik_llama.cpp; llama-server rejects it", line.key);
        warnings.push(Warning::new(origin.clone(), text));
    }
    // The router's keys have no effect in a section, but a blank one shows that a template went wrong.
    if found.flag.name() == "--api-key" && line.value.trim().is_empty() {
        return Err(ConfigError::new(origin, ConfigProblem::BlankKey { key: "api-key" }));
    }
    // `unset_reserved_args` removes these before it starts a child.
    if let Some(warning) = dropped(&origin, found, line) {
        warnings.push(warning);
        return Ok(None);
    }
    warnings.extend(inverted(&origin, found, line));
    let value = match found.flag.takes {
        // `key = off` leaves a bare flag out; there is no spelling that turns it off.
        FlagArity::Nothing if truth(&line.value) == Some(false) => return Ok(None),
        FlagArity::Nothing => FlagValue::Bare,
        FlagArity::Switch => FlagValue::Switch(switched(found, &line.value)),
        FlagArity::Value | FlagArity::OptionalValue | FlagArity::Number => {
            let written = found.flag.whole_number(&format!("{} =", line.key), &line.value);
            written.map_err(|problem| FlagError { origin: origin.clone(), problem })?;
            FlagValue::Text(line.value.clone())
        }
        FlagArity::TwoValues => {
            let problem = ConfigProblem::PassTwoValues { key: line.key.clone() };
            return Err(ConfigError::new(origin, problem));
        }
    };
    Ok(Some(Setting { flag: found.flag, value, origin }))
}

/// `parse_bool_arg`, then `to_args`: a negative key is turned round by a true value only, and then whatever
/// is not false is on.
fn switched(found: FoundFlag, value: &str) -> bool {
    if found.negative { truth(value) != Some(true) } else { truth(value) != Some(false) }
}

/// Settings that llama-server's router takes out before it starts a child.
fn dropped(origin: &FlagOrigin, found: FoundFlag, line: &PresetLine) -> Option<Warning> {
    let say = |text: String, hint: &'static str| Some(Warning::new(origin.clone(), text).hint(hint));
    match found.flag.name() {
        "--alias" | "--api-key-file" => None,
        "dedup-cache-models" => say(format!("`{}` has no effect in Plimsoll", line.key), "remove it"),
        _ if found.flag.effect == FlagClass::Router => say(
            format!("`{}` has no effect in a section: it is a setting of the server", line.key),
            "give this setting to `plimsoll serve` instead",
        ),
        _ => None,
    }
}

/// Warning for values with the opposite effect of their words.
fn inverted(origin: &FlagOrigin, found: FoundFlag, line: &PresetLine) -> Option<Warning> {
    let on_or_off = matches!(found.flag.takes, FlagArity::Nothing | FlagArity::Switch);
    let variable =
        found.spelling.trim_start_matches('-') != line.key && line.key.starts_with("LLAMA_ARG_NO_");
    // Words such as `yes` are not truthy in llama.cpp, and negative variables invert silently.
    let odd = truth(&line.value).is_none() || variable && found.flag.env != Some(&line.key);
    if !on_or_off || !odd {
        return None;
    }
    let on = found.flag.takes == FlagArity::Nothing || switched(found, &line.value);
    let name = found.flag.spelling(&if on { FlagValue::Bare } else { FlagValue::Switch(false) })?;
    let says = matches!(line.value.to_ascii_lowercase().as_str(), "yes" | "y" | "on" | "true" | "1" | "");
    let meant = says != (found.negative || variable);
    (on != meant).then(|| {
        let text = format!("`{} = {}` becomes {name}", line.key, quoted(&line.value));
        let hint = "llama-server accepts on, enabled, true or 1, and off, disabled, false or 0";
        Warning::new(origin.clone(), text).hint(hint)
    })
}

/// The entry of a section whose options are complete; mistakes are added to `found`.
pub(super) fn entry(
    file: &Arc<str>,
    section: &Section,
    mut options: Options,
    warnings: &mut Vec<Warning>,
    found: &mut Vec<ConfigError>,
) -> ConfiguredModel {
    let origin = FlagOrigin::file(file, section.line);
    // An unreadable key may be the one that names the model.
    if found.is_empty() {
        found.extend(add_model(section, &mut options, &origin, warnings).err());
    }
    // The order in which llama-server's router passes them, so that `-ot` patterns match alike.
    options.sort();
    warnings.extend(options.remarks());
    let mut entry = ConfiguredModel::new(section.name.clone(), origin);
    entry.aliases = list(options.text("--alias"));
    // llama-server puts the section's own name among the aliases.
    entry.aliases.retain(|alias| *alias != section.name);
    entry.tags = list(options.text("--tags"));
    entry.preload = options.text("load-on-startup").is_some_and(|text| truth(text) == Some(true));
    entry.stop_timeout = seconds(&options, "stop-timeout", 0, warnings);
    entry.ttl = seconds(&options, "--sleep-idle-seconds", -1, warnings).filter(|idle| !idle.is_zero());
    options.retain(|Setting { flag, .. }| {
        flag.known != KnownFlag::Preset && !matches!(flag.name(), "--alias" | "--sleep-idle-seconds")
    });
    judge(&options, warnings);
    entry.launch = Launch::LlamaServer { program: None, options };
    entry
}

/// A section without a model would become a second router. One that is named as a repository is merged by
/// llama-server over what it has downloaded under that name; we name the repository.
fn add_model(
    section: &Section,
    options: &mut Options,
    origin: &FlagOrigin,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    let is_source = |setting: &Setting| {
        let source = matches!(setting.flag.effect, FlagClass::Model | FlagClass::Remote | FlagClass::Bundle);
        source && setting.value != FlagValue::Text(String::new())
    };
    if options.settings().iter().any(is_source) {
        return Ok(());
    }
    // `user/repository`, as llama-server names what it has downloaded.
    let repository = section.name.matches('/').count() == 1 && !section.name.contains(char::is_whitespace);
    let Some(found) = table::by_key("hf-repo").filter(|_| repository) else {
        let problem = ConfigProblem::FindModel {
            model: quoted(&section.name),
            remedy: "add `model = /path/to/model.gguf` or `hf-repo = user/repository`",
        };
        return Err(ConfigError::new(origin.clone(), problem));
    };
    let text = format!("section [{0}] names no model, so its name is used: `hf-repo = {0}`", section.name);
    warnings.push(Warning::new(origin.clone(), text).hint("write `hf-repo` in the section"));
    options.push(Setting {
        flag: found.flag,
        value: FlagValue::Text(section.name.clone()),
        origin: origin.clone(),
    });
    Ok(())
}

fn list(text: Option<&str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for item in text.unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if !all.iter().any(|known| known == item) {
            all.push(item.to_owned());
        }
    }
    all
}

/// A number of seconds, read as `std::stoi` reads it; a bad one is left out with a warning, as llama-server
/// does.
fn seconds(options: &Options, name: &str, least: i64, warnings: &mut Vec<Warning>) -> Option<Duration> {
    let setting = options.get(name)?;
    let FlagValue::Text(text) = &setting.value else {
        return None;
    };
    let number = text.trim_start();
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(number.len());
    match number[..end].parse::<i64>() {
        // -1 is llama-server's "never"; for other keys it is an error.
        Ok(-1) if least == -1 => None,
        // `std::stoi` throws beyond an int, and llama-server then keeps its default.
        Ok(count @ 0..=0x7fff_ffff) => Some(Duration::from_secs(count.unsigned_abs())),
        _ => {
            let text = format!("`{}` is not a number of seconds; the default is used", quoted(text));
            warnings.push(Warning::new(setting.origin.clone(), text));
            None
        }
    }
}

/// `canonical_tag`: what stands after the last `:` in upper case, and of that only what follows the last `-`
/// or `.`
pub(super) fn canonical_name(name: &str) -> String {
    let Some((stem, tag)) = name.rsplit_once(':') else {
        return name.to_owned();
    };
    let word = |text: &&str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let last = tag.rsplit_once(['-', '.']).map(|(_, last)| last).filter(word);
    format!("{stem}:{}", last.unwrap_or(tag).to_ascii_uppercase())
}
