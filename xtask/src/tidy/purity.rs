//! Checks that each pure crate, whose callers pass bytes, time and environment, denies the calls listed in
//! `clippy.toml`.

use std::path::Path;

use super::Finding;
use crate::source::Source;

/// `pool` and `wire` are `no_std`, which holds more.
const PURE: &[&str] =
    &["base", "config", "doctor", "flags", "fleet", "host", "model", "plan", "planner", "scheduler", "vllm"];
const PURITY: &str = "#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]";

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    PURE.iter().filter_map(|name| impure(name, sources)).collect()
}

/// A pure crate whose `lib.rs` does not turn its lints on.
fn impure(name: &str, sources: &[Source]) -> Option<Finding> {
    let path = Path::new("crates").join(name).join("src/lib.rs");
    let root = sources.iter().find(|source| source.path == path)?;
    (!root.text.lines().any(|line| line == PURITY)).then(|| Finding {
        file: path,
        line: 1,
        rule: format!("a pure crate denies the calls of clippy.toml: {PURITY}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pure_crates_turn_their_lints_on() {
        let root = |text: String| Source { path: "crates/base/src/lib.rs".into(), text };
        assert_eq!(check(&[root("//! Base.\n".to_owned())]).len(), 1);
        assert!(check(&[root(format!("//! Base.\n{PURITY}\n"))]).is_empty());
    }
}
