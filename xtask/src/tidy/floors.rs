//! Import rules between the modules of a crate: a module may import modules of its own floor and of those
//! below.

use std::path::Path;

use super::{Finding, Severity, Source};
use crate::house::Import;

/// The floors of a crate, lowest first, by the names of its top modules. A module that is not named is on no floor.
struct Building {
    name: &'static str,
    floors: &'static [&'static [&'static str]],
    why: &'static str,
}

/// All modules that are not named otherwise.
const REST: &str = "*";

const BUILDINGS: &[Building] = &[
    Building {
        name: "guard",
        floors: &[
            &["driver"],
            &["state"],
            &["policy"],
            &["account", "trace"],
            &["spill"],
            &["ladder"],
            &["ggml", "graphs", "contexts", "arm", "hooks", "interpose"],
        ],
        why: "guard's floors: each may be read without those above it",
    },
    Building { name: "cli", floors: &[&[REST], &["command"]], why: "no module imports a command" },
];

/// Files below a folder that may not contain a word.
const WITHOUT: &[(&str, &str, &str)] = &[
    ("crates/guard/src/policy", "libc::", "guard's policy is arithmetic and calls nothing"),
    (
        "crates/guard/src/policy",
        "crate::settings",
        "guard's policy is arithmetic; its caller passes the settings",
    ),
];

/// Pure crates: callers pass bytes, time and environment. `clippy.toml` has the list of what they may not call.
///
/// `pool` and `wire` are `no_std`, which holds more.
const PURE: &[&str] =
    &["base", "config", "doctor", "flags", "fleet", "host", "model", "planner", "scheduler", "telemetry"];

const PURITY: &str = "#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]";

const PURITY_SEVERITY: Severity = Severity::Warning;

pub(super) fn check(imports: &[Import], sources: &[Source]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = imports.iter().filter_map(upward).collect();
    findings.extend(sources.iter().flat_map(forbidden));
    findings.extend(PURE.iter().filter_map(|name| impure(name, sources)));
    findings
}

/// An import of a floor above.
fn upward(import: &Import) -> Option<Finding> {
    let building = BUILDINGS.iter().find(|building| building.name == import.of)?;
    let (from, to) = (building.floor(&import.from)?, building.floor(&import.to)?);
    (from < to).then(|| Finding {
        file: import.file.clone(),
        line: import.line,
        rule: format!("`{}` may not import `{}`: {}", import.from, import.to, building.why),
        severity: Severity::Error,
    })
}

impl Building {
    fn floor(&self, module: &str) -> Option<usize> {
        let at = |name: &str| self.floors.iter().position(|floor| floor.contains(&name));
        at(module).or_else(|| at(REST))
    }
}

fn forbidden(source: &Source) -> Vec<Finding> {
    let rules = WITHOUT.iter().filter(|(folder, ..)| source.path.to_string_lossy().starts_with(folder));
    let mut found = Vec::new();
    for (_, word, why) in rules {
        let lines = source.text.lines().enumerate();
        let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//") && line.contains(word));
        found.extend(code.map(|(number, _)| Finding {
            file: source.path.clone(),
            line: number + 1,
            rule: format!("`{word}` is not allowed here: {why}"),
            severity: Severity::Error,
        }));
    }
    found
}

/// A pure crate whose `lib.rs` does not turn its lints on. A crate that is not there is none.
fn impure(name: &str, sources: &[Source]) -> Option<Finding> {
    let path = Path::new("crates").join(name).join("src/lib.rs");
    let root = sources.iter().find(|source| source.path == path)?;
    (!root.text.lines().any(|line| line == PURITY)).then(|| Finding {
        file: path,
        line: 1,
        rule: format!("a pure crate says so: {PURITY}"),
        severity: PURITY_SEVERITY,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_upward(of: &str, from: &str, to: &str) -> bool {
        let import = Import {
            of: of.to_owned(),
            file: "a.rs".into(),
            line: 3,
            from: from.to_owned(),
            to: to.to_owned(),
        };
        upward(&import).is_some()
    }

    #[test]
    fn imports_may_not_run_up() {
        assert!(is_upward("guard", "driver", "hooks") && is_upward("guard", "spill", "ladder"));
        assert!(!is_upward("guard", "hooks", "driver") && !is_upward("guard", "hooks", "arm"));
        assert!(!is_upward("guard", "say", "hooks") && !is_upward("pool", "driver", "hooks"));
    }

    #[test]
    fn no_module_imports_a_command() {
        assert!(is_upward("cli", "screen", "command"));
        assert!(!is_upward("cli", "command", "screen") && !is_upward("cli", "command", "command"));
    }

    #[test]
    fn words_are_forbidden_in_code_only() {
        let source =
            |text: &str| Source { path: "crates/guard/src/policy/budget.rs".into(), text: text.to_owned() };
        assert_eq!(forbidden(&source("// libc::free\nfn a() { libc::free(p) }\n")).len(), 1);
        let elsewhere = Source { path: "crates/guard/src/hooks.rs".into(), ..source("libc::free") };
        assert_eq!(forbidden(&elsewhere), []);
    }

    #[test]
    fn pure_crates_turn_their_lints_on() {
        let root = |text: String| Source { path: "crates/base/src/lib.rs".into(), text };
        assert!(impure("base", &[root("//! Base.\n".to_owned())]).is_some());
        assert!(impure("base", &[root(format!("//! Base.\n{PURITY}\n"))]).is_none());
        assert!(impure("base", &[]).is_none());
    }
}
