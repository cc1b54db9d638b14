//! Reader of Plimsoll's own TOML configuration, the only format with every setting.
//!
//! The structs in `document` define the format; the JSON schema for editors is generated from them. An
//! unknown key is an error that names its line.

mod document;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::Order;
use plimsoll_flags::table::{FlagClass, by_argument, distance_within};
use plimsoll_flags::{FlagOrigin, Options, Warning, quoted};
use toml::Spanned;

use self::document::{ConfigDocument, KeyTable, ModelTable, WordList};
use super::command;
use super::engine_flags::{engine_flags, judge};
use super::engine_kind::CommandKind;
use super::failure::{ConfigError, ConfigProblem};
use super::key::{ConfiguredKey, KeyRight, KeySecret};
use super::roster::{CHECK, Configuration, ConfiguredModel, Launch, PORT, RefusedModel};
use super::serve_settings::ServeSettings;
use super::serve_values::{card, web_origin};

/// The JSON schema of the format, as it is published.
///
/// DECISION: a text instead of a call of [`schema`], whose code takes 200 KB. A test holds that both are equal.
pub const PUBLISHED_SCHEMA: &str = include_str!("../../../docs/reference/config.schema.json");

/// The JSON schema of the format, from the structs that read it.
pub fn schema() -> String {
    let schema = schemars::schema_for!(ConfigDocument);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// Reads a file.
pub(super) fn parse(file: &Arc<str>, text: &str) -> Result<Configuration, ConfigError> {
    let lines = LineIndex { file, text };
    // Spans are byte offsets; lines are counted only for errors and entries.
    let document: ConfigDocument = toml::from_str(text).map_err(|error| lines.explain(&error))?;
    let mut roster = Configuration { serve: serve_settings(&lines, &document)?, ..Configuration::default() };
    let mut models: Vec<_> = document.models.into_iter().collect();
    // The map is sorted by name; users expect the list of models in the order of their file.
    models.order_by_key(|(name, _)| name.span().start);
    for (name, model) in models {
        let origin = lines.origin(name.span().start);
        let (name, aliases) = (name.into_inner(), model.aliases.clone());
        match entry(&lines, name.clone(), model, origin, &mut roster.warnings) {
            Err(error) if error.is_of_a_flag() => roster.refused.push(RefusedModel { name, aliases, error }),
            entry => roster.models.push(entry?),
        }
    }
    Ok(roster)
}

fn serve_settings(lines: &LineIndex<'_>, document: &ConfigDocument) -> Result<ServeSettings, ConfigError> {
    let serve = &document.serve;
    let mut api_keys = Vec::with_capacity(serve.api_keys.len());
    for key in &serve.api_keys {
        // An unset variable in a template leaves `""`, which would switch the check for keys off.
        if key.get_ref().trim().is_empty() {
            let problem = ConfigProblem::BlankKey { key: "api-keys" };
            return Err(ConfigError::new(lines.origin(key.span().start), problem));
        }
        let fail = |why| ConfigError::new(lines.origin(key.span().start), ConfigProblem::Parse(why));
        KeySecret::read(key.get_ref()).map_err(fail)?;
        api_keys.push(key.get_ref().clone());
    }
    let command = document.engine.command.as_ref();
    let engine = command.map(|command| words(command.get_ref(), || lines.origin(command.span().start)));
    Ok(ServeSettings {
        listen: serve.listen.clone(),
        default: serve.default.clone(),
        strict_names: serve.strict_names,
        autoload: serve.autoload,
        api_keys,
        api_key_files: serve.api_key_files.clone(),
        keys: named_keys(lines, &document.keys)?,
        models_max: serve.models_max,
        patience: serve.patience.map(Into::into),
        wait: serve.wait.map(Into::into),
        heartbeat: serve.heartbeat.map(Into::into),
        engine: engine.transpose()?,
        open: serve.open,
        cards: each(lines, &serve.cards, card, |one, other| one.id == other.id)?,
        reserve: serve.reserve.as_ref().map(|size| size.0),
        yield_below: serve.yield_below.as_ref().map(|size| size.0),
        yield_to: serve.yield_to.clone(),
        warm: serve.warm.as_ref().map(|size| size.0),
        downloads: serve.downloads.as_ref().map(|folder| folder.0.clone()),
        log_file: serve.log_file.as_ref().map(|file| file.0.clone()),
        guard: serve.guard,
        ask: serve.ask.as_ref().map(|time| time.0),
        allow_origins: each(lines, &serve.allow_origins, web_origin, String::eq)?,
        reclaim_before_load: serve.reclaim_before_load,
        engine_ports: serve.engine_ports,
        engine_user: serve.engine_user.clone(),
        pass_env: serve.pass_env.clone(),
        webhook: serve.webhook.clone(),
        traces: serve.traces.clone(),
        log_level: serve.log_level,
        log_format: serve.log_format,
        fleet: document.fleet.store.clone(),
        fleet_host: document.fleet.host.clone(),
        fleet_address: document.fleet.address.clone(),
        fleet_key_file: document.fleet.key_file.clone(),
        fleet_listen: document.fleet.listen,
        fleet_identity: document.fleet.identity.clone(),
        fleet_watchers: document.fleet.watchers,
        fleet_share_files: document.fleet.share_files,
        fleet_share_bandwidth: document.fleet.share_bandwidth.map(Into::into),
    })
}

fn named_keys(
    lines: &LineIndex<'_>,
    tables: &BTreeMap<Spanned<String>, KeyTable>,
) -> Result<Vec<ConfiguredKey>, ConfigError> {
    let read = |(name, table): (&Spanned<String>, &KeyTable)| {
        let fail = |why| ConfigError::new(lines.origin(name.span().start), ConfigProblem::Parse(why));
        let secret =
            table.key.as_ref().ok_or_else(|| "the key has no `key`; add its text or its digest".to_owned());
        let secret = secret.and_then(|text| match text.get_ref().trim().is_empty() {
            true => Err("`key` is empty, which would admit requests without a key; write the key".to_owned()),
            false => KeySecret::read(text.get_ref()),
        });
        Ok(ConfiguredKey {
            name: name.get_ref().clone(),
            secret: secret.map_err(fail)?,
            models: table.models.clone(),
            rights: table.rights.clone().unwrap_or_else(|| vec![KeyRight::Use]),
            requests_per_minute: table.requests_per_minute,
            tokens_per_minute: table.tokens_per_minute,
            concurrency: table.concurrency,
            priority: table.priority,
            expires: table.expires.map(|time| time.0),
        })
    };
    tables.iter().map(read).collect()
}

/// Reads each text of a list; a text that cannot be read, or that says the same as another one, is named with its
/// line.
fn each<T>(
    lines: &LineIndex<'_>,
    texts: &[Spanned<String>],
    read: impl Fn(&str) -> Result<T, String>,
    same: impl Fn(&T, &T) -> bool,
) -> Result<Vec<T>, ConfigError> {
    let mut all: Vec<T> = Vec::with_capacity(texts.len());
    for text in texts {
        let fail = |why| ConfigError::new(lines.origin(text.span().start), ConfigProblem::Parse(why));
        let one = read(text.get_ref()).map_err(fail)?;
        if all.iter().any(|other| same(other, &one)) {
            return Err(fail(format!(
                "`{}` repeats an earlier entry; keep one of the two",
                quoted(text.get_ref())
            )));
        }
        all.push(one);
    }
    Ok(all)
}

fn entry(
    lines: &LineIndex<'_>,
    name: String,
    model: ModelTable,
    origin: FlagOrigin,
    warnings: &mut Vec<Warning>,
) -> Result<ConfiguredModel, ConfigError> {
    let mut entry = ConfiguredModel::new(name, origin);
    entry.launch = launch(lines, &entry, &model, warnings)?;
    entry.kind = model.kind;
    entry.aliases = model.aliases;
    entry.tags = model.tags;
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
    Ok(entry)
}

fn launch(
    lines: &LineIndex<'_>,
    entry: &ConfiguredModel,
    model: &ModelTable,
    warnings: &mut Vec<Warning>,
) -> Result<Launch, ConfigError> {
    let fail = |problem| Err(ConfigError::new(entry.origin.0.clone(), problem));
    let Some(cmd) = &model.cmd else {
        return flags(lines, entry, model, warnings);
    };
    // A model that states both would be ambiguous in what is planned and what runs.
    if model.model.is_some() || model.flags.is_some() || model.program.is_some() {
        return fail(ConfigProblem::ReadLine {
            why: "the model's section has `cmd` beside `model`, `flags` or `program`",
            remedy: "keep only `cmd` to start your own command, or only the other keys to start llama-server",
        });
    }
    let at = lines.origin(cmd.span().start);
    let argv = words(cmd.get_ref(), || at.clone())?;
    let stop = model.stop.as_ref().map(|stop| words(stop.get_ref(), || lines.origin(stop.span().start)));
    // Without the port the daemon could neither check nor reach the child.
    if model.proxy.is_none() && !argv.iter().any(|argument| argument.contains(PORT)) {
        return Err(ConfigError::new(
            at,
            ConfigProblem::ReadLine {
                why: "the command does not use `${PORT}`, so its port is unknown",
                remedy: "pass `${PORT}` to the command, or set `proxy = \"http://127.0.0.1:…\"`",
            },
        ));
    }
    let kind = model.kind.or_else(|| CommandKind::of(&argv));
    Ok(Launch::Command {
        options: engine_flags(&argv, &|_| at.clone(), warnings),
        argv,
        proxy: model.proxy.clone().unwrap_or_else(|| format!("http://127.0.0.1:{PORT}")),
        check: model.check.clone().unwrap_or_else(|| kind.map_or(CHECK, CommandKind::check).to_owned()),
        stop: stop.transpose()?,
    })
}

/// A model that gives only flags: llama-server's own rules apply, and flags that Plimsoll sets itself are
/// refused.
fn flags(
    lines: &LineIndex<'_>,
    entry: &ConfiguredModel,
    model: &ModelTable,
    warnings: &mut Vec<Warning>,
) -> Result<Launch, ConfigError> {
    let mut argv = Vec::new();
    let mut at = entry.origin.0.clone();
    // As a flag, so that one code path plans and starts all models of llama-server.
    if let Some(path) = &model.model {
        argv.extend(["--model".to_owned(), path.clone()]);
    }
    // Unlike a command, a line of flags may be empty.
    let is_blank = |words: &WordList| matches!(words, WordList::Line(line) if line.trim().is_empty());
    if let Some(flags) = model.flags.as_ref().filter(|flags| !is_blank(flags.get_ref())) {
        // Faults in flags point at their line, not at the model's.
        at = lines.origin(flags.span().start);
        argv.extend(words(flags.get_ref(), || at.clone())?);
    }
    let mut options = Options::from_argv_at(&argv, |_| at.clone())?;
    let is_source = |effect| matches!(effect, FlagClass::Model | FlagClass::Remote | FlagClass::Bundle);
    if !options.settings().iter().any(|setting| is_source(setting.flag.effect)) {
        let model = quoted(&entry.name);
        return Err(ConfigError::new(entry.origin.0.clone(), ConfigProblem::FindCommand { model }));
    }
    for setting in options.settings().iter().filter(|setting| setting.flag.effect == FlagClass::Router) {
        let text = format!("Plimsoll chooses the flag {} itself and ignores this value", setting.flag.name());
        warnings.push(Warning::new(setting.origin.clone(), text).hint("give this setting under [serve]"));
    }
    // The daemon chooses address and port of its children.
    options.retain(|setting| setting.flag.effect != FlagClass::Router);
    warnings.extend(options.remarks());
    judge(&options, warnings);
    let program =
        model.program.as_ref().map(|program| words(program.get_ref(), || lines.origin(program.span().start)));
    Ok(Launch::LlamaServer { program: program.transpose()?, options })
}

fn words(words: &WordList, origin: impl Fn() -> FlagOrigin) -> Result<Vec<String>, ConfigError> {
    match words {
        WordList::Line(line) => command::split(line).map_err(|problem| ConfigError::new(origin(), problem)),
        // A list is taken as it is: no quoting, no comments.
        WordList::List(list) => Ok(list.clone()),
    }
}

/// Line numbers for positions in the file.
struct LineIndex<'a> {
    file: &'a Arc<str>,
    text: &'a str,
}

impl LineIndex<'_> {
    fn origin(&self, offset: usize) -> FlagOrigin {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        FlagOrigin::file(self.file, u32::try_from(line).unwrap_or(u32::MAX))
    }

    /// A header such as `[models.qwen2.5-7b]`, whose dots TOML takes for further tables.
    fn torn_name(&self, at: usize) -> Option<ConfigProblem> {
        let (before, after) = (self.text.get(..at)?, self.text.get(at..)?);
        let line = [before.rsplit('\n').next()?, after.lines().next()?].concat();
        let header = line.trim_start().strip_prefix('[')?.split(']').next()?;
        let (table, name) = header.split_once('.').filter(|(table, _)| ["models", "keys"].contains(table))?;
        // Tables of a model are `env` and `guard`.
        let is_torn = name.contains('.') && !name.contains(['"', '\'']) && !name.ends_with(".env");
        (is_torn && !name.ends_with(".guard")).then(|| {
            let name = quoted(name);
            ConfigProblem::Parse(format!(
                "the name `{name}` has a dot, which divides tables; put it in quotes: [{table}.\"{name}\"]"
            ))
        })
    }

    fn explain(&self, error: &toml::de::Error) -> ConfigError {
        let origin = self.origin(error.span().map_or(0, |span| span.start));
        let message = error.message();
        let start = error.span().map_or(0, |span| span.start);
        let problem = self.torn_name(start).or_else(|| unknown_key(message)).unwrap_or_else(|| {
            // toml prints the source below its message; the origin names the line already.
            let first = message.lines().next().unwrap_or_default();
            let span = error.span().and_then(|span| self.text.get(span)).unwrap_or_default();
            let before = error.span().and_then(|span| self.text.get(..span.start)).unwrap_or_default();
            let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
            let of_key = line.starts_with("api-key") || line.starts_with("key") || first.ends_with(KEY_TABLE);
            let what = match first.rsplit_once(", expected ") {
                // serde repeats a value of the wrong type, which may be a key here.
                Some((shown, expected)) if of_key && shown.starts_with("invalid") => {
                    format!(
                        "the value has the wrong type, expected {}",
                        expected.replace(KEY_TABLE, "a table with `key`")
                    )
                }
                _ if first == "duplicate key" => format!("`{}` is given twice", quoted(span)),
                _ => quoted(first),
            };
            let remedy = REMEDIES.iter().find(|(message, _)| first.contains(message));
            ConfigProblem::Parse(what + remedy.map_or("", |(_, remedy)| remedy))
        });
        ConfigError::new(origin, problem)
    }
}

/// The name of a key's table in serde's messages.
const KEY_TABLE: &str = "struct KeyTable";

/// Parts of toml's messages, and what to do.
const REMEDIES: [(&str, &str); 8] = [
    ("invalid mantissa", "; put a text in quotes"),
    ("unclosed table", "; put a name with blanks in quotes: [models.\"A NAME\"]"),
    ("duplicate key", "; keep one of the two"),
    ("expected a string", "; put the value in quotes"),
    ("must be quoted", "; put the value in quotes"),
    ("expected a boolean", "; write true or false, without quotes"),
    ("expected a sequence", "; write a list, for example [\"a\", \"b\"]"),
    ("invalid basic string", "; close the quotation mark"),
];

/// The flag of llama-server that a key is named after.
fn flag_of(key: &str) -> Option<String> {
    let name = match key.replace('_', "-").as_str() {
        "ctx" | "context" | "n-ctx" | "context-size" => "ctx-size".to_owned(),
        name => name.to_owned(),
    };
    let flag = by_argument(&format!("--{name}")).or_else(|| by_argument(&format!("-{name}")))?;
    Some(format!("flags = \"{} …\"", flag.flag.name()))
}

/// serde names the wrong key and the right ones: pick the nearest.
fn unknown_key(message: &str) -> Option<ConfigProblem> {
    let (key, known) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let known = known.split('`').skip(1).step_by(2);
    // The message is serde's: the first backquoted word is the unknown key, the others are the known ones.
    let near = known.filter_map(|name| Some((distance_within(key, name, name.len() / 2)?, name)));
    Some(ConfigProblem::FindKey {
        key: quoted(key),
        place: "the file".to_owned(),
        // The command line has `--engine` beside the options that are keys of [serve].
        nearest: match key {
            "engine" => Some("command` under `[engine]".to_owned()),
            "port" | "host" | "address" => Some("listen".to_owned()),
            "path" | "file" | "gguf" | "model-path" | "model_path" => Some("model".to_owned()),
            "args" | "arguments" | "options" | "params" => Some("flags".to_owned()),
            _ => near.min().map(|(_, name)| name.to_owned()).or_else(|| flag_of(key)),
        },
    })
}
