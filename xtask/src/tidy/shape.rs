//! Rules for the length and the names of Rust files.

use super::{Finding, Severity, Source};

/// The rule of CONTRIBUTING.md; a longer file is a warning.
const LONG: usize = 300;
/// A longer file of the product is an error.
const TOO_LONG: usize = 500;
/// The same for tests, whose files may hold long tables of cases.
const TEST_TOO_LONG: usize = 500;
/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "misc", "mod"];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().flat_map(|source| [length(source), name(source)]).flatten().collect()
}

fn length(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    let most = if is_product(source) { TOO_LONG } else { TEST_TOO_LONG };
    let (severity, bound) = if lines > most {
        (Severity::Error, most)
    } else if lines > LONG && is_product(source) {
        (Severity::Warning, LONG)
    } else {
        return None;
    };
    Some(Finding {
        file: source.path.clone(),
        line: bound + 1,
        rule: format!("{lines} lines; split it before {bound}"),
        severity,
    })
}

/// A file below `src` that is no test by its name.
fn is_product(source: &Source) -> bool {
    let stem = source.path.file_stem().unwrap_or_default().to_string_lossy();
    let mut folders = source.path.components().map(|part| part.as_os_str());
    let is_test = stem == "tests" || stem.ends_with("_tests") || folders.clone().any(|name| name == "tests");
    !is_test && folders.any(|name| name == "src")
}

fn name(source: &Source) -> Option<Finding> {
    let stem = source.path.file_stem()?.to_str()?;
    EMPTY_NAMES.contains(&stem).then(|| Finding {
        file: source.path.clone(),
        line: 1,
        rule: format!(
            "`{stem}` names nothing; call it what it is (and `foo.rs` beside `foo/`, never mod.rs)"
        ),
        severity: Severity::Error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, lines: usize) -> Vec<(Severity, String)> {
        let source = Source { path: path.into(), text: "\n".repeat(lines) };
        let findings = check(&[source]).into_iter();
        findings.map(|finding| (finding.severity, finding.rule)).collect()
    }

    #[test]
    fn files_above_the_rule_are_warnings_first() {
        let file = "crates/a/src/b.rs";
        assert_eq!(found(file, LONG), []);
        assert_eq!(found(file, LONG + 1)[0].0, Severity::Warning);
        assert_eq!(found(file, TOO_LONG)[0].0, Severity::Warning);
        let (severity, rule) = found(file, TOO_LONG + 1).remove(0);
        let expected = format!("{} lines; split it before {TOO_LONG}", TOO_LONG + 1);
        assert_eq!((severity, rule), (Severity::Error, expected));
    }

    #[test]
    fn tests_may_be_longer() {
        for file in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/a/src/b_tests.rs"] {
            assert_eq!(found(file, TEST_TOO_LONG), [], "{file}");
            assert_eq!(found(file, TEST_TOO_LONG + 1)[0].0, Severity::Error);
        }
    }

    #[test]
    fn names_that_say_nothing_are_errors() {
        let (severity, rule) = found("crates/a/src/utils.rs", 1).remove(0);
        assert_eq!(severity, Severity::Error);
        assert!(rule.starts_with("`utils` names nothing"));
    }
}
