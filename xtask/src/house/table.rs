//! Result of `cargo xtask house` as aligned text and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::figures::{self, Bound, Figure, Unit};
use super::survey::{CrateSurvey, Survey};

/// A tree with the head of its column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) head: String,
    pub(super) survey: Survey,
}

/// Two tables: the figures of the trees beside each other, and the crates of each tree.
pub(super) fn text(columns: &[Column]) -> String {
    let mut rows = vec![head("measure", columns)];
    let figures: Vec<Vec<Figure>> = columns.iter().map(|column| figures::figures(&column.survey)).collect();
    for figure in figures.first().into_iter().flatten() {
        let mut row = vec![figure.label.to_owned()];
        row.extend(figures.iter().map(|column| {
            let same = column.iter().find(|other| other.key == figure.key);
            same.map_or_else(|| "-".to_owned(), shown)
        }));
        row.push(figure.bound.map_or_else(String::new, |bound| bound_text(bound, figure.unit)));
        row.push(if figure.holds() { "" } else { "broken" }.to_owned());
        rows.push(row);
    }
    let mut text = aligned(&rows);
    for column in columns {
        let _ = write!(text, "\n{}\n{}", column.head, crates(&column.survey));
    }
    text
}

fn head(first: &str, columns: &[Column]) -> Vec<String> {
    let heads = columns.iter().map(|column| column.head.clone());
    let mut row = vec![first.to_owned()];
    row.extend(heads);
    row.extend(["bound".to_owned(), String::new()]);
    row
}

/// One row for each crate, the largest first.
fn crates(survey: &Survey) -> String {
    let heads = ["crate", "lines", "share", "files", "cycle", "// density", "doc openers", "who words"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let all: usize = survey.crates.iter().map(|of| of.product_lines).sum();
    let mut crates: Vec<&CrateSurvey> = survey.crates.iter().collect();
    crates.sort_by_key(|of| std::cmp::Reverse(of.product_lines));
    for of in crates {
        let percent = |part, whole| format!("{:.1} %", figures::percent(part, whole));
        rows.push(vec![
            of.name.clone(),
            grouped(of.product_lines),
            percent(of.product_lines, all),
            of.files.to_string(),
            of.cycle.len().to_string(),
            percent(of.comment_lines, of.code_lines),
            percent(of.question_docs.len(), of.doc_comments),
            of.people.len().to_string(),
        ]);
    }
    aligned(&rows)
}

fn shown(figure: &Figure) -> String {
    let value = number(figure.value, figure.unit);
    match &figure.of {
        Some(of) if figure.value > 0.0 => format!("{of} {value}"),
        _ => value,
    }
}

fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => grouped_digits(&format!("{value:.0}")),
        Unit::Percent => format!("{value:.2} %"),
        Unit::PerTenThousand => format!("{value:.1} in 10 000"),
    }
}

fn bound_text(bound: Bound, unit: Unit) -> String {
    let (sign, value) = match bound {
        Bound::AtMost(value) => ("<=", value),
        Bound::AtLeast(value) => (">=", value),
    };
    match unit {
        Unit::Count => format!("{sign} {}", number(value, unit)),
        Unit::Percent => format!("{sign} {value} %"),
        Unit::PerTenThousand => format!("{sign} {value} in 10 000"),
    }
}

fn grouped(count: usize) -> String {
    grouped_digits(&count.to_string())
}

/// Digits in groups of three: `92 103`.
fn grouped_digits(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The first column to the left, all others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match number {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// An object for each tree, by its head.
pub(super) fn json(columns: &[Column]) -> Value {
    let trees = columns.iter().map(|column| (column.head.clone(), tree(&column.survey)));
    Value::Object(trees.collect())
}

fn tree(survey: &Survey) -> Value {
    let mut object = Map::new();
    for figure in figures::figures(survey) {
        let mut value = json!({ "value": figure.value });
        if let Some(of) = &figure.of {
            value["crate"] = json!(of);
        }
        match figure.bound {
            Some(Bound::AtMost(most)) => value["at_most"] = json!(most),
            Some(Bound::AtLeast(least)) => value["at_least"] = json!(least),
            None => {}
        }
        object.insert(figure.key.to_owned(), value);
    }
    let crates = survey.crates.iter().map(|of| {
        let value = json!({
            "product_lines": of.product_lines,
            "files": of.files,
            "largest_cycle": of.cycle.len(),
            "code_lines": of.code_lines,
            "comment_lines": of.comment_lines,
            "doc_comments": of.doc_comments,
            "doc_openers": of.question_docs.len(),
            "comment_words": of.comment_words,
            "people_words": of.people.len(),
        });
        (of.name.clone(), value)
    });
    object.insert("by_crate".to_owned(), Value::Object(crates.collect()));
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_digits_grouped() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(aligned(&[row(["a", "10"]), row(["bcd", "2"])]), "a    10\nbcd   2\n");
        assert_eq!([grouped(7), grouped(1234), grouped(123_456)], ["7", "1 234", "123 456"]);
    }

    #[test]
    fn both_trees_stand_beside_each_other() {
        let column = |head: &str, tests| Column {
            head: head.to_owned(),
            survey: Survey { crates: Vec::new(), tests, ignored: 0 },
        };
        let columns = [column("now", 1200), column("before", 1100)];
        let text = text(&columns);
        let tests: Vec<&str> = text.lines().filter(|line| line.starts_with("tests")).collect();
        assert_eq!(tests.len(), 1);
        assert!(tests[0].contains("1 200") && tests[0].contains("1 100"), "{text}");
        assert_eq!(json(&columns)["before"]["tests"]["value"], 1100.0);
    }
}
