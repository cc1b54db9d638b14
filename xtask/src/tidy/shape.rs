//! The shape of files: their length and their names.

use super::{Finding, Source};

/// Lines that a file may have. Tables are data and may be longer.
const LONGEST: usize = 500;
const TABLES: &[&str] = &["flags/table.rs", "model/types.rs", "model/arch.rs"];
/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "manager", "misc", "mod",
];

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .flat_map(|source| [length(source), name(source)])
        .flatten()
        .collect()
}

fn length(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    let table = TABLES.iter().any(|table| source.path.ends_with(table));
    (lines > LONGEST && !table).then(|| Finding {
        file: source.path.clone(),
        line: LONGEST + 1,
        rule: format!("{lines} lines; split it before {LONGEST}"),
    })
}

fn name(source: &Source) -> Option<Finding> {
    let stem = source.path.file_stem()?.to_str()?;
    EMPTY_NAMES.contains(&stem).then(|| Finding {
        file: source.path.clone(),
        line: 1,
        rule: format!(
            "`{stem}` names nothing; call it what it is (and `foo.rs` beside `foo/`, never mod.rs)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_empty_names_are_found() {
        let long = Source {
            path: "crates/core/src/plan.rs".into(),
            text: "\n".repeat(LONGEST + 1),
        };
        let table = Source {
            path: "crates/core/src/flags/table.rs".into(),
            text: "\n".repeat(LONGEST + 1),
        };
        let empty = Source {
            path: "crates/core/src/utils.rs".into(),
            text: String::new(),
        };
        let rules: Vec<String> = check(&[long, table, empty]).into_iter().map(|f| f.rule).collect();
        assert_eq!(rules.len(), 2, "{rules:?}");
        assert!(rules[0].starts_with("501 lines"));
        assert!(rules[1].starts_with("`utils` names nothing"));
    }
}
