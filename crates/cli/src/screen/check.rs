//! Prints planned beside measured memory as a table, for `plimsoll plan --check`.

use std::fmt::{self, Write};

use plimsoll_base::{Bytes, one_line};
use plimsoll_report::{TERMS, TermStyle};

use crate::check::{Check, Checked, Row};

/// Renders the whole text, with a final line feed.
pub(crate) fn check(check: &Check) -> String {
    let mut text = String::new();
    for model in &check.models {
        // writing to a string cannot fail
        let _ = write(model, &mut text);
    }
    text
}

fn write(checked: &Checked, out: &mut String) -> fmt::Result {
    writeln!(out, "{}, process {}", one_line(&checked.model), checked.pid)?;
    writeln!(out, "  {:<40} {:>11} {:>11} {:>11}  difference", "card", "loaded", "peak", "measured")?;
    for row in &checked.cards {
        write_row(row, out)?;
    }
    for stated in &checked.stated {
        let verdict = if stated.planned == stated.engine { "as planned" } else { "not as planned" };
        writeln!(
            out,
            "  {}: planned {}, the engine reports {} ({verdict})",
            stated.name, stated.planned, stated.engine
        )?;
    }
    Ok(())
}

fn write_row(row: &Row, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "  {:<40} {:>11} {:>11} {:>11}  {}",
        row.id,
        row.loaded.to_string(),
        row.peak.to_string(),
        row.measured.map_or("-".to_owned(), |bytes| bytes.to_string()),
        difference(row)
    )?;
    // The first style is the memory of other processes, which is no term of this plan.
    for (TermStyle { name, .. }, term) in TERMS[1..].iter().zip(plimsoll_site::terms(&row.terms)) {
        if term.bytes.is_some_and(|bytes| !bytes.is_zero()) {
            writeln!(out, "    {name:<9} {:>11}  {}", term.known().to_string(), term.source)?;
        }
    }
    Ok(())
}

fn difference(row: &Row) -> String {
    let size = Bytes::new(row.difference.unsigned_abs());
    let margin = if row.of_host {
        format!("{}, which is for the program and its libraries", row.margin)
    } else {
        row.margin.to_string()
    };
    match (row.measured, row.difference, row.ok) {
        (None, ..) => "not measured".to_owned(),
        (_, 0, _) => "no difference: the measured memory is between loaded and peak".to_owned(),
        (_, 1.., true) => format!("{size} above the peak, within the margin of {margin}"),
        (_, 1.., false) => format!("{size} above the peak, more than the margin of {margin}"),
        (_, _, true) => format!("{size} below the loaded memory, within the margin of {margin}"),
        (_, _, false) => format!("{size} below the loaded memory, more than the margin of {margin}"),
    }
}
