//! Writes the software bill of materials: the libraries in the program, as CycloneDX JSON from `cargo
//! metadata`.
//!
//! DECISION: not by cargo-cyclonedx 0.5.9. That writes a document beside each manifest of the workspace, or
//! one for each binary: three of them would have to be merged here, and it is compiled at each release.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::VERSION;
use super::options::Architecture;

/// What the packages contain.
const ROOTS: [&str; 3] = ["plimsoll", "plimsoll-guard", "plimsoll-phantom"];

#[derive(Debug, thiserror::Error)]
pub(super) enum SbomError {
    #[error("cannot run cargo metadata: {0}")]
    Start(io::Error),
    #[error("cargo metadata failed: {0}")]
    Failed(String),
    #[error("cargo metadata printed something else than expected: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot read Cargo.lock: {0}")]
    Lock(io::Error),
}

pub(super) fn of(root: &Path, architecture: Architecture) -> Result<Vec<u8>, SbomError> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", architecture.triple()])
        .current_dir(root)
        .output()
        .map_err(SbomError::Start)?;
    if !output.status.success() {
        return Err(SbomError::Failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).map_err(SbomError::Lock)?;
    let mut text = serde_json::to_vec_pretty(&document(&serde_json::from_slice(&output.stdout)?, &lock))?;
    text.push(b'\n');
    Ok(text)
}

/// The document, without a date and a serial number, which would differ at each build.
fn document(metadata: &Value, lock: &str) -> Value {
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let used = used(metadata, &packages);
    let sums = checksums(lock);
    let shipped = |id: &&&str| packages.get(**id).is_some_and(|package| !package["source"].is_null());
    let mut components: Vec<Value> = used
        .keys()
        .filter(shipped)
        .filter_map(|id| packages.get(id))
        .map(|package| component(package, &sums))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let mut graph: Vec<Value> = used
        .iter()
        .filter_map(|(id, on)| {
            let name = |id: &&str| packages.get(*id).map(|package| reference(package));
            let on: BTreeSet<String> = on.iter().filter_map(&name).collect();
            Some(json!({ "ref": name(id)?, "dependsOn": on }))
        })
        .collect();
    graph.sort_by_key(|entry| entry["ref"].to_string());
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": format!("pkg:cargo/plimsoll@{VERSION}"),
            "name": "plimsoll",
            "version": VERSION,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        }},
        "components": components,
        "dependencies": graph,
    })
}

/// Packages that end in the product, each with those that it is built from; tests' dependencies are left out.
fn used<'a>(metadata: &'a Value, packages: &BTreeMap<&'a str, &'a Value>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"]["nodes"]).filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_root = |package: &&Value| {
        package["source"].is_null() && package["name"].as_str().is_some_and(|name| ROOTS.contains(&name))
    };
    let roots = packages.values().filter(|package| is_root(package));
    let mut queue: Vec<&str> = roots.filter_map(|package| package["id"].as_str()).collect();
    let mut used = BTreeMap::new();
    while let Some(id) = queue.pop() {
        if used.contains_key(id) {
            continue;
        }
        let for_product = |needed: &&Value| list(&needed["dep_kinds"]).any(|kind| kind["kind"] != "dev");
        let needed = nodes.get(id).into_iter().flat_map(|node| list(&node["deps"])).filter(for_product);
        let needed: Vec<&str> = needed.filter_map(|needed| needed["pkg"].as_str()).collect();
        queue.extend(&needed);
        used.insert(id, needed);
    }
    used
}

fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let purl = reference(package);
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": text("name"),
        "version": text("version"),
        "purl": purl,
    });
    if let Some(licence) = package["license"].as_str() {
        // Cargo's older notation for OR.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ").replace("  ", " ") }]);
    }
    if let Some(sum) = sums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

fn reference(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

/// Checksums of the registry's archives, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|line| line.trim_end_matches('"').to_owned())
    };
    let entries = lock.split("[[package]]");
    entries
        .filter_map(|entry| {
            Some(((value(entry, "name")?, value(entry, "version")?), value(entry, "checksum")?))
        })
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
