//! Figures of `cargo xtask house`, such as product lines, each with its unit and its bound.

use super::survey::{CrateSurvey, Survey};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Percent,
    PerTenThousand,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    pub(super) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    /// The key in JSON.
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) value: f64,
    pub(super) unit: Unit,
    pub(super) bound: Option<Bound>,
    /// The crate that the figure is of, where it is a largest one.
    pub(super) of: Option<String>,
}

impl Figure {
    fn new(key: &'static str, label: &'static str, value: f64, unit: Unit) -> Self {
        Self { key, label, value, unit, bound: None, of: None }
    }

    fn count(key: &'static str, label: &'static str, value: usize) -> Self {
        Self::new(key, label, float(value), Unit::Count)
    }

    fn at_most(self, most: f64) -> Self {
        Self { bound: Some(Bound::AtMost(most)), ..self }
    }

    fn at_least(self, least: f64) -> Self {
        Self { bound: Some(Bound::AtLeast(least)), ..self }
    }

    fn of(self, name: &str) -> Self {
        Self { of: Some(name.to_owned()), ..self }
    }

    pub(super) fn holds(&self) -> bool {
        self.bound.is_none_or(|bound| bound.holds(self.value))
    }
}

/// All figures of a tree, in the order of the table.
pub(super) fn figures(survey: &Survey) -> Vec<Figure> {
    let mut found = size(survey);
    found.extend(functions(survey));
    found.extend(prose(survey));
    found.extend(names(survey));
    found.push(Figure::count("tests", "tests", survey.tests));
    found.push(Figure::count("ignored_tests", "  ignored", survey.ignored));
    found
}

fn size(survey: &Survey) -> Vec<Figure> {
    let lines = total(survey, |of| of.product_lines);
    let mut found = vec![
        Figure::count("product_lines", "product lines", lines).at_most(83_000.0),
        Figure::count("crates", "crates", survey.crates.len()),
    ];
    if let Some(largest) = survey.crates.iter().max_by_key(|of| of.product_lines) {
        let share = percent(largest.product_lines, lines);
        let figure = Figure::new("largest_crate_share", "largest crate", share, Unit::Percent);
        found.push(figure.at_most(24.0).of(&largest.name));
    }
    if let Some(knot) = survey.crates.iter().max_by_key(|of| of.cycle.len()) {
        let figure = Figure::count("largest_cycle", "largest import cycle, files", knot.cycle.len());
        found.push(figure.at_most(3.0).of(&knot.name));
    }
    found
}

fn functions(survey: &Survey) -> Vec<Figure> {
    let functions = survey.crates.iter().flat_map(|of| &of.functions);
    let mut lengths: Vec<usize> = functions.map(|function| function.length).collect();
    lengths.sort_unstable();
    let long = lengths.iter().filter(|length| **length > LONG).count();
    let at = |share| percentile(&lengths, share);
    vec![
        Figure::count("functions", "functions", lengths.len()),
        Figure::count("function_p50", "  lines, p50", at(50)),
        Figure::count("function_p90", "  lines, p90", at(90)),
        Figure::count("function_p99", "  lines, p99", at(99)).at_most(49.0),
        Figure::count("function_max", "  lines, longest", at(100)).at_most(106.0),
        Figure::new("functions_over_50", "  over 50 lines", percent(long, lengths.len()), Unit::Percent),
    ]
}

/// Lines that a function may have without being listed.
pub(super) const LONG: usize = 50;

fn prose(survey: &Survey) -> Vec<Figure> {
    let docs = total(survey, |of| of.doc_comments);
    let openers = total(survey, |of| of.question_docs.len());
    let words = total(survey, |of| of.comment_words);
    let people = total(survey, |of| of.people.len());
    let density = percent(total(survey, |of| of.comment_lines), total(survey, |of| of.code_lines));
    vec![
        Figure::new("comment_density", "// lines per code line", density, Unit::Percent).at_least(4.0),
        Figure::count("doc_comments", "doc comments", docs),
        Figure::new("doc_openers", "  opening with What, Who, How …", percent(openers, docs), Unit::Percent)
            .at_most(4.0),
        Figure::count("comment_words", "words of comments", words),
        Figure::new(
            "people_words",
            "  who, nobody, somebody …",
            ratio(people, words) * 1e4,
            Unit::PerTenThousand,
        )
        .at_most(2.0),
    ]
}

fn names(survey: &Survey) -> Vec<Figure> {
    let names = survey.type_names();
    let twice = names.values().filter(|(places, _)| places.len() > 1).count();
    let shared = names.values().filter(|(_, crates)| crates.len() > 1).count();
    vec![
        Figure::count("type_names", "type names", names.len()),
        Figure::count("type_names_twice", "  defined twice or more", twice),
        Figure::count("type_names_shared", "  in more than one crate", shared).at_most(40.0),
    ]
}

fn total(survey: &Survey, of: impl Fn(&CrateSurvey) -> usize) -> usize {
    survey.crates.iter().map(of).sum()
}

/// The smallest length that `share` percent of all do not exceed.
fn percentile(sorted: &[usize], share: usize) -> usize {
    let rank = (sorted.len() * share).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

pub(super) fn percent(part: usize, whole: usize) -> f64 {
    ratio(part, whole) * 100.0
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

/// Counts of lines and words stay far below 2³².
fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        let lengths: Vec<usize> = (1..=200).collect();
        assert_eq!(percentile(&lengths, 50), 100);
        assert_eq!(percentile(&lengths, 99), 198);
        assert_eq!(percentile(&lengths, 100), 200);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn bounds_hold_at_their_value() {
        let figure = Figure::count("a", "a", 3).at_most(3.0);
        assert!(figure.holds() && !figure.at_most(2.9).holds());
        assert!(!Figure::count("a", "a", 3).at_least(4.0).holds());
    }

    #[test]
    fn an_empty_tree_divides_by_nothing() {
        let empty = Survey { crates: Vec::new(), tests: 0, ignored: 0 };
        assert!(figures(&empty).iter().all(|figure| figure.value.is_finite()));
    }
}
