//! Lists of the places behind a figure, such as the doc comments or functions that it counts.

use std::fmt::Write as _;

use super::figures::{LONG, percent};
use super::options::Listing;
use super::survey::{CrateSurvey, Place, Survey};

/// One line per place; with `only`, the places of that crate.
pub(super) fn listing(survey: &Survey, kind: Listing, only: Option<&str>) -> String {
    let crates = || survey.crates.iter().filter(|of| only.is_none_or(|only| of.name == only));
    let mut text = String::new();
    match kind {
        Listing::Docs => crates().for_each(|of| places(&mut text, &of.question_docs)),
        Listing::People => crates().for_each(|of| places(&mut text, &of.people)),
        Listing::Long => long(&mut text, crates()),
        Listing::Comments => comments(&mut text, crates()),
        Listing::Names => names(&mut text, survey, only),
        Listing::Cycles => crates().for_each(|of| cycle(&mut text, of)),
    }
    text
}

// Writing to a `String` cannot fail, so the results of `writeln!` are dropped here and below.
fn places<'a>(text: &mut String, places: impl IntoIterator<Item = &'a Place>) {
    for Place { file, line, text: words } in places {
        let _ = writeln!(text, "{}:{line}: {words}", file.display());
    }
}

fn long<'a>(text: &mut String, crates: impl Iterator<Item = &'a CrateSurvey>) {
    let mut functions: Vec<_> =
        crates.flat_map(|of| &of.functions).filter(|function| function.length > LONG).collect();
    functions.sort_by_key(|function| std::cmp::Reverse(function.length));
    places(text, functions.iter().map(|function| &function.place));
}

/// The density of each file, the lines that are missing most first.
fn comments<'a>(text: &mut String, crates: impl Iterator<Item = &'a CrateSurvey>) {
    let mut files: Vec<_> = crates.flat_map(|of| &of.density).collect();
    files.sort_by_key(|file| (std::cmp::Reverse(file.missing()), &file.file));
    for file in files {
        let _ = writeln!(
            text,
            "{}:1: {} comment lines in {} code lines, {:.1} %, {} missing",
            file.file.display(),
            file.comment_lines,
            file.code_lines,
            percent(file.comment_lines, file.code_lines),
            file.missing()
        );
    }
}

fn names(text: &mut String, survey: &Survey, only: Option<&str>) {
    for (name, (places, crates)) in survey.type_names() {
        if places.len() > 1 && only.is_none_or(|only| crates.contains(only)) {
            let crates: Vec<&str> = crates.into_iter().collect();
            let _ = writeln!(text, "{name}: {} in {}", places.len(), crates.join(", "));
            for place in places {
                let _ = writeln!(text, "  {}:{}", place.file.display(), place.line);
            }
        }
    }
}

fn cycle(text: &mut String, of: &CrateSurvey) {
    if of.cycle.is_empty() {
        return;
    }
    let _ = writeln!(text, "{}: {} files in its largest cycle", of.name, of.cycle.len());
    for Place { file, line, text: words } in &of.cycle_edges {
        let _ = writeln!(text, "  {}:{line}: {words}", file.display());
    }
}
