//! Finds repeated memory readings in a problem report that show growth, such as a size after each request.

use plimsoll_base::Bytes;

use super::words::words;
use crate::facts::{Facts, LineOrigin, Quote};
use crate::sizes::{all, behind, count};

/// Longer lines are dumps or sentences.
const LONGEST: usize = 400;
/// Readings that count as a series.
const FEWEST: usize = 3;

pub(super) fn read(facts: &mut Facts, origin: &LineOrigin, text: &str) {
    let numbered: Vec<Bytes> = text.lines().filter_map(numbered).collect();
    // Lists outweigh rows: a list may have a row in its explanation.
    facts.add_series(if numbered.len() >= FEWEST { numbered } else { by_rounds(text) });
    let rows = text.lines().filter(|line| line.len() < LONGEST).map(in_a_row);
    facts.add_series(rows.max_by_key(Vec::len).unwrap_or_default());
    if facts.growth.is_none() {
        facts.growth = growth(origin, text);
    }
}

/// A line that is a number and a size: `2. 751MB`.
fn numbered(line: &str) -> Option<Bytes> {
    let line = line.trim();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    // Longer lines are sentences of an ordered list.
    let is_numbered = line.len() < 48 && line.len() != rest.len();
    let (size, behind) = all(rest.strip_prefix(['.', ':', ')'])?).next()?;
    (is_numbered && behind.len() < 16).then_some(size)
}

/// Short lines that count rounds upwards, each with one size: `after request 10: 9518 MiB`.
fn by_rounds(text: &str) -> Vec<Bytes> {
    let read = |line: &str| {
        let lower = line.to_ascii_lowercase();
        let word = words("round").iter().map(|(word, _)| *word).find(|word| lower.contains(word))?;
        let rest = behind(&lower, word)?.trim_start_matches('#');
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let mut sizes = all(&rest[digits..]);
        let (number, size) = (count(rest)?, sizes.next()?.0);
        (line.len() < 80 && digits > 0 && sizes.next().is_none()).then_some((number, size))
    };
    let rounds: Vec<(u64, Bytes)> = text.lines().filter_map(read).collect();
    // Counted downwards or twice, they are no rounds of one run.
    let upwards = rounds.windows(2).all(|pair| pair[0].0 < pair[1].0);
    rounds.into_iter().filter(|_| upwards).map(|(_, size)| size).collect()
}

/// `8012 -> 8034 -> 8056 MiB`; `run 1: 8.1 GB, run 2: 12.3 GB, run 3: 16.9 GB`.
fn in_a_row(line: &str) -> Vec<Bytes> {
    let lower = line.to_ascii_lowercase().replace('\u{2192}', "->");
    let sized = ["mib", "mb", "gib", "gb"].iter().any(|unit| lower.contains(unit));
    if sized && lower.contains("->") {
        return steps(&lower);
    }
    // One mention of a round is a sentence, three are a table in one line.
    let counted = words("round").iter().any(|(word, _)| lower.matches(word).count() >= FEWEST);
    let timed = lower.matches(" after ").count() >= FEWEST - 1;
    if counted || timed { all(line).map(|(size, _)| size).collect() } else { Vec::new() }
}

/// The last number of each step; often only the last one has a unit.
fn steps(row: &str) -> Vec<Bytes> {
    let unit = if row.contains("gb") || row.contains("gib") { "GiB" } else { "MiB" };
    let number = |step: &str| {
        let mut words = step.split(|c: char| !c.is_ascii_digit() && c != '.');
        let number = words.rfind(|word| !word.trim_matches('.').is_empty())?;
        all(&format!("{number} {unit}")).next().map(|(size, _)| size)
    };
    row.split("->").filter_map(number).collect()
}

/// A growth of a MiB or more per round: `+7.96 MiB/req`, `grows by 2 MiB per image`.
fn growth(origin: &LineOrigin, text: &str) -> Option<Quote> {
    const MARKS: [&str; 6] = ["+", "grow", "leak", "increas", "climb", "rise"];
    let per_round = |behind: &str| {
        let behind = behind.trim_start_matches([' ', '*', '`']);
        let rest = behind.strip_prefix('/').or_else(|| behind.strip_prefix("per "));
        let is_round = |rest: &str| words("round").iter().any(|(word, _)| rest.starts_with(word.trim_end()));
        rest.is_some_and(|rest| is_round(rest) || rest.starts_with("req"))
    };
    (1..).zip(text.lines()).find_map(|(line, row)| {
        let lower = row.to_ascii_lowercase();
        let grows = row.len() < LONGEST && MARKS.iter().any(|mark| lower.contains(mark));
        // Below a MiB the rate is noise of the driver's own allocations.
        let found = grows && all(&lower).any(|(size, behind)| size >= Bytes::mib(1) && per_round(behind));
        found.then(|| Quote::new(origin, line, row))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(text: &str) -> usize {
        let mut facts = Facts::default();
        read(&mut facts, &LineOrigin::default(), text);
        facts.series.len()
    }

    #[test]
    fn readings_in_a_row_are_of_memory_only_with_a_unit() {
        assert_eq!(series("8012 -> 8034 -> 8056 MiB"), 3);
        assert_eq!(series("contexts of 8192 -> 16384 -> 32768 were tried"), 0);
    }
}
