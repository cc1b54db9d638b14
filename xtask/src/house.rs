//! `cargo xtask house`: measures the source tree (such as lines, file sizes, dependencies), and checks each
//! figure against its bound.
//!
//! Product lines are the lines of `crates/*/src`, comments and blank lines included, without tests. Text is
//! read by line, as rustfmt lays it out, and not by a parser.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::source::{test_files, texts};

mod crates;
mod figures;

/// One figure, with the places behind it where it counts places.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    value: f64,
    bound: f64,
    /// A bound that does not hold yet is printed, and fails no check.
    is_due: bool,
    places: Vec<(PathBuf, usize)>,
}

impl Figure {
    fn holds(&self) -> bool {
        self.value <= self.bound
    }
}

/// What to do with the figures.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Exit with 1 where a bound that held before is broken
    #[arg(long)]
    check: bool,
    /// Print the places behind a figure, as file:line
    #[arg(long, value_name = "FIGURE")]
    list: Option<String>,
}

pub(crate) fn check(root: &Path) -> ExitCode {
    run(root, &Options { check: true, list: None })
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let texts = texts(root);
    let tests = test_files(&texts);
    let mut figures = figures::of(&texts, &tests);
    figures.extend(crates::of(root, &texts));
    if let Some(name) = &options.list {
        return list(&figures, name);
    }
    print!("{}", table(&figures));
    let broken: Vec<&str> =
        figures.iter().filter(|figure| figure.is_due && !figure.holds()).map(|figure| figure.name).collect();
    if !options.check || broken.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("house: over the bound: {}", broken.join("; "));
    ExitCode::FAILURE
}

fn list(figures: &[Figure], name: &str) -> ExitCode {
    let Some(figure) = figures.iter().find(|figure| figure.name == name) else {
        eprintln!("xtask: no figure `{name}`");
        return ExitCode::from(2);
    };
    for (file, line) in &figure.places {
        println!("{}:{line}", file.display());
    }
    ExitCode::SUCCESS
}

fn table(figures: &[Figure]) -> String {
    let row = |figure: &Figure| {
        let state = match (figure.holds(), figure.is_due) {
            (true, _) => "",
            (false, true) => "  over",
            (false, false) => "  over, not checked yet",
        };
        let (value, bound) = (number(figure.value), number(figure.bound));
        format!("{:<44} {value:>9}  <= {bound}{state}\n", figure.name)
    };
    figures.iter().map(row).collect()
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") }
}

/// Counts of lines stay far below 2³².
fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_is_not_due_is_shown_and_fails_nothing() {
        let figure = |value, is_due| Figure { name: "f", value, bound: 2.0, is_due, places: Vec::new() };
        let text = table(&[figure(2.0, true), figure(2.5, true), figure(3.0, false)]);
        let ends: Vec<&str> = text.lines().map(|line| line.split("<= 2").nth(1).unwrap()).collect();
        assert_eq!(ends, ["", "  over", "  over, not checked yet"]);
    }
}
