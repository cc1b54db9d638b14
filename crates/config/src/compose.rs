//! Reads Compose files: each service that runs an engine becomes a model, which `docker compose up` starts.

mod variables;

use std::sync::Arc;

use plimsoll_flags::{FlagOrigin, Warning, quoted};

use self::variables::expand;
use crate::command;
use crate::container::{ContainerRun, PortMapping, volume};
use crate::engine_flags::options_of;
use crate::engine_kind::CommandKind;
use crate::failure::{ConfigError, ConfigProblem};
use crate::roster::{CHECK, Configuration, ConfiguredModel, Launch};
use crate::yaml::{Node, Pair, YamlTree};

/// Flags of a llama-server that serves several models by itself.
const ROUTER: [&str; 4] =
    ["--models-preset", "--models-dir", "LLAMA_ARG_MODELS_PRESET", "LLAMA_ARG_MODELS_DIR"];

/// Reads a file: what could be read of it, and the mistakes in the rest.
pub(super) fn parse(
    file: &Arc<str>,
    services: &Node,
    env: &dyn Fn(&str) -> Option<String>,
) -> (Configuration, Vec<ConfigError>) {
    let mut roster = Configuration::default();
    let Some(pairs) = services.pairs() else {
        let problem = ConfigProblem::ReadLine {
            why: "`services` is not a YAML mapping",
            remedy: "write `NAME:` lines below it",
        };
        return (roster, vec![ConfigError::at(file, services.line, problem)]);
    };
    // Services whose names begin like that are templates of others.
    for pair in pairs.iter().filter(|pair| !pair.key.starts_with(['.', '_'])) {
        let mut service = ServiceReader { file, env, at: pair.line, found: Vec::new() };
        let Some(entry) = service.model(pair, &mut roster.warnings) else { continue };
        let found = service.found;
        roster.add(entry, found);
    }
    if roster.models.is_empty() && roster.refused.is_empty() {
        let text = "no service of this Compose file runs an engine that serves one model".to_owned();
        let hint = "give a preset of llama-server, or a configuration of llama-swap, to `plimsoll serve`";
        roster.warnings.push(Warning::new(FlagOrigin::file(file, services.line), text).hint(hint));
    }
    (roster, Vec::new())
}

struct ServiceReader<'a> {
    file: &'a Arc<str>,
    env: &'a dyn Fn(&str) -> Option<String>,
    at: u32,
    found: Vec<ConfigError>,
}

impl ServiceReader<'_> {
    /// The model of a service; `None` for a service that runs no engine.
    fn model(&mut self, pair: &Pair, warnings: &mut Vec<Warning>) -> Option<ConfiguredModel> {
        let service = &pair.value;
        let container = ContainerRun {
            image: self.text(service, "image"),
            entrypoint: self.words(service, "entrypoint").into_iter().next(),
            mounts: self.mounts(service),
            ports: self.each(service, "ports", of_port),
            env: self.variables(service),
            shares_network: self.text(service, "network_mode") == "host",
            ..ContainerRun::default()
        };
        let words = self.words(service, "command");
        let server = container.skipped(&words);
        let mut line = vec![container.image.clone()];
        line.extend(container.entrypoint.iter().chain(&words).cloned());
        let kind = CommandKind::of(&line);
        if server.is_none() && kind.is_none() {
            return None;
        }
        let named = |word: &String| ROUTER.iter().any(|flag| word.split('=').next() == Some(flag));
        if words.iter().any(named) || container.env.iter().any(|(name, _)| ROUTER.contains(&name.as_str())) {
            let text = format!(
                "the service `{}` serves several models by itself, and is left out",
                quoted(&pair.key)
            );
            let warning = Warning::new(FlagOrigin::file(self.file, self.at), text);
            warnings.push(warning.hint("give its preset file to `plimsoll serve`"));
            return None;
        }
        let mut entry = ConfiguredModel::new(pair.key.clone(), FlagOrigin::file(self.file, self.at));
        let flags = server.map(|skipped| words.get(skipped..).unwrap_or_default().to_vec());
        let at = entry.origin.0.clone();
        let options = flags.as_ref().and_then(|flags| {
            options_of(flags, Some(&container), &entry.name, &|_| at.clone(), (warnings, &mut self.found))
        });
        let port =
            flags.as_ref().and_then(|flags| value(flags, "--port")).unwrap_or_else(|| "8080".to_owned());
        let proxy = self.proxy(&container, &port, kind);
        let compose = |verb: &[&str]| {
            let start = ["docker", "compose", "-f", self.file].into_iter().chain(verb.iter().copied());
            start.chain([pair.key.as_str()]).map(str::to_owned).collect::<Vec<_>>()
        };
        entry.launch = Launch::Command {
            argv: compose(&["up", "--no-log-prefix"]),
            options,
            proxy: proxy.unwrap_or_default(),
            check: kind.map_or(CHECK, CommandKind::check).to_owned(),
            stop: Some(compose(&["stop"])),
        };
        entry.kind = kind;
        Some(entry)
    }

    /// The address on this machine at which the service is reached.
    fn proxy(&mut self, container: &ContainerRun, port: &str, kind: Option<CommandKind>) -> Option<String> {
        if container.shares_network {
            return Some(format!("http://127.0.0.1:{port}"));
        }
        // Only the port of a llama-server is known; others have one as a rule.
        let fits = |mapping: &&PortMapping| kind.is_some() || mapping.inner == port;
        let Some(mapping) = container.ports.iter().find(fits).or(container.ports.first()) else {
            let why = "the service publishes no port, so no request can reach it";
            let remedy = "add `ports: [\"127.0.0.1:8080:8080\"]` to it";
            self.found.push(ConfigError::at(self.file, self.at, ConfigProblem::ReadLine { why, remedy }));
            return Some("http://127.0.0.1:1".to_owned());
        };
        Some(format!("http://127.0.0.1:{}", mapping.outer))
    }

    fn expanded(&mut self, text: &str, line: u32) -> String {
        expand(text, self.env).unwrap_or_else(|problem| {
            self.found.push(ConfigError::at(self.file, line, problem));
            String::new()
        })
    }

    fn text(&mut self, service: &Node, key: &str) -> String {
        let Some(node) = service.get(key) else { return String::new() };
        self.expanded(node.as_text().unwrap_or_default(), node.line)
    }

    /// A command: a list of words, or a line that is split as a shell does.
    fn words(&mut self, service: &Node, key: &str) -> Vec<String> {
        match service.get(key).map(|node| (&node.tree, node)) {
            Some((YamlTree::Scalar(text), node)) => {
                let line = self.expanded(text, node.line);
                command::split(&line).unwrap_or_else(|problem| {
                    self.found.push(ConfigError::at(self.file, node.line, problem));
                    Vec::new()
                })
            }
            Some((YamlTree::List(items), _)) => items
                .iter()
                .map(|item| self.expanded(item.as_text().unwrap_or_default(), item.line))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn each<T>(&mut self, service: &Node, key: &str, read: fn(&Node, &str) -> Option<T>) -> Vec<T> {
        let Some(YamlTree::List(items)) = service.get(key).map(|node| &node.tree) else { return Vec::new() };
        let mut all = Vec::new();
        for item in items {
            let text = self.expanded(item.as_text().unwrap_or_default(), item.line);
            all.extend(read(item, &text));
        }
        all
    }

    /// Folders of the host; relative ones start at the folder of the file.
    fn mounts(&mut self, service: &Node) -> Vec<(String, String)> {
        let folder = self.file.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let absolute = |(source, target): (String, String)| {
            if source.starts_with('.') {
                (format!("{}{folder}/{}", here(folder), source.trim_start_matches("./")), target)
            } else {
                (source, target)
            }
        };
        self.each(service, "volumes", of_volume).into_iter().map(absolute).collect()
    }

    /// `environment`, as a map or as a list of `NAME=VALUE`.
    fn variables(&mut self, service: &Node) -> Vec<(String, String)> {
        let of_text = |_: &Node, text: &str| {
            text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let mut all = self.each(service, "environment", of_text);
        let map = service.get("environment").and_then(Node::pairs).unwrap_or_default();
        for pair in map {
            let value = pair.value.as_text().unwrap_or_default();
            all.push((pair.key.clone(), self.expanded(value, pair.line)));
        }
        all
    }
}

/// Prefixes of a relative folder, which distinguish it from the name of a volume.
fn here(folder: &str) -> &'static str {
    if folder.starts_with(['/', '.']) { "" } else { "./" }
}

/// A volume in its short or its long form.
fn of_volume(item: &Node, text: &str) -> Option<(String, String)> {
    let long = |key: &str| item.get(key)?.as_text().map(str::to_owned);
    volume(text).or_else(|| Some((long("source")?, long("target")?)))
}

fn of_port(item: &Node, text: &str) -> Option<PortMapping> {
    let long = |key: &str| item.get(key)?.as_text().map(str::to_owned);
    PortMapping::read(text).or_else(|| {
        Some(PortMapping { address: long("host_ip"), outer: long("published")?, inner: long("target")? })
    })
}

fn value(words: &[String], flag: &str) -> Option<String> {
    let at = words.iter().rposition(|word| word == flag)?;
    words.get(at + 1).cloned()
}
