//! Reader of llama-swap's YAML configuration (`internal/config @ v250`).
//!
//! Every key means the same as in llama-swap. A setting without effect in Plimsoll gets a warning with its
//! line number.

mod macros;
mod model;
mod reader;
mod tree;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_flags::quoted;
use plimsoll_flags::table::distance_within;

use self::macros::Macros;
use self::reader::LlamaSwapReader;
use self::tree::{Node, Pair, YamlTree};
use super::failure::{ConfigError, ConfigProblem};
use super::roster::{Configuration, ConfiguredModel};

/// Keys that are read; `macros` and `models` before the others.
const READ: [&str; 10] = [
    "macros",
    "models",
    "groups",
    "matrix",
    "routing",
    "hooks",
    "apiKeys",
    "healthCheckTimeout",
    "globalTTL",
    "unloadTimeout",
];

/// A key without effect here, the reason, and true if nothing behaves otherwise without it.
type Unused = (&'static str, &'static str, bool);

const WITHOUT_EFFECT: [Unused; 16] = [
    ("startPort", "the operating system assigns a port to each engine", true),
    ("logLevel", "choose what is logged with --log-level, or `log-level` under [serve]", true),
    ("logRequests", "choose what is logged with --log-level, or `log-level` under [serve]", true),
    ("logTimeFormat", "log lines begin with the time in UTC", true),
    ("logToStdout", "the output of each model goes to a separate log file", true),
    ("metricsMaxInMemory", "the endpoint `/metrics` needs no size limit", true),
    ("captureBuffer", "plimsoll does not record requests", true),
    ("store", "plimsoll does not record requests", true),
    ("performance", "plimsoll always monitors GPU memory", true),
    ("ui", "remove it", true),
    ("upstream", "remove it", true),
    ("sendLoadingState", "the progress of loading is shown in the model's status, not in answers", true),
    ("includeAliasesInList", "the model list shows aliases in each model's entry", true),
    ("profiles", "give each model its own name", false),
    ("selectors", "give each model its own name", false),
    ("peers", "plimsoll forwards no requests to other machines", false),
];

/// Reads a file: what could be read of it, and the mistakes in the rest. An error is one that hides all others.
pub(super) fn parse(
    file: &Arc<str>,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Configuration, Vec<ConfigError>), ConfigError> {
    // Of `groups`, `matrix` and `profiles`, only `persistent` is used (such a model is never evicted),
    // because Plimsoll decides by memory.
    let root = Node::parse(file, text)?;
    let mut reader = LlamaSwapReader::new(file, text);
    // The order is llama-swap's: comments out, environment in, macros last.
    let mut pairs = match root.tree {
        YamlTree::Map(pairs) => pairs,
        YamlTree::Null => Vec::new(),
        YamlTree::Scalar(_) | YamlTree::List(_) => {
            return Err(reader.fault(root.line, "the file is not a YAML mapping", "write `models:`"));
        }
    };
    for pair in &mut pairs {
        model::strip_comments(pair);
        macros::expand_environment(file, &mut pair.value, env, &mut reader.unexpanded);
    }
    // Keys are unique: the YAML reader refuses a second one.
    let find = |key| pairs.iter().find(|pair: &&Pair| pair.key == key).map(|pair| pair.value.clone());
    // Any text may use a macro, so nothing can be said of the rest of a file whose macros are not known.
    let macros = Macros::read(file, find("macros").as_ref())?;
    let models = find("models");
    if models.is_none() {
        reader.refuse_misspelt_models(&pairs)?;
    }
    let mut global = Node {
        tree: YamlTree::Map(
            pairs.into_iter().filter(|pair| !matches!(pair.key.as_str(), "macros" | "models")).collect(),
        ),
        line: 1,
    };
    macros.expand(file, &mut global, &mut reader.unexpanded);
    reader.warn_of_unread(&global, &READ, &WITHOUT_EFFECT);
    let defaults = reader.defaults(&global);
    let models = models.as_ref().map(|node| reader.pairs(node, "models")).transpose();
    for pair in reader.kept(models).unwrap_or_default() {
        match reader.model(pair, &macros, &defaults) {
            Some(Ok(entry)) => reader.roster.models.push(entry),
            Some(Err(refused)) => reader.roster.refused.push(*refused),
            None => {}
        }
    }
    // After the models, whose entries they change.
    reader.groups(&global);
    reader.preload(&global);
    Ok(reader.done())
}

/// Global default settings of models.
struct Defaults {
    ttl: Option<Duration>,
    load_timeout: Duration,
    stop_timeout: Duration,
}

/// Letters in which a key differs from `name`, with a bound for the names of other things.
fn distance(key: &str, name: &str) -> usize {
    distance_within(&key.to_ascii_lowercase(), &name.to_ascii_lowercase(), name.len() / 3)
        .unwrap_or(usize::MAX)
}

/// True for a key that is probably meant to be `name`.
fn is_near(key: &str, name: &str) -> bool {
    distance(key, name) < usize::MAX
}

/// The name that is probably meant, if any is near.
fn nearest<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.min_by_key(|name| distance(key, name)).filter(|name| is_near(key, name))
}

impl LlamaSwapReader<'_> {
    /// Without `models` there is nothing to serve; a key that is nearly `models` is a mistake, not a wish.
    fn refuse_misspelt_models(&self, pairs: &[Pair]) -> Result<(), ConfigError> {
        let Some(pair) = pairs.iter().find(|pair| is_near(&pair.key, "models")) else {
            return Ok(());
        };
        let problem = ConfigProblem::FindKey {
            key: quoted(&pair.key),
            place: "a file without `models`".to_owned(),
            nearest: Some("models".to_owned()),
        };
        Err(ConfigError::at(self.file, pair.line, problem))
    }

    fn defaults(&mut self, global: &Node) -> Defaults {
        let seconds = |number: Option<i64>, default: u64| {
            let number = number.and_then(|number| u64::try_from(number).ok());
            Duration::from_secs(number.unwrap_or(default))
        };
        for (key, line) in self.kept(self.texts(global, "apiKeys")) {
            let key = self.kept(self.api_key(key, line).map(Some));
            self.roster.serve.api_keys.extend(key);
        }
        let ttl = seconds(self.kept(self.number(global, "globalTTL")), 0);
        let stop = self.kept(self.number(global, "unloadTimeout")).filter(|&seconds| seconds > 0);
        // 120 s by default and 15 s at least, as in llama-swap.
        let load_timeout = seconds(self.kept(self.number(global, "healthCheckTimeout")), 120);
        Defaults {
            ttl: (!ttl.is_zero()).then_some(ttl),
            load_timeout: load_timeout.max(Duration::from_secs(15)),
            stop_timeout: seconds(stop, 10),
        }
    }

    fn api_key(&self, key: String, line: u32) -> Result<String, ConfigError> {
        // A macro or variable without a value leaves a blank key behind.
        if key.trim().is_empty() {
            let problem = ConfigProblem::BlankKey { key: "apiKeys" };
            return Err(ConfigError::at(self.file, line, problem));
        }
        if key.contains(char::is_whitespace) {
            return Err(self.fault(line, "an API key contains a space", "write the key without spaces"));
        }
        Ok(key)
    }

    /// Groups, by their old and their new place.
    fn groups(&mut self, global: &Node) {
        let routing = global.get("routing");
        let settings = routing.and_then(|node| node.get("router")).and_then(|node| node.get("settings"));
        if let Some(scheduler) = routing.and_then(|node| node.get("scheduler")) {
            self.warn(
                scheduler.line,
                "`routing.scheduler` has no effect".to_owned(),
                "requests wait in the order of their arrival",
            );
        }
        // Newer releases have groups below `routing.router.settings`, older ones at the top level.
        for parent in [Some(global), settings].into_iter().flatten() {
            if let Some(matrix) = parent.get("matrix") {
                let text = "`matrix` has no effect: models run together whenever they fit in memory";
                self.warn(matrix.line, text.to_owned(), "use `pin` to keep a model loaded");
            }
            let groups = parent.get("groups").map(|node| self.pairs(node, "groups")).transpose();
            for group in self.kept(groups).unwrap_or_default() {
                self.group(group);
            }
        }
    }

    /// Warns of a name in `list` that is no model's.
    fn warn_of_unknown(&mut self, line: u32, name: &str, list: &str) {
        if self
            .roster
            .refused
            .iter()
            .any(|model| model.name == name || model.aliases.iter().any(|it| it == name))
        {
            return;
        }
        let near = nearest(name, self.roster.models.iter().map(|entry| entry.name.as_str()));
        let remove = || format!("remove this name from {list}");
        let hint = near.map_or_else(remove, |near| format!("did you mean `{}`?", quoted(near)));
        self.warn(line, format!("`{}` is not a model", quoted(name)), &hint);
    }

    fn group(&mut self, group: &Pair) {
        let persistent = self.kept(self.truth(&group.value, "persistent"));
        for (member, line) in self.kept(self.texts(&group.value, "members")) {
            let known = self.roster.models.iter_mut().find(|entry| answers_to(entry, &member));
            match known {
                // A model may be in several groups.
                Some(entry) => entry.pinned |= persistent,
                None => self.warn_of_unknown(line, &member, "the group"),
            }
        }
        // Without swapping and eviction of others, a group says what holds here anyway.
        let mut says_no = |key| group.value.get(key).is_some() && !self.kept(self.truth(&group.value, key));
        let is_cosmetic = says_no("swap") & says_no("exclusive");
        let name = quoted(&group.key);
        let text = match persistent {
            true => format!("the group `{name}` only pins its members, so that they stay loaded"),
            false => format!("the group `{name}` has no effect"),
        };
        let hint = "models run together whenever they fit in memory, and idle models are evicted first";
        self.note(group.line, text, hint, is_cosmetic);
    }

    fn preload(&mut self, global: &Node) {
        let Some(startup) = global.get("hooks").and_then(|hooks| hooks.get("on_startup")) else {
            return;
        };
        for (name, line) in self.kept(self.texts(startup, "preload")) {
            let name = name.trim();
            match self.roster.models.iter_mut().find(|entry| answers_to(entry, name)) {
                Some(entry) => entry.preload = true,
                None if name.is_empty() => {}
                None => self.warn_of_unknown(line, name, "`preload`"),
            }
        }
    }
}

fn answers_to(entry: &ConfiguredModel, name: &str) -> bool {
    entry.name == name || entry.aliases.iter().any(|alias| alias == name)
}
