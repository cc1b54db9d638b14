//! Tables of phrases that programs print in logs, and readers of the lines that contain them.
//!
//! Each row names its evidence: a log in `data/logs`, a test, a public report, or a line of source code.
//! Tests fail for a row without evidence.

mod choice;
mod cuda;
mod figures;
mod jetson;
mod kernel;
mod llama;
mod names;
mod ollama;
mod options;
mod readings;
mod search;
mod shapes;
mod smi;
mod table;
mod torch;
mod vllm;
mod words;

use crate::facts::{Facts, LineOrigin, LineSource, Quote};
use crate::line::clean;
use crate::pattern::Pattern;

pub(crate) use self::search::{PhraseHit, hits, rows_in};
pub(crate) use self::shapes::{captured, fits, shapes};
pub(crate) use self::table::{LineSign, rows};
pub(crate) use self::words::{has_any, is_word, words as known_words};

/// Adds the fields of a line that contains a phrase of `pattern`.
pub(crate) fn read_line(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    // DECISION: one table is used for all engine output, so `serve` and `doctor` read a line alike.
    facts.note(pattern, quote);
    // Each reader ignores the patterns of the others, so their order does not matter.
    llama::read(facts, pattern, text, quote);
    torch::read(facts, pattern, text, quote);
    vllm::read(facts, pattern, text, quote);
    ollama::read(facts, pattern, text, quote);
    cuda::read(facts, pattern, text, quote);
    smi::read(facts, pattern, text, quote);
    kernel::read(facts, pattern, text);
    jetson::read(facts, pattern, text);
    options::read(facts, pattern, text);
}

/// Reports above this size are not read for names: in a long log a model's or card's name is chance.
const NAMED: usize = 1 << 14;

/// Reads a short report for numbers without a known phrase: readings, chosen cards, names with sizes.
pub(crate) fn read_report(facts: &mut Facts, origin: &LineOrigin, report: &[u8]) {
    let lines: Vec<_> = report.split(|byte| *byte == b'\n').map(clean).collect();
    let text = lines.join("\n");
    readings::read(facts, origin, &text);
    choice::read(facts, origin, &text);
    figures::read(facts, origin, &text);
    smi::read_processes(facts, origin, &text);
    // A description is written about the failure, so a name in it is meant.
    if origin.source == LineSource::Context || report.len() <= NAMED {
        names::read(facts, &text);
    }
}
