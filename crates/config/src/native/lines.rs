//! Error messages for TOML files, in the user's terms: the line, the mistake, and the correction.

use std::sync::Arc;

use plimsoll_flags::table::{by_argument, distance_within, nearest};
use plimsoll_flags::{FlagOrigin, quoted};

use crate::failure::{ConfigError, ConfigProblem};

/// Text of a file, and line numbers for positions in it.
pub(super) struct LineIndex<'a> {
    pub(super) file: &'a Arc<str>,
    pub(super) text: &'a str,
}

impl LineIndex<'_> {
    pub(super) fn origin(&self, offset: usize) -> FlagOrigin {
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
                "the name `{name}` contains a dot, which begins a sub-table in TOML; put it in quotes: [{table}.\"{name}\"]"
            ))
        })
    }

    /// The mistake that an error of the parser or of serde stands for.
    pub(super) fn explain(&self, error: &toml::de::Error) -> ConfigError {
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
                // serde repeats a value of the wrong type, which may be a key here. The parser's own message
                // shows no value.
                _ if first.starts_with("invalid basic string")
                    || first.starts_with("invalid literal string") =>
                {
                    "a quotation mark is missing".to_owned()
                }
                Some((shown, expected)) if of_key && shown.starts_with("invalid") => {
                    format!(
                        "the value has the wrong type, expected {}",
                        expected.replace(KEY_TABLE, "a table with `key`")
                    )
                }
                _ if first == "duplicate key" => format!("`{}` is given twice", quoted(span)),
                _ => unknown_word(first).unwrap_or_else(|| quoted(&in_plain_words(first))),
            };
            let key = line.split('=').next().unwrap_or_default().trim();
            ConfigProblem::Parse(what + &remedy(first, key))
        });
        ConfigError::new(origin, problem)
    }
}

/// The name of a key's table in serde's messages.
const KEY_TABLE: &str = "struct KeyTable";

/// Parts of toml's messages, and what to do.
const REMEDIES: [(&str, &str); 13] = [
    // Types of Rust that a value was to be.
    ("expected usize", "; write the number, without quotes"),
    ("expected u32", "; write the number, without quotes"),
    ("expected a nonzero u32", "; write the number, without quotes"),
    ("invalid mantissa", "; put text in quotes"),
    ("unclosed table", "; close the bracket, and put a name with spaces in quotes: [models.\"A NAME\"]"),
    ("duplicate key", "; keep one of the two"),
    ("expected a string", "; put the value in quotes"),
    ("must be quoted", "; put the value in quotes"),
    ("expected a boolean", "; write true or false, without quotes"),
    ("expected a sequence", "; write a list, for example [\"a\", \"b\"]"),
    ("unclosed array", "; close the bracket, and the quotation marks of each entry"),
    ("invalid literal string", "; close the quotation mark"),
    ("invalid basic string", "; close the quotation mark"),
];

/// Keys of times and of sizes, which are texts with a unit.
const TIMES: &str = "ask heartbeat hold load-timeout patience stop-timeout ttl wait";
const SIZES: &str = "memory reserve warm yield-below";

/// Replacement for the value of `key`.
fn remedy(message: &str, key: &str) -> String {
    if message.contains("expected a string") {
        let holds = |keys: &str| keys.split(' ').any(|known| known == key);
        match (holds(TIMES), holds(SIZES)) {
            (true, _) => return "; write a time with its unit, in quotes: \"30s\" or \"500ms\"".to_owned(),
            (_, true) => return "; write a size with its unit, in quotes: \"8GiB\" or \"512MiB\"".to_owned(),
            _ => {}
        }
    }
    let known = REMEDIES.iter().find(|(part, _)| message.contains(part));
    known.map_or_else(String::new, |(_, remedy)| (*remedy).to_owned())
}

/// serde's message about a word outside of a list: the words of the list.
fn unknown_word(message: &str) -> Option<String> {
    let (word, known) = message.strip_prefix("unknown variant `")?.split_once('`')?;
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let (last, others) = known.split_last()?;
    let or = if others.is_empty() { "" } else { " or " };
    Some(format!(
        "`{}` is not one of the allowed values; write {}{or}{last}",
        quoted(word),
        others.join(", ")
    ))
}

/// serde's message without the names of Rust's types.
fn in_plain_words(message: &str) -> String {
    let natural = message
        .replace("expected struct ModelTable", "expected a section [models.NAME] with `model` or `cmd`");
    let natural = natural.replace("expected usize", "expected a whole number of at least 0");
    let natural = natural.replace("expected a nonzero u32", "expected a whole number of at least 1");
    natural.replace("expected u32", "expected a whole number of at least 0")
}

/// The flag of llama-server that a key is named after.
fn flag_of(key: &str) -> Option<String> {
    let name = match key.replace('_', "-").as_str() {
        "ctx" | "context" | "n-ctx" | "context-size" => "ctx-size".to_owned(),
        name => name.to_owned(),
    };
    let flag = by_argument(&format!("--{name}")).or_else(|| by_argument(&format!("-{name}")));
    let flag = flag.map(|found| found.flag.name()).or_else(|| nearest(&format!("--{name}")))?;
    Some(format!("flags = \"{flag} …\""))
}

/// The key that unloads an idle model, for the names that other servers give it.
pub(crate) fn of_idle(key: &str) -> Option<&'static str> {
    let names =
        ["idle", "idle-timeout", "keep-alive", "timeout", "unload-after", "unload-timeout", "ttl-seconds"];
    names.contains(&key.replace('_', "-").to_lowercase().as_str()).then_some("ttl")
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
            // A key of [serve] has other neighbours, and no `ttl`.
            _ if of_idle(key).is_some_and(|meant| message.contains(&format!("`{meant}`"))) => {
                of_idle(key).map(str::to_owned)
            }
            "args" | "arguments" | "options" | "params" => Some("flags".to_owned()),
            _ => near.min().map(|(_, name)| name.to_owned()).or_else(|| flag_of(key)),
        },
    })
}
