//! Measures the workspace's manifests for `cargo xtask house`: forbidden imports between crates, test
//! binaries, locked packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Figure, float};
use crate::source::Source;

/// The table of `ARCHITECTURE.md` says for each crate which it may import: those above it.
const TABLE: &str = "ARCHITECTURE.md";
/// Packages of others: each has to be kept up to date. 34 of them are the terminal's.
const MOST_PACKAGES: f64 = 266.0;

pub(super) fn of(root: &Path, texts: &[Source]) -> Vec<Figure> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    let packages = lock.lines().filter(|line| line.starts_with("source = ")).count();
    let figure = |name, value, bound, is_due| Figure { name, value, bound, is_due, places: Vec::new() };
    let upward = upward(texts);
    vec![
        figure("test binaries", test_binaries(root).map_or(f64::INFINITY, float), 37.0, true),
        Figure {
            places: upward.clone(),
            ..figure("imports of a crate further down", float(upward.len()), 0.0, true)
        },
        figure("locked packages", float(packages), MOST_PACKAGES, true),
    ]
}

/// Targets of the workspace that `cargo test` runs.
fn test_binaries(root: &Path) -> Option<usize> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root);
    let metadata: Value = serde_json::from_slice(&metadata.output().ok()?.stdout).ok()?;
    let packages = metadata["packages"].as_array()?.iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    Some(targets.filter(|target| target["test"] == true).count())
}

/// Dependencies of `crates/*` on a crate that stands further down in the table, or not at all.
fn upward(texts: &[Source]) -> Vec<(PathBuf, usize)> {
    let table = texts.iter().find(|text| text.path == Path::new(TABLE)).map(|text| text.text.as_str());
    let order = order(table.unwrap_or_default());
    let place = |name: &str| order.iter().position(|other| *other == name);
    let mut found = Vec::new();
    for manifest in texts.iter().filter(|text| text.path.starts_with("crates") && text.is("toml")) {
        let mut parts = manifest.path.iter().map(|part| part.to_str().unwrap_or_default());
        let (Some(own), Some("Cargo.toml")) = (parts.nth(1), parts.next()) else { continue };
        let ours = imports(&manifest.text);
        let is_above = |name: &str| matches!((place(name), place(own)), (Some(it), Some(own)) if it < own);
        found.extend(ours.filter(|(_, name)| !is_above(name)).map(|(line, _)| (manifest.path.clone(), line)));
    }
    found
}

/// Crates in the order of the table's rows, each of which begins with its name in code.
fn order(text: &str) -> Vec<&str> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect()
}

/// Our crates among the dependencies, with their lines; those of tests may stand anywhere.
fn imports(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_product = false;
    manifest.lines().enumerate().filter_map(move |(number, line)| {
        if line.starts_with('[') {
            is_product = line.ends_with("dependencies]") && !line.contains("dev-");
        }
        let name = line.strip_prefix("plimsoll-").filter(|_| is_product)?;
        Some((number + 1, name.split(['.', ' ', '=']).next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_from_further_down_is_found() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let manifest = "[dependencies]\nplimsoll-a.workspace = true\nplimsoll-c = { path = \"c\" }\n\n\
            [dev-dependencies]\nplimsoll-d.workspace = true\n";
        let table = "| crate | task |\n|---|---|\n| `a` | |\n| `b` | |\n| `c` | |\n\n| `d` | |\n";
        let texts = [source("crates/b/Cargo.toml", manifest), source(TABLE, table)];
        assert_eq!(upward(&texts), [(PathBuf::from("crates/b/Cargo.toml"), 3)]);
    }
}
