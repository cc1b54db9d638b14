//! Parses the tables (`*.tsv`) of phrases that programs print in logs.
//!
//! Each row is a phrase, the kind of line that it marks, and its evidence (a log, a test or a source).

use std::sync::LazyLock;

use crate::pattern::Pattern;
use crate::sign::CauseSign;

/// One file per program. Later files never outweigh earlier ones: the order of the patterns decides.
const TABLES: [&str; 10] = [
    include_str!("llama.tsv"),
    include_str!("torch.tsv"),
    include_str!("vllm.tsv"),
    include_str!("ollama.tsv"),
    include_str!("frameworks.tsv"),
    include_str!("cuda.tsv"),
    include_str!("smi.tsv"),
    include_str!("kernel.tsv"),
    include_str!("jetson.tsv"),
    include_str!("process.tsv"),
];

/// Meaning of a line for the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineSign {
    /// The line reports a refusal that its program survives, regardless of other phrases in it.
    Harmless,
    Fatal(CauseSign),
}

/// A phrase in lower case, its pattern and its conditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternRow {
    pub(crate) phrase: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) sign: Option<LineSign>,
    /// The phrase must start a word: `oom` is also in `room`.
    pub(crate) starts_word: bool,
    /// The phrase must end a word: ` oom` is also in ` OOMKilled=false`.
    pub(crate) ends_word: bool,
    /// The log, test, report or source line that shows the phrase.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the tests check it"))]
    pub(crate) seen_in: &'static str,
}

// Parsed on first use: a `plimsoll serve` without a dead engine never needs the tables.
static ROWS: LazyLock<Vec<PatternRow>> =
    LazyLock::new(|| TABLES.iter().flat_map(|table| written(table)).filter_map(row).collect());

/// Every row of every table.
pub(crate) fn rows() -> &'static [PatternRow] {
    &ROWS
}

fn written(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with("# ") && !line.is_empty())
}

/// A malformed row is left out here; the tests fail for it.
fn row(line: &'static str) -> Option<PatternRow> {
    let mut cells = line.split('\t');
    let (pattern, phrase, seen_in) = (cells.next()?, cells.next()?, cells.next()?);
    // Most rows have no flags, and their last column is missing.
    let flags = cells.next().unwrap_or_default();
    let has = |flag| flags.split(',').any(|other| other == flag);
    Some(PatternRow {
        phrase,
        // A name without a variant is a typing error in the table.
        pattern: Pattern::named(pattern)?,
        sign: flags.split(',').find_map(sign),
        starts_word: has("word_start"),
        ends_word: has("word_end"),
        seen_in,
    })
}

fn sign(flag: &str) -> Option<LineSign> {
    if flag == "no_sign" {
        return Some(LineSign::Harmless);
    }
    CauseSign::named(flag).map(LineSign::Fatal)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn repository(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        // A literal that is broken over lines, and its quotes, as the program sees them.
        let joined: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
        joined.concat().replace("\\\"", "\"").to_ascii_lowercase()
    }

    fn is_shown(row: &PatternRow) -> bool {
        let (kind, name) = row.seen_in.split_once(' ').unwrap_or(("", ""));
        match kind {
            "log" => repository(&format!("data/logs/{name}.log")).contains(row.phrase),
            "test" => repository(&format!("crates/doctor/{name}")).contains(row.phrase),
            "corpus" => name.len() == 3 && name.bytes().all(|byte| byte.is_ascii_digit()),
            _ => {
                let file = row.seen_in.split([':', ' ']).next().unwrap_or_default();
                let kind = file.rsplit_once('.').map_or("", |(_, kind)| kind);
                let known = [
                    "c", "cc", "cpp", "cu", "cuh", "cxx", "go", "h", "hpp", "py", "pyx", "rs", "so", "1",
                    "release",
                ];
                known.contains(&kind) || file == "etc/nv_tegra_release"
            }
        }
    }

    #[test]
    fn every_row_names_what_shows_it() {
        let wrong: Vec<_> = rows().iter().filter(|row| !is_shown(row)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn every_line_of_the_tables_is_a_row_and_no_phrase_stands_twice_for_one_pattern() {
        let lines = TABLES.iter().flat_map(|table| written(table));
        let broken: Vec<&str> = lines.filter(|line| row(line).is_none()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        let flags = ["no_sign", "word_start", "word_end"];
        let unknown = TABLES.iter().flat_map(|table| written(table)).filter(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let known = |flag: &str| flags.contains(&flag) || CauseSign::named(flag).is_some();
            cells.len() > 4 || cells.get(3).is_some_and(|cell| !cell.split(',').all(known))
        });
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&str>::new());
        let mut seen = BTreeSet::new();
        for row in rows() {
            assert!(row.phrase.len() >= 4, "{row:?}");
            assert_eq!(row.phrase, row.phrase.to_ascii_lowercase());
            assert!(seen.insert((row.pattern, row.phrase)), "twice: {row:?}");
        }
    }

    #[test]
    fn the_launcher_s_own_word_is_in_the_table() {
        let phrase = plimsoll_wire::control::EXEC_FAILED;
        assert!(rows().iter().any(|row| row.phrase == phrase && row.pattern == Pattern::NotStarted));
    }
}
