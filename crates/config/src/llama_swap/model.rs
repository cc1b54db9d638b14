//! Reader of one model entry of llama-swap's YAML.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_flags::{FlagOrigin, quoted};
use serde_json::{Map, Value};

use super::macros::{Macros, expand_environment, left_over};
use super::{Defaults, LlamaSwapReader, Unused, nearest};
use crate::command;
use crate::failure::{ConfigError, ConfigProblem};
use crate::filters::RequestFilters;
use crate::ports::port_flag;
use crate::roster::{CHECK, ConfiguredModel, Launch, PORT, RefusedModel};
use crate::yaml::{Node, Pair, YamlTree};

const READ: [&str; 15] = [
    "macros",
    "name",
    "description",
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

const WITHOUT_EFFECT: [Unused; 6] = [
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

/// The file's macros, and the variables of the environment by their names.
type Values<'a> = (&'a Macros, &'a dyn Fn(&str) -> Option<String>);

impl LlamaSwapReader<'_> {
    pub(super) fn model(
        &mut self,
        pair: &Pair,
        values: Values<'_>,
        defaults: &Defaults,
    ) -> Result<ConfiguredModel, Box<RefusedModel>> {
        let mark = self.mark();
        let mut entry = ConfiguredModel::new(pair.key.clone(), FlagOrigin::file(self.file, pair.line));
        let mut found = Vec::new();
        match self.expanded(pair, values) {
            Ok(node) => self.entry(&node, &mut entry, defaults, &mut found),
            Err(mistake) => found.push(mistake),
        }
        let mut all = self.mistakes_since(mark);
        all.append(&mut found);
        RefusedModel::of(entry, all)
    }

    /// The settings of a model, with its variables and macros put in.
    fn expanded(&mut self, pair: &Pair, (macros, env): Values<'_>) -> Result<Node, ConfigError> {
        if READ.contains(&pair.key.as_str()) && pair.value.pairs().is_none() {
            let why = "this is a setting of a model, but a model's name is expected here";
            return Err(self.fault(pair.line, why, "indent it further than the model's name"));
        }
        let Some(fields) = pair.value.pairs() else {
            return Err(self.bad(&pair.key, &pair.value, "its settings below it, such as `cmd: …`"));
        };
        let fields = fields.iter().filter(|field| field.key != "macros");
        let mut node = Node::map(fields.cloned().collect(), pair.line);
        expand_environment(self.file, &mut node, env, &mut self.unexpanded);
        // Without its macros, nothing can be said of its other settings.
        let mut own = pair.value.get("macros").cloned();
        if let Some(own) = &mut own {
            expand_environment(self.file, own, env, &mut Vec::new());
        }
        let macros = macros.of_model(&pair.key, Macros::read(self.file, own.as_ref())?);
        macros.expand(self.file, &mut node, &mut self.unexpanded);
        // A macro may hold a variable that is missing.
        if self.unexpanded.is_empty() {
            expand_environment(self.file, &mut node, env, &mut self.unexpanded);
        }
        self.macros = macros.names().map(str::to_owned).collect();
        Ok(node)
    }

    fn entry(
        &mut self,
        node: &Node,
        entry: &mut ConfiguredModel,
        defaults: &Defaults,
        found: &mut Vec<ConfigError>,
    ) {
        // After expansion: a macro may stand for a whole value, never for a key.
        self.warn_of_unread(node, &READ, &WITHOUT_EFFECT);
        let launch = self.launch(node, &entry.name, found).map(Some);
        if let Some(launch) = self.kept(launch) {
            entry.launch = launch;
        }
        let aliases = self.kept(self.texts(node, "aliases")).into_iter().map(|(alias, _)| alias);
        entry.aliases = aliases.filter(|alias| *alias != entry.name).collect();
        entry.title = self.shown(node, "name");
        entry.description = self.shown(node, "description");
        self.filters(node, entry);
        entry.env = self.env(node);
        entry.unlisted = self.kept(self.truth(node, "unlisted"));
        let upstream_name = self.kept(self.text(node, "useModelName"));
        entry.upstream_name = upstream_name.filter(|name| !name.is_empty()).map(str::to_owned);
        entry.concurrency = self.kept(self.number(node, "concurrencyLimit")).and_then(positive);
        entry.ttl = match self.kept(self.number(node, "ttl")) {
            // 0 turns the global time off for this model, so only -1 and absence inherit it.
            None | Some(-1) => defaults.ttl,
            Some(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
        };
        entry.load_timeout = Some(defaults.load_timeout);
        let stop = self.kept(self.number(node, "unloadTimeout")).and_then(positive);
        entry.stop_timeout =
            Some(stop.map_or(defaults.stop_timeout, |seconds| Duration::from_secs(seconds.into())));
    }

    /// A text for people; none if it is empty.
    fn shown(&mut self, node: &Node, key: &str) -> Option<String> {
        self.kept(self.text(node, key).map(|text| text.map(str::to_owned)))
            .filter(|text| !text.trim().is_empty())
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
        let check = self.plain(node, "checkEndpoint")?.unwrap_or_else(|| CHECK.to_owned());
        let launch = Launch::Command { argv, options: None, proxy, check, stop };
        Ok(launch.with_options(model, &at, (&mut self.roster.warnings, found)))
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
        // `${HOME}` of a shell is `${env.HOME}` here.
        let is_variable = |name: &&str| {
            *name != "PID" && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        };
        let declare = || match names.iter().find(|name| is_variable(name)).filter(|_| names.len() == 1) {
            Some(name) => format!("write `${{env.{name}}}` for a variable of the environment"),
            None => "declare the macro under `macros`, before the macros that use it".to_owned(),
        };
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

    fn filters(&mut self, node: &Node, entry: &mut ConfiguredModel) {
        let Some(filters) = node.get("filters") else { return };
        let read = self.pairs(filters, "filters").map(drop);
        self.kept(read);
        self.warn_of_unread(filters, &["stripParams", "setParams", "setParamsByID"], &[]);
        let strip =
            self.kept(self.text(filters, "stripParams").map(Option::unwrap_or_default).map(str::to_owned));
        let set = filters.get("setParams").map(|set| self.parameters("setParams", set)).unwrap_or_default();
        let by_name = filters.get("setParamsByID").map(|node| self.pairs(node, "setParamsByID")).transpose();
        let mut set_by_name: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for pair in self.kept(by_name).unwrap_or_default() {
            let left = self.no_left_over(&pair.key, pair.line, &[]);
            self.kept(left);
            set_by_name.entry(pair.key.clone()).or_default().extend(self.parameters(&pair.key, &pair.value));
            // Each of them is a name of the model; the key may repeat its own.
            if pair.key != entry.name && !entry.aliases.contains(&pair.key) {
                entry.aliases.push(pair.key.clone());
            }
        }
        let strip = strip.split(',').map(str::to_owned).collect();
        let filters = RequestFilters { strip, set, set_by_name, ..RequestFilters::default() };
        entry.filters = Arc::new(filters.checked());
    }

    fn parameters(&mut self, key: &str, node: &Node) -> Map<String, Value> {
        let pairs = self.pairs(node, key);
        let pairs = self.kept(pairs);
        pairs.iter().map(|pair| (pair.key.clone(), pair.value.to_json())).collect()
    }
}

fn positive(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0)
}
