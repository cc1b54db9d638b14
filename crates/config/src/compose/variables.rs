//! Replaces variables in a Compose file: `$NAME`, `${NAME}`, `${NAME:-DEFAULT}`, `${NAME:?MESSAGE}`, and `$$`
//! for a dollar sign.

use plimsoll_flags::quoted;

use crate::failure::ConfigProblem;

/// The longest text that comes of a value.
const LONGEST: usize = 64 << 10;

/// Puts the variables into a text. One that is not set and has no default is a mistake.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, ConfigProblem> {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        done.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            done.push('$');
            rest = after;
            continue;
        }
        let (value, after) = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            Some((inside, after)) => (of_braces(inside, env)?, after),
            None => {
                let end = after.find(|c: char| !is_of_name(c)).unwrap_or(after.len());
                let (name, after) = after.split_at(end);
                (if name.is_empty() { "$".to_owned() } else { set(name, env)? }, after)
            }
        };
        if done.len() + value.len() > LONGEST || value.contains(['\n', '\r', '\0']) {
            return Err(missing("the value has more than one line, or more than 64 KiB", text));
        }
        done.push_str(&value);
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

/// `NAME`, `NAME:-DEFAULT`, `NAME-DEFAULT`, `NAME:?MESSAGE` and `NAME?MESSAGE`.
fn of_braces(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, ConfigProblem> {
    let (name, rest) = inside.split_at(inside.find(|c: char| !is_of_name(c)).unwrap_or(inside.len()));
    let (rest, may_be_empty) = match rest.strip_prefix(':') {
        Some(rest) => (rest, false),
        None => (rest, true),
    };
    let given = env(name).filter(|value| may_be_empty || !value.is_empty());
    match (given, rest.strip_prefix('-')) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => set(name, env),
    }
}

fn set(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, ConfigProblem> {
    env(name).ok_or_else(|| missing("the variable is not set", name))
}

fn missing(why: &'static str, name: &str) -> ConfigProblem {
    let remedy = "set it in the environment of the server".to_owned();
    ConfigProblem::ExpandMacro { name: quoted(name), why, remedy }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_its_value_or_its_default() {
        let env = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, expected) in [
            ("x", "x"),
            ("$A.${A}", "1.1"),
            ("${B:-2}/${B-3}", "2/3"),
            ("${EMPTY:-4}${EMPTY-5}", "4"),
            ("$$A $", "$A $"),
            ("${A:?no}", "1"),
        ] {
            assert_eq!(expand(text, &env).unwrap(), expected, "{text}");
        }
        for text in ["$B", "${B}", "${B:?say}", "${}"] {
            assert!(expand(text, &env).is_err(), "{text}");
        }
    }
}
