//! Finds the names of model architectures in an engine's library, for the drift check (engines compared with
//! the planner's formulas).
//!
//! llama.cpp stores its names together, so the search takes the strings around names that are already known.
//! The linker merges a name that is the end of another string; known names of that kind are added. A name
//! proves nothing, so each one is tested on the engine.

use std::collections::BTreeSet;
use std::fs;

use super::engines::Engine;
use super::{DriftError, models};

/// llama.cpp 0.7.0 has 160.
const MOST: usize = 400;
/// Bytes that the table of names takes, about twice over.
const REACH: usize = 4096;
/// Names that linkers were seen to drop.
const MERGED: [&str; 5] = ["bert", "glm4", "qwen", "qwen2", "rwkv7"];
/// The entry behind the last name.
const END: &str = "(unknown)";

/// Candidates of an engine, or what was asked for.
pub(super) fn known(engine: &Engine, only: &[String]) -> Result<Vec<String>, DriftError> {
    if !only.is_empty() {
        let names = only.iter().map(|name| models::architecture(name).unwrap_or_else(|| name.clone()));
        return Ok(names.collect::<BTreeSet<_>>().into_iter().collect());
    }
    let library = &engine.library;
    let bytes = fs::read(library).map_err(|error| DriftError::File { path: library.clone(), error })?;
    let mut names = table(&bytes);
    if names.len() > MOST {
        let (engine, count) = (engine.name.clone(), names.len());
        return Err(DriftError::Architectures { engine, count, most: MOST });
    }
    names.extend(models::architectures());
    names.extend(MERGED.map(str::to_owned));
    Ok(names.into_iter().collect())
}

fn table(bytes: &[u8]) -> BTreeSet<String> {
    let anchors = models::architectures();
    let mut at = 0;
    let strings = bytes.split(|&byte| byte == 0).map(|text| {
        let start = at;
        at += text.len() + 1;
        (start, text)
    });
    let strings: Vec<(usize, &str)> = strings
        .filter_map(|(start, text)| Some((start, std::str::from_utf8(text).ok()?)))
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let anchored: Vec<usize> =
        strings.iter().filter(|(_, text)| anchors.contains(*text)).map(|(start, _)| *start).collect();
    // The window with most of the known names.
    let within = |start: usize| anchored.iter().filter(|&&at| at >= start && at < start + REACH).count();
    let Some(&first) = anchored.iter().rev().max_by_key(|&&start| within(start)) else {
        return BTreeSet::new();
    };
    let last = anchored.iter().copied().filter(|&at| at < first + REACH).max().unwrap_or(first);
    // The table goes on behind the last known name, up to its end or to a string that is none.
    let of_table = |text: &&str| is_name(text);
    let inner = strings
        .iter()
        .filter(|(start, _)| (first..=last).contains(start))
        .map(|(_, text)| *text)
        .filter(of_table);
    let after = strings.iter().filter(|(start, _)| *start > last).map(|(_, text)| *text);
    let after = after.take_while(|text| *text != END).take_while(of_table);
    inner.chain(after).map(str::to_owned).collect()
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
    (2..=40).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with("general.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(names: impl Iterator<Item = String>) -> Engine {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text: Vec<String> = names.collect();
        fs::write(
            file.path(),
            format!("\x7fELF\0llama\0other text\0{}\0(unknown)\0general.type\0", text.join("\0")),
        )
        .unwrap();
        let (_, path) = file.keep().unwrap();
        Engine { name: "e".to_owned(), program: path.clone(), library: path, environment: Vec::new() }
    }

    #[test]
    fn a_library_names_its_architectures_and_nothing_else() {
        let names = ["llama", "newest-of-all", "gemma3", "qwen3", "zz_9"];
        let engine = library(names.into_iter().map(str::to_owned));
        let known = known(&engine, &[]).unwrap();
        fs::remove_file(&engine.library).unwrap();
        assert!(names.iter().all(|name| known.iter().any(|found| found == name)), "{known:?}");
        assert!(!known.iter().any(|name| name.contains("general") || name.contains("text")), "{known:?}");
    }

    #[test]
    fn an_engine_with_a_million_architectures_is_refused_with_a_remedy() {
        let names = ["llama", "gemma3", "qwen3"].map(str::to_owned).into_iter();
        let engine = library(names.chain((0..1_000_000).map(|number| format!("a{number}"))));
        let error = known(&engine, &[]).unwrap_err().to_string();
        assert!(error.contains("more than any llama.cpp has") && error.contains("--only"), "{error}");
        assert_eq!(known(&engine, &["l8".to_owned(), "llama".to_owned()]).unwrap(), ["llama"]);
        fs::remove_file(&engine.library).unwrap();
    }

    #[test]
    fn a_library_without_names_leaves_those_known() {
        let engine = library(std::iter::empty());
        let known = known(&engine, &[]).unwrap();
        fs::remove_file(&engine.library).unwrap();
        assert!(known.contains(&"llama".to_owned()) && known.len() < 60, "{known:?}");
    }
}
