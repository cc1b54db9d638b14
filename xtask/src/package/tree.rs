//! Lists the dependencies of crates, and finds forbidden ones: crates that do I/O, in a crate that may do
//! none.

use std::collections::BTreeSet;

use serde_json::Value;

/// Crates that read files, speak on sockets or run tasks.
const ACTING: &[&str] =
    &["tokio", "hyper", "http", "rustix", "libc", "ureq", "rustls", "mio", "plimsoll-file"];

/// The acting crates in the lines of `cargo tree --prefix none`.
pub(super) fn impure(tree: &str) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let found: BTreeSet<&str> = names.filter(|name| ACTING.contains(name)).collect();
    found.into_iter().map(str::to_owned).collect()
}

/// `wanted` and every crate of the workspace that they import, by what `cargo metadata` says.
pub(super) fn closure(metadata: &Value, wanted: &[&str]) -> Vec<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
    while let Some(name) = open.pop() {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let package = packages.into_iter().find(|package| package["name"] == name.as_str());
        let dependencies =
            package.and_then(|package| package["dependencies"].as_array()).into_iter().flatten();
        // A package keeps its build dependencies, and none of its tests'.
        let ours = dependencies.filter(|one| one["path"].is_string() && one["kind"] != "dev");
        open.extend(ours.filter_map(|one| one["name"].as_str()).map(str::to_owned));
        open.retain(|name| !found.contains(name));
        found.insert(name);
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_runtime_is_found_anywhere_in_a_tree() {
        let tree = "plimsoll-planner v0.1.0 (/x)\ntoml v1.2.1\ntokio v1.54.1\nhyper v1.12.0 (*)\n";
        assert_eq!(impure(tree), ["hyper", "tokio"]);
        assert!(impure("plimsoll-planner v0.1.0\nbytes v1.12.1\nhyper-fine v1\n").is_empty());
    }

    #[test]
    fn a_crate_brings_those_of_the_workspace_that_it_imports() {
        let package = |name: &str, dependencies: Value| json!({ "name": name, "dependencies": dependencies });
        let metadata = json!({ "packages": [
            package("a", json!([{ "name": "b", "path": "/b", "kind": null }, { "name": "serde", "kind": null }])),
            package("b", json!([{ "name": "a", "path": "/a", "kind": null },
                { "name": "double", "path": "/d", "kind": "dev" }])),
            package("c", json!([])),
        ] });
        assert_eq!(closure(&metadata, &["a"]), ["a", "b"]);
    }
}
