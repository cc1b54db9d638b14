//! Writes plain-text tables with aligned columns.

use std::borrow::Cow;

use plimsoll_base::one_line;

/// Aligns rows of cells: the first column to the left, all others to the right. Control characters of a cell
/// are shown.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let cells = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect());
    let rows: Vec<Vec<Cow<'_, str>>> = cells.collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        // Characters, not bytes: names may hold any script.
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<Cow<'_, str>>| {
        let cells = row.iter().zip(&widths).enumerate();
        let text: String = cells
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            })
            .collect();
        text.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
