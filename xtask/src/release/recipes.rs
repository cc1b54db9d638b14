//! Fills the installation script and the recipes of package managers with the release's facts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::options::Architecture;
use super::{VERSION, sha256};

/// Files of `packaging/` with words between `@`.
pub(super) const RECIPES: [&str; 4] = ["install.sh", "plimsoll.rb", "plimsoll.spec", "PKGBUILD"];

#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {error}", path.display())]
pub(super) struct RecipeError {
    path: PathBuf,
    error: io::Error,
}

pub(super) fn is_one(name: &str) -> bool {
    RECIPES.contains(&name)
}

/// What is known of a release whose archives lie in a folder.
pub(super) fn values(
    out: &Path,
    keys: &[String],
    floor: Option<(u32, u32)>,
    repository: Option<&str>,
) -> BTreeMap<&'static str, String> {
    let from = repository.map(|repository| format!("{repository}/releases/latest/download"));
    let mut values = BTreeMap::from([
        ("VERSION", VERSION.to_owned()),
        ("KEYS", keys.join(" ")),
        ("FROM", from.unwrap_or_default()),
    ]);
    if let Some((major, minor)) = floor {
        values.insert("GLIBC", format!("{major}.{minor}"));
    }
    if let Some(repository) = repository {
        values.insert("REPOSITORY", repository.to_owned());
    }
    for (key, architecture) in [("SHA256_AMD64", Architecture::Amd64), ("SHA256_ARM64", Architecture::Arm64)]
    {
        if let Ok(archive) = fs::read(out.join(format!("plimsoll-{VERSION}-linux-{architecture}.tar.gz"))) {
            values.insert(key, sha256(&archive));
        }
    }
    values
}

/// Writes the recipes whose facts are all known, and says which are not.
pub(super) fn write(
    root: &Path,
    out: &Path,
    values: &BTreeMap<&'static str, String>,
) -> Result<(), RecipeError> {
    for name in RECIPES {
        let path = root.join("packaging").join(name);
        let text = fs::read_to_string(&path).map_err(|error| RecipeError { path, error })?;
        let path = out.join(name);
        let written = match filled(&text, values) {
            Ok(text) => fs::write(&path, text),
            Err(unknown) => {
                eprintln!("release: {name} is not written, because {unknown} is not known");
                fs::remove_file(&path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })
            }
        };
        written.map_err(|error| RecipeError { path, error })?;
    }
    Ok(())
}

/// The text with each `@WORD@` replaced, or the first word that has no value.
fn filled(text: &str, values: &BTreeMap<&'static str, String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        filled += before;
        let word = after.split('@').next().unwrap_or_default();
        let is_word = !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_');
        if !is_word || word.len() == after.len() {
            filled.push('@');
            rest = after;
            continue;
        }
        filled += values.get(word).ok_or_else(|| word.to_owned())?;
        rest = &after[word.len() + 1..];
    }
    Ok(filled + rest)
}
