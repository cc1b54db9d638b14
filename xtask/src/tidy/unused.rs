//! Finds dependencies that a package declares and does not use, for `cargo xtask tidy`.
//!
//! DECISION: a search of ours instead of cargo-shear, which does not follow `#[path]` to the tests that are
//! compiled with a library (`../tests/runner.rs`), and would remove what they use.

use std::path::Path;

use regex_lite::Regex;

use super::Finding;
use crate::source::Source;

pub(super) fn check(sources: &[Source], manifests: &[Source]) -> Vec<Finding> {
    let manifests = manifests.iter().filter(|text| text.path.ends_with("Cargo.toml"));
    manifests.flat_map(|manifest| unused(manifest, sources)).collect()
}

fn unused(manifest: &Source, sources: &[Source]) -> Vec<Finding> {
    let folder = manifest.path.parent().unwrap_or(Path::new(""));
    let own: Vec<&str> = sources
        .iter()
        .filter(|source| source.path.starts_with(folder))
        .map(|source| source.text.as_str())
        .collect();
    let is_unused = |(_, name): &(usize, &str)| !own.iter().any(|text| names(text, name, &own));
    let finding = |(line, name)| Finding {
        file: manifest.path.clone(),
        line,
        rule: format!("no source of the package names `{name}`"),
    };
    dependencies(&manifest.text).filter(is_unused).map(finding).collect()
}

/// Names of dependencies with their lines. The workspace's own list is none.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_list = false;
    manifest.lines().enumerate().filter_map(move |(number, line)| {
        if line.starts_with('[') {
            is_list = line.ends_with("dependencies]") && !line.contains("workspace");
        }
        let (name, _) = line.split_once(['.', ' ', '=']).filter(|_| is_list)?;
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_name.then_some((number + 1, name))
    })
}

/// Packages whose library has another name.
const RENAMED: &[(&str, &str)] = &[("rustls-webpki", "webpki")];

/// Whether a line of code begins a path with the crate, or imports it whole.
///
/// A module of the same name shadows it; then only `::name` is the crate.
fn names(text: &str, name: &str, own: &[&str]) -> bool {
    let library = RENAMED.iter().find(|(package, _)| *package == name).map_or(name, |(_, library)| library);
    let name = library.replace('-', "_");
    let is_shadowed = own.iter().any(|text| text.lines().any(|line| line.ends_with(&format!("mod {name};"))));
    let before = if is_shadowed { r"(?:^|[^\w:])::" } else { r"(?:^|[^\w:]|[^\w]::)" };
    let used = Regex::new(&format!(r"{before}{name}(?:::|;| as )")).expect("a name of a crate is no pattern");
    text.contains(&name)
        && text.lines().any(|line| !line.trim_start().starts_with("//") && used.is_match(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_comments_and_modules_are_no_use() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nhyper = \"1\"\nserde-json.workspace = true\n\
            ring = { version = \"0.17\" }\nlibc.workspace = true\n\n[dev-dependencies]\ntempfile.workspace = true\n";
        let manifests = [
            source("crates/a/Cargo.toml", manifest),
            source("Cargo.toml", "[workspace.dependencies]\nx = \"1\"\n"),
        ];
        let sources = [
            source(
                "crates/a/src/lib.rs",
                "mod hyper;\nuse hyper::Parameters;\nfn f() { ::serde_json::to_string(1) }\n",
            ),
            source("crates/a/src/hyper.rs", "// ring::digest\nextern crate libc;\n"),
            source("crates/a/tests/b.rs", "let folder = tempfile::tempdir();"),
            source("crates/b/src/lib.rs", "use ring::digest;"),
        ];
        let found: Vec<usize> = check(&sources, &manifests).into_iter().map(|finding| finding.line).collect();
        assert_eq!(found, [5, 7]);
    }
}
