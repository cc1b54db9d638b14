//! Reads nextest's JUnit report, for the counts and times of tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roxmltree::{Document, Node};

#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error("no report of the tests in {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("the report of the tests is damaged: {0}")]
    Xml(#[from] roxmltree::Error),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) times: Vec<(String, Duration)>,
}

pub(super) fn read(path: &Path) -> Result<Report, ReportError> {
    let text =
        fs::read_to_string(path).map_err(|error| ReportError::Read { path: path.to_path_buf(), error })?;
    Ok(parse(&text)?)
}

fn parse(text: &str) -> Result<Report, roxmltree::Error> {
    let document = Document::parse(text)?;
    let mut report = Report::default();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let has = |name: &str| case.children().any(|child| child.has_tag_name(name));
        if has("failure") || has("error") {
            report.failed += 1;
        } else {
            report.passed += 1;
        }
        report.times.push((name(case), time(case)));
    }
    Ok(report)
}

/// The binary and the test, as nextest prints them.
fn name(case: Node<'_, '_>) -> String {
    let attribute = |name| case.attribute(name).unwrap_or_default();
    format!("{} {}", attribute("classname"), attribute("name"))
}

fn time(case: Node<'_, '_>) -> Duration {
    let seconds = case.attribute("time").and_then(|time| time.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // As cargo-nextest 0.9.143 writes it, without time stamps.
    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0" uuid="0" time="3.1">
  <testsuite name="a::b" tests="3" disabled="0" errors="0" failures="1">
    <testcase name="m::holds" classname="a::b" time="0.012"/>
    <testcase name="m::lasts" classname="a::b" time="1.500"/>
    <testcase name="m::breaks" classname="a::b" time="0.3">
      <failure type="test failure with exit code 101" message="m">text</failure>
    </testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn tests_are_counted_and_timed() {
        let report = parse(REPORT).unwrap();
        assert_eq!((report.passed, report.failed), (2, 1));
        assert_eq!(report.times[1], ("a::b m::lasts".to_owned(), Duration::from_millis(1500)));
    }

    #[test]
    fn a_damaged_report_is_an_error() {
        assert!(parse("<testsuites>").is_err());
        assert!(read(Path::new("/nowhere/junit.xml")).is_err());
    }
}
