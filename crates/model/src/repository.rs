//! Chooses files of a repository: the model, its parts if it is split, its projector, and the quantisations.
//!
//! The rules are those of `common/download.cpp @ 0.5.0` (`find_best_model`, `find_best_sibling`).

use std::collections::HashMap;

use crate::split::{SplitName, siblings};

/// Quantisations that llama-server looks for where none is named.
const USUAL: [&str; 2] = ["Q4_K_M", "Q8_0"];
/// Words in the names of files that are no models by themselves.
const BESIDES: [&str; 6] = ["mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"];

/// Why no model of a repository is chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error("the repository contains no GGUF file\nhint: look for a repository whose name ends in -GGUF")]
    NoModel,
    #[error(
        "the repository holds no model, only a preset file that names other models\nhint: plan one of those models"
    )]
    Preset,
    #[error("the repository has no file of quantisation `{tag}`; it has {}", listed(.has))]
    NoSuchQuant { tag: String, has: Vec<String> },
    #[error("the repository has no file `{file}`; it has {}", listed(.has))]
    NoSuchFile { file: String, has: Vec<String> },
    #[error("the repository lacks file {number} of the model's {count} files")]
    Incomplete { number: u16, count: u16 },
}

/// One quantisation in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantisation {
    /// The part of its name in which it differs from the others.
    pub name: String,
    /// Its files, the first first.
    pub files: Vec<String>,
    /// Bytes of all files; `None` where the list does not say.
    pub size: Option<u64>,
}

/// The files of the model that llama-server would load: of `tag`, else of the usual ones, else the first.
pub fn model(paths: &[&str], tag: Option<&str>) -> Result<Vec<String>, ChoiceError> {
    if paths.contains(&"preset.ini") {
        return Err(ChoiceError::Preset);
    }
    let firsts = firsts(paths);
    let of = |tag: &str| firsts.iter().find(|path| has_tag(path, tag));
    let found = match tag {
        Some(tag) => of(tag),
        None => USUAL.iter().find_map(|tag| of(tag)).or(firsts.first()),
    };
    match (found, tag) {
        (Some(path), _) => parts(paths, path),
        (None, Some(tag)) if !firsts.is_empty() => {
            Err(ChoiceError::NoSuchQuant { tag: tag.escape_debug().to_string(), has: names(&firsts) })
        }
        _ => Err(ChoiceError::NoModel),
    }
}

/// The same of the usual quantisation alone, so that a cache does not answer for one that it lacks.
pub fn usual(paths: &[&str], tag: Option<&str>) -> Option<Vec<String>> {
    model(paths, tag.or(Some(USUAL[0]))).ok()
}

/// The files of the set that `file` belongs to (`--hf-file`).
pub fn named(paths: &[&str], file: &str) -> Result<Vec<String>, ChoiceError> {
    if paths.contains(&file) {
        parts(paths, file)
    } else {
        Err(ChoiceError::NoSuchFile {
            file: file.escape_debug().to_string(),
            has: firsts(paths).into_iter().map(str::to_owned).collect(),
        })
    }
}

/// The projector that belongs to a model: in the nearest folder above it, and of the nearest bits.
pub fn projector<'a>(paths: &[&'a str], model: &str) -> Option<&'a str> {
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let above = folder(model);
    let distance = |path: &str| (bits(path).abs_diff(bits(model)), path.len());
    let candidates = paths.iter().filter(|path| {
        path.ends_with(".gguf") && path.contains("mmproj") && above.starts_with(&folder(path))
    });
    // The first of equals, as there.
    candidates.copied().min_by_key(|path| (std::cmp::Reverse(folder(path).len()), distance(path).0))
}

/// All models of a repository, by name.
/// `files` are paths with sizes in bytes.
pub fn quantisations(files: &[(&str, Option<u64>)]) -> Vec<Quantisation> {
    let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    let firsts = firsts(&paths);
    let sizes: HashMap<&str, Option<u64>> = files.iter().copied().collect();
    let size = |path: &String| sizes.get(path.as_str()).copied().flatten();
    let of = |(path, name): (&&str, String)| {
        // An incomplete set cannot be loaded, so it is left out.
        let files = parts(&paths, path).ok()?;
        let size = files.iter().map(size).try_fold(0_u64, |sum, size| sum.checked_add(size?));
        Some(Quantisation { name, size, files })
    };
    firsts.iter().zip(names(&firsts)).filter_map(of).collect()
}

/// Models, each by its first file.
fn firsts<'a>(paths: &[&'a str]) -> Vec<&'a str> {
    let is_model = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        path.ends_with(".gguf") && !BESIDES.iter().any(|word| name.contains(word))
    };
    let is_first = |path: &str| SplitName::parse(path).is_none_or(|name| name.number == 1);
    paths.iter().copied().filter(|path| is_model(path) && is_first(path)).collect()
}

/// The tag followed by `.` or `-`, anywhere in the path, in either case.
fn has_tag(path: &str, tag: &str) -> bool {
    let (path, tag) = (path.to_ascii_lowercase(), tag.to_ascii_lowercase());
    ['.', '-'].iter().any(|end| path.contains(&format!("{tag}{end}")))
}

fn parts(paths: &[&str], first: &str) -> Result<Vec<String>, ChoiceError> {
    let all = siblings(first);
    let count = u16::try_from(all.len()).unwrap_or(u16::MAX);
    match (1..).zip(&all).find(|(_, path)| !paths.contains(&path.as_str())) {
        Some((number, _)) => Err(ChoiceError::Incomplete { number, count }),
        None => Ok(all),
    }
}

/// A model's name without folder, ending and number of the file.
fn stem(path: &str) -> &str {
    let prefix = SplitName::parse(path).map_or_else(|| path.trim_end_matches(".gguf"), |name| name.prefix);
    prefix.rsplit('/').next().unwrap_or(prefix)
}

/// The parts of the names in which they differ: what follows the beginning that all have.
fn names(paths: &[&str]) -> Vec<String> {
    let stems: Vec<&str> = paths.iter().map(|path| stem(path)).collect();
    let separators = |stem: &str| -> Vec<usize> {
        stem.char_indices().filter(|(_, c)| "-.".contains(*c)).map(|(at, _)| at + 1).collect()
    };
    let Some(first) = stems.first() else { return Vec::new() };
    let shared = |at: &usize| stems.len() > 1 && stems.iter().all(|stem| stem.starts_with(&first[..*at]));
    let common = separators(first).into_iter().rev().find(shared);
    let last = |stem: &str| separators(stem).last().copied().unwrap_or(0);
    let name = |stem: &&str| stem[common.unwrap_or_else(|| last(stem))..].to_owned();
    stems.iter().map(name).collect()
}

/// The first number in the last part of a name: 4 for `x-Q4_0.gguf`, 16 for `mmproj-F16.gguf`.
fn bits(path: &str) -> u32 {
    let stem = stem(path);
    let part = stem.rsplit(['-', '.']).next().unwrap_or(stem);
    let digits = part.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// A few of the names, and how many there are besides.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 24;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 10] = [
        "BF16/m-BF16-00001-of-00002.gguf",
        "BF16/m-BF16-00002-of-00002.gguf",
        "README.md",
        "m-IQ2_M.gguf",
        "m-Q4_K_M.gguf",
        "m-Q8_0.gguf",
        "m-UD-Q4_K_XL.gguf",
        "mmproj-BF16.gguf",
        "mmproj-Q8_0.gguf",
        "mtp-m-Q4_K_M.gguf",
    ];

    fn chosen(tag: Option<&str>) -> Option<String> {
        Some(model(&FILES, tag).ok()?.remove(0))
    }

    #[test]
    fn a_model_is_chosen_as_llama_server_chooses() {
        assert_eq!(chosen(None).as_deref(), Some("m-Q4_K_M.gguf"));
        assert_eq!(chosen(Some("q8_0")).as_deref(), Some("m-Q8_0.gguf"));
        assert_eq!(chosen(Some("UD-Q4_K_XL")).as_deref(), Some("m-UD-Q4_K_XL.gguf"));
        assert_eq!(model(&FILES, Some("BF16")).unwrap().len(), 2);
        assert!(matches!(model(&FILES, Some("Q4_K")), Err(ChoiceError::NoSuchQuant { .. })));
        assert!(matches!(model(&["a-Q5_0.gguf"], None).as_deref(), Ok([one]) if one == "a-Q5_0.gguf"));
        assert!(matches!(model(&["x.bin", "mmproj-F16.gguf"], None), Err(ChoiceError::NoModel)));
        assert!(matches!(model(&["preset.ini", "a-Q4_K_M.gguf"], None), Err(ChoiceError::Preset)));
        assert_eq!(usual(&["a-Q8_0.gguf"], None), None);
        let lacking = ["a-Q4_K_M-00001-of-00003.gguf", "a-Q4_K_M-00002-of-00003.gguf"];
        assert!(matches!(model(&lacking, None), Err(ChoiceError::Incomplete { number: 3, count: 3 })));
        assert!(matches!(named(&FILES, "none.gguf"), Err(ChoiceError::NoSuchFile { .. })));
        assert_eq!(named(&FILES, FILES[0]).unwrap().len(), 2);
    }

    #[test]
    fn the_projector_is_the_one_of_the_nearest_bits_and_folder() {
        assert_eq!(projector(&FILES, "m-Q4_K_M.gguf"), Some("mmproj-Q8_0.gguf"));
        assert_eq!(projector(&FILES, FILES[0]), Some("mmproj-BF16.gguf"));
        let folders = ["a/mmproj-F16.gguf", "mmproj-F16.gguf"];
        assert_eq!(projector(&folders, "a/m-F16.gguf"), Some("a/mmproj-F16.gguf"));
        assert_eq!(projector(&folders, "b/m-F16.gguf"), Some("mmproj-F16.gguf"));
        assert_eq!(projector(&["m-Q4_0.gguf"], "m-Q4_0.gguf"), None);
    }

    #[test]
    fn quantisations_are_named_by_what_distinguishes_them() {
        let found = quantisations(&FILES.map(|path| (path, Some(7))));
        let found: Vec<(&str, usize, Option<u64>)> =
            found.iter().map(|one| (one.name.as_str(), one.files.len(), one.size)).collect();
        let expected = [
            ("BF16", 2, Some(14)),
            ("IQ2_M", 1, Some(7)),
            ("Q4_K_M", 1, Some(7)),
            ("Q8_0", 1, Some(7)),
            ("UD-Q4_K_XL", 1, Some(7)),
        ];
        assert_eq!(found, expected);
        assert_eq!(names(&["solo-7B-Q5_0.gguf"]), ["Q5_0"]);
        assert_eq!(names(&["x.gguf"]), ["x"]);
    }
}
