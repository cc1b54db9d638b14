//! Regular expressions for kinds of lines: log prefixes, aborts, source code, configuration and documents.

use std::sync::{LazyLock, OnceLock};

use regex_lite::Regex;

/// A kind of line, an expression of `shapes.tsv`, and the same compiled once it is asked for.
type LineShape = (&'static str, String, OnceLock<Option<Regex>>);

// Compiled one by one: a server's first log line needs two of them, and all take a millisecond of its thread.
static SHAPES: LazyLock<Vec<LineShape>> =
    LazyLock::new(|| written().into_iter().map(|(kind, shape, _)| (kind, shape, OnceLock::new())).collect());

/// Kind, expression and example of each row, with the parts put in.
fn written() -> Vec<(&'static str, String, &'static str)> {
    let (mut parts, mut shapes) = (Vec::new(), Vec::new());
    for row in include_str!("shapes.tsv").lines().filter(|row| !row.starts_with("# ")) {
        let mut cells = row.split('\t');
        match (cells.next(), cells.next(), cells.next()) {
            (Some("part"), Some(name), Some(part)) => parts.push((format!("{{{name}}}"), part)),
            (Some(kind), Some(shape), Some(example)) => {
                let shape =
                    parts.iter().fold(shape.to_owned(), |shape, (name, part)| shape.replace(name, part));
                shapes.push((kind, shape, example));
            }
            _ => {}
        }
    }
    shapes
}

/// The expressions of one kind, in the order of the table.
pub(crate) fn shapes(kind: &str) -> impl Iterator<Item = &'static Regex> {
    let of_kind = SHAPES.iter().filter(move |(of, ..)| *of == kind);
    // A test compiles every row.
    of_kind.filter_map(|(_, shape, compiled)| compiled.get_or_init(|| Regex::new(shape).ok()).as_ref())
}

/// The part of a line that the first fitting expression of this kind captures.
pub(crate) fn captured<'a>(kind: &str, line: &'a str) -> Option<&'a str> {
    shapes(kind).find_map(|shape| Some(shape.captures(line)?.get(1)?.as_str()))
}

/// True if a line, without the blanks around it, has a shape of this kind.
pub(crate) fn fits(kind: &str, line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && shapes(kind).any(|shape| shape.is_match(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_read_and_fits_its_example() {
        for (kind, shape, example) in written() {
            let expression = Regex::new(&shape).unwrap_or_else(|error| panic!("{shape}: {error}"));
            assert!(expression.is_match(example.trim()), "{kind}: {shape}: {example}");
        }
        assert_eq!(SHAPES.len(), written().len());
    }
}
