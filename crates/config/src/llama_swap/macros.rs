//! Replaces macros in llama-swap's YAML: `${name}` in any value (`internal/config/macros.go @ v250`).
//!
//! A model's own macro overrides the global macro of the same name.

use std::sync::Arc;

use plimsoll_flags::quoted;

use crate::failure::{ConfigError, ConfigProblem};
use crate::yaml::{Node, YamlTree};

/// Limits on the number and the length of macros, because each may double the text before it.
const MOST: usize = 256;
const LONGEST: usize = 64 << 10;

/// Macros in the order of their declaration.
#[derive(Clone, Debug, Default)]
pub(super) struct Macros(Vec<Macro>);

#[derive(Clone, Debug)]
struct Macro {
    name: String,
    slug: String,
    value: String,
}

impl Macros {
    /// Reads a `macros:` block.
    pub(super) fn read(file: &Arc<str>, node: Option<&Node>) -> Result<Self, ConfigError> {
        let Some(node) = node else {
            return Ok(Self::default());
        };
        let Some(pairs) = node.pairs() else {
            let (why, remedy) =
                ("`macros` is not a YAML mapping", "write `name: value` lines under `macros`");
            return Err(ConfigError::at(file, node.line, ConfigProblem::ReadLine { why, remedy }));
        };
        let mut macros = Self::default();
        for pair in pairs {
            let fail = |why, remedy: &str| {
                let name = quoted(&pair.key);
                Err(ConfigError::at(
                    file,
                    pair.line,
                    ConfigProblem::ExpandMacro { name, why, remedy: remedy.to_owned() },
                ))
            };
            // Each macro may double the text, so their number bounds the work.
            if macros.0.len() == MOST {
                return fail("the file declares too many macros", "declare at most 256");
            }
            if !is_name(&pair.key) {
                return fail("the name is not valid", "use up to 63 letters, digits, `_` and `-`");
            }
            if matches!(pair.key.as_str(), "PORT" | "PID" | "MODEL_ID") {
                return fail("the name is reserved", "choose another");
            }
            let YamlTree::Scalar(value) = &pair.value.tree else {
                return fail("the value is not a string, number or boolean", "write one value");
            };
            let entry = Macro::new(&pair.key, value);
            // A cycle over several macros cannot expand: each is substituted once, last declared first.
            if value.contains(&entry.slug) {
                return fail("the macro contains itself", "remove the macro from its own value");
            }
            macros.0.push(entry);
        }
        Ok(macros)
    }

    /// Macros inside a model: `MODEL_ID`, the global ones, its own.
    pub(super) fn of_model(&self, model: &str, own: Self) -> Self {
        let mut merged = vec![Macro::new("MODEL_ID", model)];
        merged.extend(self.0.iter().cloned());
        for entry in own.0 {
            // In place, because the order of declaration decides which macros a value may use.
            match merged.iter_mut().find(|known| known.name == entry.name) {
                Some(known) => *known = entry,
                None => merged.push(entry),
            }
        }
        Self(merged)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.name.as_str())
    }

    /// Puts the macros into every scalar of a value. A text for which that fails is left as it is.
    pub(super) fn expand(&self, file: &Arc<str>, node: &mut Node, failed: &mut Vec<ConfigError>) {
        // From the last declared macro to the first, each in one pass, as llama-swap does.
        node.scalars(&mut |text, line| {
            for Macro { name, slug, value } in self.0.iter().rev() {
                // Most texts hold no macro at all.
                if !text.contains("${") {
                    break;
                }
                let Some(expanded) = replaced(text, slug, value) else {
                    let (why, remedy) = ("the value expands to more than 64 KiB", "shorten it".to_owned());
                    let problem = ConfigProblem::ExpandMacro { name: name.clone(), why, remedy };
                    failed.push(ConfigError::at(file, line, problem));
                    break;
                };
                *text = expanded;
            }
        });
    }
}

/// Puts variables of the environment into every scalar: `${env.NAME}`. A text for which that fails is left as
/// it is.
pub(super) fn expand_environment(
    file: &Arc<str>,
    node: &mut Node,
    env: &dyn Fn(&str) -> Option<String>,
    failed: &mut Vec<ConfigError>,
) {
    node.scalars(&mut |text, line| match with_variables(text, env) {
        Ok(done) => *text = done,
        Err(problem) => failed.push(ConfigError::at(file, line, problem)),
    });
}

fn with_variables(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, ConfigProblem> {
    let fail = |name: &str, why, remedy: &str| {
        let name = format!("env.{}", quoted(name));
        Err(ConfigProblem::ExpandMacro { name, why, remedy: remedy.to_owned() })
    };
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${env.") {
        done.push_str(before);
        let Some((name, after)) = after.split_once('}').filter(|(name, _)| is_variable(name)) else {
            done.push_str("${env.");
            rest = after;
            continue;
        };
        // llama-swap refuses as well: an unset variable is a mistake more often than an empty word.
        let Some(value) = env(name) else {
            return fail(name, "the variable is not set", "set it in the environment of the server");
        };
        // A second line would become part of a command; a NUL cannot be an argument.
        if value.contains(['\n', '\r', '\0']) || done.len() + value.len() > LONGEST {
            return fail(
                name,
                "the variable has more than one line, or more than 64 KiB",
                "set this variable to one short line",
            );
        }
        done.push_str(&value);
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

/// The macros left in a text, each once, but those in `known`.
pub(super) fn left_over<'a>(text: &'a str, known: &[&str]) -> Vec<&'a str> {
    let after = text.split("${").skip(1);
    let names = after.filter_map(|after| after.split_once('}').map(|(name, _)| name));
    let mut left = Vec::new();
    for name in names.filter(|name| is_name(name) && !known.contains(name)) {
        if left.len() < MOST && !left.contains(&name) {
            left.push(name);
        }
    }
    left
}

fn is_name(text: &str) -> bool {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..64).contains(&text.len()) && text.bytes().all(name)
}

fn is_variable(text: &str) -> bool {
    let start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    start && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Macro {
    fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), slug: format!("${{{name}}}"), value: value.to_owned() }
    }
}

/// `text` with `slug` replaced, unless that is too long; measured before it is made.
fn replaced(text: &str, slug: &str, value: &str) -> Option<String> {
    let times = text.matches(slug).count();
    let length = text.len() + times * value.len();
    (times == 0 || length <= LONGEST).then(|| text.replace(slug, value))
}
