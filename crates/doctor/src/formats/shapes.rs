//! Regular expressions for kinds of lines: log prefixes, aborts of engines, source code, configuration and documents.

use std::sync::LazyLock;

use regex_lite::Regex;

/// The kind of line that each regular expression of `shapes.tsv` tells.
static SHAPES: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    // A test compiles every row.
    written().into_iter().filter_map(|(kind, shape, _)| Some((kind, Regex::new(&shape).ok()?))).collect()
});

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
    SHAPES.iter().filter(move |(of, _)| *of == kind).map(|(_, shape)| shape)
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
