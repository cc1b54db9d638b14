//! Reader of one model entry of llama-swap's YAML.

use std::time::Duration;

use plimsoll_flags::{FlagOrigin, quoted};

use super::macros::{Macros, left_over};
use super::tree::{Node, Pair, YamlTree};
use super::{Defaults, LlamaSwapReader, Unused, nearest};
use crate::command;
use crate::engine_flags::engine_flags;
use crate::failure::{ConfigError, ConfigProblem};
use crate::ports::port_flag;
use crate::roster::{CHECK, ConfiguredModel, Launch, PORT, RefusedModel};

const READ: [&str; 13] = [
    "macros",
    "cmd",
    "cmdStop",
    "proxy",
    "checkEndpoint",
    "aliases",
    "env",
    "ttl",
    "unloadTimeout",
    "unlisted",
    "useModelName",
    "concurrencyLimit",
    "filters",
];

const WITHOUT_EFFECT: [Unused; 8] = [
    ("name", "the list of models shows the model's key instead", true),
    ("description", "the list of models does not show this value", true),
    ("metadata", "the list of models does not show this value", true),
    ("capabilities", "Plimsoll reads the capabilities from the model file, not from the configuration", true),
    ("timeouts", "streamed answers have no time limit", false),
    ("compat", "remove it", true),
    ("sendLoadingState", "the progress of loading is shown in the model's status, not in answers", true),
    ("healthCheckTimeout", "llama-swap ignores this key too and uses the global value", true),
];

/// Lines of a command that are searched for a flag.
const LONGEST_COMMAND: usize = 200;

/// Drops comment lines from commands before any macro could stand in one.
pub(super) fn strip_comments(pair: &mut Pair) {
    let YamlTree::Map(models) = &mut pair.value.tree else {
        return;
    };
    if pair.key != "models" {
        return;
    }
    for model in models {
        let YamlTree::Map(fields) = &mut model.value.tree else {
            continue;
        };
        for field in fields.iter_mut().filter(|field| matches!(field.key.as_str(), "cmd" | "cmdStop")) {
            if let YamlTree::Scalar(text) = &mut field.value.tree {
                // A comment may contain `${unknown}`, which would be an error after this.
                *text = command::without_comments(text);
            }
        }
    }
}

/// The line of a word of the command that begins at line `from`, or that line for a word out of a macro.
fn line_of(text: &str, word: &str, from: u32) -> u32 {
    let is_key = |line: &str| {
        line.trim_start().split_once(':').is_some_and(|(key, rest)| {
            !key.contains(char::is_whitespace) && (rest.is_empty() || rest.starts_with(' '))
        })
    };
    let holds = |line: &str| line.split_whitespace().any(|part| part.trim_matches(['"', '\'']) == word);
    let first = usize::try_from(from).unwrap_or_default().saturating_sub(1);
    let lines = (from..).zip(text.lines().skip(first)).take(LONGEST_COMMAND);
    let own = lines.take_while(|(number, line)| *number == from || !is_key(line));
    // A comment of the command may name the same flag.
    let mut own = own.filter(|(_, line)| !line.trim_start().starts_with('#'));
    own.find(|(_, line)| holds(line)).map_or(from, |(number, _)| number)
}

impl LlamaSwapReader<'_> {
    pub(super) fn model(
        &mut self,
        pair: &Pair,
        macros: &Macros,
        defaults: &Defaults,
    ) -> Option<Result<ConfiguredModel, Box<RefusedModel>>> {
        if READ.contains(&pair.key.as_str()) && pair.value.pairs().is_none() {
            let why = "this is a setting of a model, but a model's name is expected here";
            self.kept::<()>(Err(self.fault(pair.line, why, "indent it further than the model's name")));
            return None;
        }
        if matches!(pair.value.tree, YamlTree::Scalar(_)) {
            self.kept::<()>(Err(self.bad(&pair.key, &pair.value, "its settings below it, such as `cmd: …`")));
            return None;
        }
        // Without its macros, nothing can be said of its other settings.
        let own = self.kept(Macros::read(self.file, pair.value.get("macros")).map(Some))?;
        let macros = macros.of_model(&pair.key, own);
        let fields = self.kept(self.pairs(&pair.value, &pair.key).map(Some))?;
        let fields = fields.iter().filter(|field| field.key != "macros");
        let mut node = Node { tree: YamlTree::Map(fields.cloned().collect()), line: pair.line };
        macros.expand(self.file, &mut node, &mut self.unexpanded);
        self.macros = macros.names().map(str::to_owned).collect();
        // After expansion: a macro may stand for a whole value, never for a key.
        self.warn_of_unread(&node, &READ, &WITHOUT_EFFECT);
        let mut entry = ConfiguredModel::new(pair.key.clone(), FlagOrigin::file(self.file, pair.line));
        let mut found = Vec::new();
        let launch = self.launch(&node, &pair.key, &mut found).map(Some);
        entry.launch = self.kept(launch).unwrap_or(entry.launch);
        let aliases = self.kept(self.texts(&node, "aliases")).into_iter().map(|(alias, _)| alias);
        entry.aliases = aliases.filter(|alias| *alias != pair.key).collect();
        let filters = self.filters(&node, &mut entry);
        self.kept(filters);
        entry.env = self.env(&node);
        entry.unlisted = self.kept(self.truth(&node, "unlisted"));
        let upstream_name = self.kept(self.text(&node, "useModelName"));
        entry.upstream_name = upstream_name.filter(|name| !name.is_empty()).map(str::to_owned);
        entry.concurrency = self.kept(self.number(&node, "concurrencyLimit")).and_then(positive);
        entry.ttl = match self.kept(self.number(&node, "ttl")) {
            // 0 turns the global time off for this model, so only -1 and absence inherit it.
            None | Some(-1) => defaults.ttl,
            Some(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
        };
        entry.load_timeout = Some(defaults.load_timeout);
        let stop = self.kept(self.number(&node, "unloadTimeout")).and_then(positive);
        entry.stop_timeout =
            Some(stop.map_or(defaults.stop_timeout, |seconds| Duration::from_secs(seconds.into())));
        Some(RefusedModel::of(entry, found))
    }

    /// The command of a model; flags that refuse it are added to `found`.
    fn launch(
        &mut self,
        node: &Node,
        model: &str,
        found: &mut Vec<ConfigError>,
    ) -> Result<Launch, ConfigError> {
        let Some(argv) = self.command(node, "cmd", &["PORT"])? else {
            let model = quoted(model);
            return Err(ConfigError::at(
                self.file,
                node.line,
                ConfigProblem::FindCommand { model, remedy: "`cmd`" },
            ));
        };
        // `${PID}` is known only once the child runs, so it stays.
        let stop = self.kept(self.command(node, "cmdStop", &["PORT", "PID"]));
        let line = node.get("cmd").map_or(node.line, |cmd| cmd.line);
        let proxy = self.proxy(node, &argv)?;
        let is_fixed = port_flag(&argv).flatten().is_some_and(|port| !port.contains(PORT));
        if argv.iter().any(|argument| argument.contains(PORT)) && !proxy.contains(PORT) && !is_fixed {
            let line = node.get("proxy").map_or(line, |proxy| proxy.line);
            let what = format!("requests go to {}, but `cmd` listens on `{PORT}`", quoted(&proxy));
            self.warn(line, what, "leave `proxy` out, or write `${PORT}` as its port");
        }
        let (file, text) = (self.file, self.text);
        let at = |word: &str| FlagOrigin::file(file, line_of(text, word, line));
        Ok(Launch::Command {
            options: engine_flags(&argv, &at, &mut self.roster.warnings, found),
            proxy,
            check: self.plain(node, "checkEndpoint")?.unwrap_or_else(|| CHECK.to_owned()),
            argv,
            stop,
        })
    }

    /// A command, split into its arguments; none if there is no text.
    fn command(&self, node: &Node, key: &str, known: &[&str]) -> Result<Option<Vec<String>>, ConfigError> {
        let Some(text) = self.text(node, key)?.filter(|text| !text.trim().is_empty()) else {
            return Ok(None);
        };
        let line = node.get(key).map_or(node.line, |node| node.line);
        self.no_left_over(text, line, known)?;
        let split = command::split(text);
        split.map(Some).map_err(|problem| ConfigError::at(self.file, line, problem))
    }

    /// A text in which no macro may be left.
    fn plain(&self, node: &Node, key: &str) -> Result<Option<String>, ConfigError> {
        let Some(text) = self.text(node, key)?.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        self.no_left_over(text, node.get(key).map_or(node.line, |node| node.line), &["PORT"])?;
        Ok(Some(text.to_owned()))
    }

    fn no_left_over(&self, text: &str, line: u32, known: &[&str]) -> Result<(), ConfigError> {
        let names = left_over(text, known);
        let named = || self.macros.iter().map(String::as_str).chain(known.iter().copied());
        // A name that is declared is used by a macro above it.
        let near = |name: &&str| nearest(name, named().filter(|named| named != name));
        let near: Option<Vec<String>> =
            names.iter().map(|name| near(name).map(|near| format!("`${{{near}}}`"))).collect();
        let why = match names.len() {
            0 => return Ok(()),
            1 => "there is no such macro",
            _ => "there are no such macros",
        };
        let declare = || "declare the macro under `macros`, before the macros that use it".to_owned();
        let problem = ConfigProblem::ExpandMacro {
            name: names.join("`, `"),
            why,
            remedy: near.map_or_else(declare, |near| format!("did you mean {}?", near.join(", "))),
        };
        Err(ConfigError::at(self.file, line, problem))
    }

    fn proxy(&self, node: &Node, argv: &[String]) -> Result<String, ConfigError> {
        let takes_port = argv.iter().any(|argument| argument.contains(PORT));
        let Some(proxy) = self.plain(node, "proxy")? else {
            if takes_port {
                return Ok(format!("http://127.0.0.1:{PORT}"));
            }
            let (why, remedy) = (
                "`cmd` does not use `${PORT}`, and `proxy` is not set",
                "use `${PORT}` in `cmd`, or set `proxy`",
            );
            return Err(self.fault(node.line, why, remedy));
        };
        let line = node.get("proxy").map_or(node.line, |node| node.line);
        // The proxy would point at a port that nothing listens on.
        if proxy.contains(PORT) && !takes_port {
            return Err(self.fault(
                line,
                "`proxy` uses `${PORT}` but `cmd` does not",
                "pass `${PORT}` to the command",
            ));
        }
        // A child on the loopback has no certificate; https and unix sockets are not spoken to children.
        if !proxy.starts_with("http://") {
            return Err(self.fault(
                line,
                "`proxy` is not an `http://` address",
                "write `http://127.0.0.1:PORT`",
            ));
        }
        Ok(proxy)
    }

    fn env(&mut self, node: &Node) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (text, line) in self.kept(self.texts(node, "env")) {
            let pair = match text.split_once('=') {
                Some((name, value)) if !name.is_empty() => Ok(Some((name.to_owned(), value.to_owned()))),
                _ => Err(self.fault(line, "a variable has no `=`", "write `NAME=VALUE`")),
            };
            pairs.extend(self.kept(pair));
        }
        pairs
    }

    /// Filters rewrite requests, which we do not; the names they add are names all the same.
    fn filters(&mut self, node: &Node, entry: &mut ConfiguredModel) -> Result<(), ConfigError> {
        let Some(filters) = node.get("filters") else {
            return Ok(());
        };
        for pair in self.pairs(filters, "filters")? {
            if pair.key == "setParamsByID" {
                let names = self.pairs(&pair.value, "setParamsByID")?.iter().map(|pair| &pair.key);
                // The key may repeat the model's own name, which is no alias.
                let new = names.filter(|name| **name != entry.name && !entry.aliases.contains(name));
                let new: Vec<String> = new.cloned().collect();
                entry.aliases.extend(new);
            }
            let text =
                format!("`filters.{}` has no effect: requests are forwarded unchanged", quoted(&pair.key));
            self.warn(pair.line, text, "set the value in the client or on the model's command line");
        }
        Ok(())
    }
}

fn positive(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0)
}
