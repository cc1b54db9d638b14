//! Reader of llama-swap's YAML configuration (`internal/config @ v250`).
//!
//! Every key means the same as in llama-swap. A setting without effect in Plimsoll gets a warning with its
//! line number.

mod groups;
mod macros;
mod matrix;
mod model;
mod reader;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_flags::quoted;
use plimsoll_flags::table::distance_within;

use self::macros::Macros;
use self::reader::LlamaSwapReader;
use super::compose;
use super::failure::{ConfigError, ConfigProblem};
use super::roster::Configuration;
use crate::yaml::{Node, Pair, YamlTree};

/// Keys that are read; `macros` and `models` before the others.
const READ: [&str; 11] = [
    "macros",
    "models",
    "groups",
    "matrix",
    "routing",
    "hooks",
    "selectors",
    "apiKeys",
    "healthCheckTimeout",
    "globalTTL",
    "unloadTimeout",
];

/// A key without effect here, the reason, and true if nothing behaves otherwise without it.
type Unused = (&'static str, &'static str, bool);

const WITHOUT_EFFECT: [Unused; 15] = [
    ("startPort", "the operating system assigns a port to each engine", true),
    ("logLevel", "choose the logged lines with --log-level, or `log-level` under [serve]", true),
    ("logRequests", "choose the logged lines with --log-level, or `log-level` under [serve]", true),
    ("logTimeFormat", "log lines begin with the time in UTC", true),
    ("logToStdout", "the output of engines goes to `GET /logs`, and to `log-file` under [serve]", true),
    ("metricsMaxInMemory", "the endpoint `/metrics` needs no size limit", true),
    ("captureBuffer", "plimsoll does not record requests", true),
    ("store", "plimsoll does not record requests", true),
    ("performance", "plimsoll always monitors GPU memory", true),
    ("ui", "remove it", true),
    ("upstream", "remove it", true),
    ("sendLoadingState", "the progress of loading is shown in the model's status, not in answers", true),
    ("includeAliasesInList", "the model list shows aliases in each model's entry", true),
    ("profiles", "profiles are not supported; llama-swap too starts without one", true),
    (
        "peers",
        "give each model of another server an entry, whose `proxy` is that server; hosts that run plimsoll share models as a fleet",
        false,
    ),
];

/// Reads a file: what could be read of it, and the mistakes in the rest. An error is one that hides all
/// others.
pub(super) fn parse(
    file: &Arc<str>,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Configuration, Vec<ConfigError>), ConfigError> {
    let root = Node::parse(file, text)?;
    // No file of llama-swap has services; newer Compose files may have models too.
    if let Some(services) = root.get("services") {
        return Ok(compose::parse(file, services, env));
    }
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
        match pair.key.as_str() {
            // A model reads its own variables, and those of the macros that it uses: a missing one is its
            // mistake alone.
            "models" => {}
            "macros" => macros::expand_environment(file, &mut pair.value, env, &mut Vec::new()),
            key if READ.contains(&key) => {
                macros::expand_environment(file, &mut pair.value, env, &mut reader.unexpanded);
            }
            _ => {}
        }
    }
    // Keys are unique: the YAML reader refuses a second one.
    let find = |key| pairs.iter().find(|pair: &&Pair| pair.key == key).map(|pair| pair.value.clone());
    // Any text may use a macro, so nothing can be said of the rest of a file whose macros are not known.
    let macros = Macros::read(file, find("macros").as_ref())?;
    let models = find("models");
    if models.is_none() {
        reader.refuse_misspelt_models(&pairs)?;
    }
    let rest = pairs.into_iter().filter(|pair| !matches!(pair.key.as_str(), "macros" | "models"));
    let mut global = Node::map(rest.collect(), 1);
    macros.expand(file, &mut global, &mut reader.unexpanded);
    reader.warn_of_unread(&global, &READ, &WITHOUT_EFFECT);
    let defaults = reader.defaults(&global);
    let models = models.as_ref().map(|node| reader.pairs(node, "models")).transpose();
    for pair in reader.kept(models).unwrap_or_default() {
        match reader.model(pair, (&macros, env), &defaults) {
            Ok(entry) => reader.roster.models.push(entry),
            Err(refused) => reader.roster.refused.push(*refused),
        }
    }
    // After the models, whose entries they change.
    reader.routing(&global);
    reader.selectors(&global);
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
    /// Without `models` there is nothing to serve; a key that is nearly `models` is a mistake, not an
    /// intention.
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
}
