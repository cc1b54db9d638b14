//! Reader of one model's section in a TOML file.

use std::sync::Arc;

use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagOrigin, Options, Warning, quoted};
use toml::Spanned;

use super::document::{ModelTable, WordList};
use super::lines::LineIndex;
use super::spill;
use crate::command;
use crate::engine_flags::judge;
use crate::engine_kind::CommandKind;
use crate::failure::{ConfigError, ConfigProblem};
use crate::roster::{CHECK, ConfiguredModel, Launch, PORT};

/// Reads the section of a model; all mistakes in it are added to `found`.
pub(super) fn entry(
    lines: &LineIndex<'_>,
    name: String,
    model: ModelTable,
    origin: FlagOrigin,
    warnings: &mut Vec<Warning>,
    found: &mut Vec<ConfigError>,
) -> ConfiguredModel {
    let mut entry = ConfiguredModel::new(name, origin);
    let launch = match &model.cmd {
        Some(cmd) => command_of(lines, &entry, &model, cmd, warnings, found),
        None => flags(lines, &entry, &model, warnings, found),
    };
    entry.launch = launch.unwrap_or(entry.launch);
    entry.kind = model.kind;
    entry.aliases = model.aliases;
    entry.tags = model.tags;
    entry.title = model.name;
    entry.description = model.description;
    entry.filters = Arc::new(model.filters.into());
    entry.env = model.env.into_iter().collect();
    entry.memory = model.memory.map(Into::into);
    entry.cards = model.cards;
    entry.ttl = model.ttl.map(Into::into);
    entry.hold = model.hold.map(Into::into);
    entry.pinned = model.pin;
    entry.preload = model.preload;
    entry.unlisted = model.unlisted;
    entry.concurrency = model.concurrency.map(Into::into);
    entry.replicas = model.replicas.map(Into::into);
    entry.priority = model.priority;
    entry.max_requests = model.max_requests.map(Into::into);
    entry.load_timeout = model.load_timeout.map(Into::into);
    entry.warm = model.warm;
    entry.stop_timeout = model.stop_timeout.map(Into::into);
    entry.upstream_name = model.upstream_name;
    entry.guard = model.guard;
    entry.too_large = model.too_large;
    entry.depth_admission = model.depth_admission;
    if let Some(size) = model.spill {
        entry.spill = Some(size.get_ref().0).filter(|size| !size.is_zero());
        let mistake = entry.spill.and_then(|_| spill::mistake(&entry));
        found.extend(mistake.map(|problem| ConfigError::new(lines.origin(size.span().start), problem)));
    }
    entry
}

/// A model that gives a whole command.
fn command_of(
    lines: &LineIndex<'_>,
    entry: &ConfiguredModel,
    model: &ModelTable,
    cmd: &Spanned<WordList>,
    warnings: &mut Vec<Warning>,
    found: &mut Vec<ConfigError>,
) -> Option<Launch> {
    // A model that states both would be planned by one and run by the other.
    if model.model.is_some() || model.flags.is_some() || model.program.is_some() {
        let problem = ConfigProblem::ReadLine {
            why: "the model's section has `cmd` beside `model`, `flags` or `program`",
            remedy: "keep only `cmd` to start your own command, or only the other keys to start llama-server",
        };
        found.push(ConfigError::new(entry.origin.0.clone(), problem));
        return None;
    }
    let at = lines.origin(cmd.span().start);
    let stop = model.stop.as_ref().and_then(|stop| words(lines, stop, found));
    let argv = words(lines, cmd, found)?;
    // Without the port the daemon could neither check nor reach the child.
    if model.proxy.is_none() && !argv.iter().any(|argument| argument.contains(PORT)) {
        let problem = ConfigProblem::ReadLine {
            why: "the command does not use `${PORT}`, so its port is unknown",
            remedy: "pass `${PORT}` to the command, or set `proxy = \"http://127.0.0.1:…\"`",
        };
        found.push(ConfigError::new(at.clone(), problem));
    }
    let kind = model.kind.or_else(|| CommandKind::of(&argv));
    let launch = Launch::Command {
        argv,
        options: None,
        proxy: model.proxy.clone().unwrap_or_else(|| format!("http://127.0.0.1:{PORT}")),
        check: model.check.clone().unwrap_or_else(|| kind.map_or(CHECK, CommandKind::check).to_owned()),
        stop,
    };
    Some(launch.with_options(&entry.name, &|_| at.clone(), (warnings, found)))
}

/// A model that gives only flags: llama-server's own rules apply, and flags that Plimsoll sets itself are
/// refused.
fn flags(
    lines: &LineIndex<'_>,
    entry: &ConfiguredModel,
    model: &ModelTable,
    warnings: &mut Vec<Warning>,
    found: &mut Vec<ConfigError>,
) -> Option<Launch> {
    let mut argv = Vec::new();
    let mut at = vec![entry.origin.0.clone()];
    // As a flag, so that one code path plans and starts all models of llama-server.
    if let Some(path) = &model.model {
        argv.extend(["--model".to_owned(), path.get_ref().clone()]);
        at = vec![lines.origin(path.span().start); 2];
    }
    // Unlike a command, a line of flags may be empty.
    let is_blank = |words: &WordList| matches!(words, WordList::Line(line) if line.trim().is_empty());
    let mut torn = false;
    if let Some(flags) = model.flags.as_ref().filter(|flags| !is_blank(flags.get_ref())) {
        at.truncate(argv.len());
        // Faults in flags point at their line, not at the model's.
        at.push(lines.origin(flags.span().start));
        let words = words(lines, flags, found);
        torn = words.is_none();
        argv.extend(words.unwrap_or_default());
    }
    let program = model.program.as_ref().and_then(|program| words(lines, program, found));
    let origin = |word: usize| at.get(word).or(at.last()).unwrap_or(&entry.origin.0).clone();
    let (mut options, faults) = Options::known_in(&argv, origin);
    let is_source = |effect| matches!(effect, FlagClass::Model | FlagClass::Remote | FlagClass::Bundle);
    let has_source = options.settings().iter().any(|setting| is_source(setting.flag.effect));
    // An unreadable key may be the one that names the model.
    if !has_source && faults.is_empty() && !torn {
        let model = quoted(&entry.name);
        found.push(ConfigError::new(
            entry.origin.0.clone(),
            ConfigProblem::FindCommand { model, remedy: "`cmd`, or `model` and `flags`" },
        ));
    }
    found.extend(faults.into_iter().map(ConfigError::from));
    for setting in options.settings().iter().filter(|setting| setting.flag.effect == FlagClass::Router) {
        let text = format!("Plimsoll chooses the flag {} itself and ignores this value", setting.flag.name());
        let hint = match setting.flag.name() {
            "--host" | "--port" => "`listen` under [serve] is the server's own address",
            "--api-key" | "--api-key-file" => "`api-keys` under [serve] are the server's own",
            "--alias" => "give other names under `aliases`",
            _ => "remove it",
        };
        warnings.push(Warning::new(setting.origin.clone(), text).hint(hint));
    }
    // The daemon chooses address and port of its children.
    options.retain(|setting| setting.flag.effect != FlagClass::Router);
    warnings.extend(options.remarks());
    judge(&options, warnings);
    Some(Launch::LlamaServer { program, options })
}

/// The words of a command; none after a mistake, which is added to `found`.
pub(super) fn words(
    lines: &LineIndex<'_>,
    words: &Spanned<WordList>,
    found: &mut Vec<ConfigError>,
) -> Option<Vec<String>> {
    match words.get_ref() {
        WordList::Line(line) => {
            let fail = |problem| found.push(ConfigError::new(lines.origin(words.span().start), problem));
            command::split(line).map_err(fail).ok()
        }
        // A list is taken as it is: no quoting, no comments.
        WordList::List(list) => Some(list.clone()),
    }
}
