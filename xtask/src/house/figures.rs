//! Measures the source text for `cargo xtask house`: lines, names, comments, `match` on booleans, and the
//! size of the type `Runtime`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex_lite::Regex;

use super::{Figure, float};
use crate::source::{Source, code, product_lines};

/// Crates of several hosts and of measuring: the rest is the core.
const BESIDE_CORE: &[&str] = &["etcd", "fleet", "identity", "measure", "member"];
/// Words of identifiers for which the field has terms of its own.
const ODD: &str = r"(?i)^(wish|told|said|held|asked|made|tell|beside)$";
const QUESTION_TEST: &str =
    r"^\s*(?:async )?fn (?:what|who|whose|whom|where|which|whatever|whoever|why|when|how)_";
const COLUMNS: usize = 110;
const LONGEST_FILE: usize = 500;

/// A line of the product.
struct Line<'a> {
    of: &'a str,
    file: &'a Path,
    number: usize,
    text: &'a str,
}

pub(super) fn of(texts: &[Source], tests: &BTreeSet<PathBuf>) -> Vec<Figure> {
    let product = texts.iter().filter(|source| !tests.contains(&source.path));
    let product = product.filter_map(|source| Some((source.product_crate()?, source)));
    let lines: Vec<Line<'_>> = product
        .flat_map(|(of, source)| {
            let line = move |(number, text)| Line { of, file: &source.path, number, text };
            product_lines(&source.text).into_iter().map(line)
        })
        .collect();
    let rust: Vec<&Source> = texts.iter().filter(|source| source.is("rs")).collect();
    let mut found = size(&lines);
    found.push(
        per_thousand("odd identifiers per 1000 lines", 1.0, odd_identifiers(&lines), lines.len()).due(),
    );
    found.push(count("tests named by question words", 0.0, questions(&rust)).due());
    found.push(
        per_thousand("arms on true or false per 1000 lines", 0.3, truth_arms(&lines), lines.len()).due(),
    );
    found.push(count("comment lines over 110 columns", 0.0, wide_comments(&rust)).due());
    found.push(count("files over 500 lines", 0.0, long_files(&rust)).due());
    found.extend(runtime(&lines));
    found
}

impl Figure {
    fn due(self) -> Self {
        Self { is_due: true, ..self }
    }
}

fn count(name: &'static str, bound: f64, places: Vec<(PathBuf, usize)>) -> Figure {
    Figure { name, value: float(places.len()), bound, is_due: false, places }
}

fn per_thousand(name: &'static str, bound: f64, places: Vec<(PathBuf, usize)>, lines: usize) -> Figure {
    let value = float(places.len()) * 1000.0 / float(lines.max(1));
    Figure { name, value, bound, is_due: false, places }
}

fn size(lines: &[Line<'_>]) -> Vec<Figure> {
    let mut crates = BTreeMap::<&str, usize>::new();
    for line in lines {
        *crates.entry(line.of).or_default() += 1;
    }
    let core = crates.iter().filter(|(name, _)| !BESIDE_CORE.contains(name)).map(|(_, lines)| lines).sum();
    let largest = crates.values().copied().max().unwrap_or_default();
    let figure = |name, value, bound| Figure { name, value, bound, is_due: false, places: Vec::new() };
    vec![
        figure("product lines", float(lines.len()), 106_000.0),
        figure("product lines of the core", float(core), 92_000.0),
        figure("largest crate, percent", float(largest) * 100.0 / float(lines.len().max(1)), 12.0).due(),
    ]
}

fn odd_identifiers(lines: &[Line<'_>]) -> Vec<(PathBuf, usize)> {
    let (odd, identifier) = (pattern(ODD), pattern(r"[A-Za-z_][A-Za-z0-9_]*"));
    // `HeldLease` and `held_lease` have the same parts.
    let part = pattern(r"[A-Z]+[a-z0-9]*|[a-z0-9]+");
    let mut found = Vec::new();
    for line in lines {
        let code = code(line.text);
        let names = identifier
            .find_iter(&code)
            .filter(|name| part.find_iter(name.as_str()).any(|part| odd.is_match(part.as_str())));
        found.extend(names.map(|_| (line.file.to_owned(), line.number)));
    }
    found
}

fn questions(rust: &[&Source]) -> Vec<(PathBuf, usize)> {
    let question = pattern(QUESTION_TEST);
    let mut found = Vec::new();
    for source in rust {
        let mut is_test = false;
        for (number, line) in source.text.lines().enumerate() {
            let line_trimmed = line.trim_start();
            if line_trimmed.starts_with("#[") {
                is_test |= line_trimmed.contains("test]") || line_trimmed.contains("::test(");
            } else {
                if is_test && question.is_match(line) {
                    found.push((source.path.clone(), number + 1));
                }
                is_test = false;
            }
        }
    }
    found
}

fn truth_arms(lines: &[Line<'_>]) -> Vec<(PathBuf, usize)> {
    let arm = pattern(r"^\s*(?:true|false)(?: if .*)? => ");
    let arms = lines.iter().filter(|line| arm.is_match(line.text));
    arms.map(|line| (line.file.to_owned(), line.number)).collect()
}

fn wide_comments(rust: &[&Source]) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for source in rust {
        let lines = source.text.lines().enumerate();
        let wide =
            lines.filter(|(_, line)| line.trim_start().starts_with("//") && line.chars().count() > COLUMNS);
        found.extend(wide.map(|(number, _)| (source.path.clone(), number + 1)));
    }
    found
}

fn long_files(rust: &[&Source]) -> Vec<(PathBuf, usize)> {
    let long = rust.iter().filter(|source| source.text.lines().count() > LONGEST_FILE);
    long.map(|source| (source.path.clone(), 1)).collect()
}

/// The state that the whole daemon shares, and the files that have a part of its methods.
fn runtime(lines: &[Line<'_>]) -> Vec<Figure> {
    let (head, field) =
        (pattern(r"^pub.*struct Runtime\b.*\{$"), pattern(r"^    (?:pub(?:\([^)]*\))? )?\w+: "));
    let fields = match lines.iter().position(|line| head.is_match(line.text)) {
        Some(start) => {
            let body = lines.iter().skip(start + 1).take_while(|line| line.text != "}");
            body.filter(|line| field.is_match(line.text))
                .map(|line| (line.file.to_owned(), line.number))
                .collect()
        }
        None => Vec::new(),
    };
    let block = pattern(r"^impl(?:<[^>]*>)? Runtime\b");
    let mut blocks: Vec<(PathBuf, usize)> = lines
        .iter()
        .filter(|line| block.is_match(line.text))
        .map(|line| (line.file.to_owned(), line.number))
        .collect();
    blocks.dedup_by(|a, b| a.0 == b.0);
    vec![count("fields of Runtime", 14.0, fields).due(), count("files with impl Runtime", 8.0, blocks).due()]
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a test compiles them all")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(name: &str, path: &str, text: &str) -> Vec<usize> {
        let sources = [Source { path: path.into(), text: text.to_owned() }];
        let tests = crate::source::test_files(&sources);
        let figures = of(&sources, &tests);
        let figure = figures.into_iter().find(|figure| figure.name == name).unwrap();
        figure.places.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn identifiers_have_odd_parts_in_code_alone() {
        let text =
            "let told_news = 1;\n// told\nlet a = \"told\";\nstruct HeldLease(Untold);\nlet wished = 1;\n";
        assert_eq!(places("odd identifiers per 1000 lines", "crates/a/src/b.rs", text), [1, 4]);
        assert!(places("odd identifiers per 1000 lines", "crates/a/tests/b.rs", text).is_empty());
    }

    #[test]
    fn tests_are_called_by_what_holds() {
        let text = "#[test]\nfn what_is() {}\n\n#[tokio::test]\n#[allow(x)]\nasync fn who_asks() {}\nfn what_else() {}\n";
        assert_eq!(places("tests named by question words", "bench/a.rs", text), [2, 6]);
    }

    #[test]
    fn matches_on_truth_and_wide_comments_are_found() {
        let text = format!("match a {{\n    true => 1,\n    false if b => 2,\n}}\n// {}\n", "x".repeat(108));
        assert_eq!(places("arms on true or false per 1000 lines", "crates/a/src/b.rs", &text), [2, 3]);
        assert_eq!(places("comment lines over 110 columns", "xtask/b.rs", &text), [5]);
    }

    #[test]
    fn fields_and_blocks_of_the_runtime_are_counted() {
        let text = "pub(crate) struct Runtime {\n    /// A.\n    pub(crate) a: u8,\n    b: u8,\n}\nimpl Runtime {\n}\nimpl Runtime {\n}\n";
        assert_eq!(places("fields of Runtime", "crates/a/src/b.rs", text), [3, 4]);
        assert_eq!(places("files with impl Runtime", "crates/a/src/b.rs", text), [6]);
    }
}
