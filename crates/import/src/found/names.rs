//! Names the models that were found, by the rules of llama-server's `--models-dir` and of Hugging Face's hub.

use std::collections::HashMap;
use std::path::Path;

use plimsoll_model::split::SplitName;

/// A file's name without folder, ending and number.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let whole = SplitName::parse(&name).map(|split| split.prefix.to_owned());
    whole.unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}

/// The name of a file below a folder of models: its own, or its folder's where it is the only model of a
/// folder directly below (`server-models.cpp: load_from_models_dir @ b10605`).
pub(super) fn in_folder(relative: &Path, is_only: bool) -> String {
    let folder = relative.parent().filter(|folder| folder.components().count() == 1);
    match folder.filter(|_| is_only) {
        Some(folder) => folder.to_string_lossy().into_owned(),
        None => stem(relative),
    }
}

/// The name of a file of the hub's cache: the repository and the last part of the file's name
/// (`common/download.cpp: get_gguf_split_info @ 0.5.0`).
pub(super) fn in_repository(repo: &str, file: &Path) -> String {
    let stem = stem(file);
    let is_tag = |tag: &&str| !tag.is_empty() && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let tag = stem.rsplit(['-', '.']).next().filter(is_tag).unwrap_or(&stem);
    format!("{repo}:{}", tag.to_ascii_uppercase())
}

/// Distinct names: of models with one name each gets its longer one, and a number if that is taken too.
pub(super) fn distinct(names: &mut [(String, String)]) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for (name, _) in names.iter() {
        *count.entry(name.clone()).or_default() += 1;
    }
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (name, longer) in names {
        if count.get(name).is_some_and(|count| *count > 1) {
            name.clone_from(longer);
        }
        let number = taken.entry(name.clone()).or_default();
        *number += 1;
        if *number > 1 {
            *name = format!("{name} ({number})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_llama_server_and_no_two_are_the_same() {
        assert_eq!(in_folder(Path::new("m-00001-of-00002.gguf"), true), "m");
        assert_eq!(in_folder(Path::new("Gemma 3/model-q4.gguf"), true), "Gemma 3");
        assert_eq!(in_folder(Path::new("Gemma 3/model-q4.gguf"), false), "model-q4");
        assert_eq!(in_folder(Path::new("a/b/model.gguf"), true), "model");
        assert_eq!(in_repository("u/r-GGUF", Path::new("x/r-q4_k_m.gguf")), "u/r-GGUF:Q4_K_M");
        let mut names = ["x", "y", "x"].map(|name| (name.to_owned(), format!("sub/{name}")));
        distinct(&mut names);
        assert_eq!(names.map(|(name, _)| name), ["sub/x", "y", "sub/x (2)"]);
    }
}
