//! Classifies the text of a problem report by a logistic regression over its words.
//!
//! `bench/likeness/train.py` made the table of words from 1132 public reports whose cause is known, and
//! fitted it further with 160 later ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use plimsoll_base::{Order, Reason};

use super::candidate::percent;
use super::cause::Cause;
use super::facts::{Facts, LineOrigin, Quote};
use super::formats::is_word;
use super::log_prefix::without_prefix;
use super::program::LogProgram;

/// `words.tsv`: each row is a word with its inverse document frequency and its weight for each cause.
const TABLE: &str = include_str!("classifier/words.tsv");
/// Scale of the table's whole numbers: `train.py: WEIGHTS, FREQUENCIES`.
const WEIGHTS: f64 = 10.0;
const FREQUENCIES: f64 = 100.0;
/// A text with fewer known words is too short to classify.
const FEWEST_WORDS: usize = 8;
const MOST_LINES: usize = 2;
const MOST_WORDS: usize = 6;

/// A report's text, and the probability of each cause.
pub(super) struct TextClassifier<'a> {
    report: &'a [(LineOrigin, String)],
    /// Weight of each known word in this text (TF-IDF, normalised to length 1).
    counts: BTreeMap<&'static str, f64>,
    /// Probability of each cause.
    shares: Vec<(Cause, f64)>,
}

impl<'a> TextClassifier<'a> {
    /// `None` if the text is too short or has another subject.
    pub(super) fn of(report: &'a [(LineOrigin, String)], facts: &Facts) -> Option<Self> {
        // DECISION: prose is judged by this classifier and by no rules. Logs above 64 KiB, and engines that
        // died under `serve`, are judged by rules alone, because their text is not a problem report.
        let mut counts: BTreeMap<&'static str, f64> = BTreeMap::new();
        let mut is_ours = false;
        let lines = report.iter().flat_map(|(_, text)| text.lines());
        for word in lines.flat_map(|line| words(without_prefix(line))) {
            is_ours |= is_word("subject", &word);
            if let Some((known, _)) = KNOWN.words.get_key_value(&*word) {
                *counts.entry(known).or_default() += 1.0;
            }
        }
        // Distinct words count: a log that repeats one line has few.
        if counts.len() < FEWEST_WORDS || !is_ours {
            return None;
        }
        // Sublinear term frequency, as in `train.py: TfidfVectorizer(sublinear_tf=True)`.
        for (word, count) in &mut counts {
            *count = (1.0 + libm::log(*count)) * KNOWN.words[word].frequency;
        }
        // Unit length makes a short report as loud as a long one (`norm='l2'`).
        let length = counts.values().map(|count| count * count).sum::<f64>().sqrt();
        counts.values_mut().for_each(|count| *count /= length);
        let shares = shares(&counts, facts);
        Some(Self { report, counts, shares })
    }

    /// The likeliest cause and its share.
    pub(super) fn most(&self) -> (Cause, f64) {
        let most = self.shares.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        most.unwrap_or((Cause::Other, 0.0))
    }

    pub(super) fn share(&self, cause: Cause) -> f64 {
        let share = self.shares.iter().find(|(of, _)| *of == cause);
        share.map_or(0.0, |(_, share)| *share)
    }

    /// The words with the largest weights for a cause.
    fn speaking(&self, cause: Cause) -> Vec<&'static str> {
        let mut words: Vec<(f64, &'static str)> =
            self.counts.keys().map(|word| (self.weight(word, cause), *word)).collect();
        words.order_by(|a, b| b.0.total_cmp(&a.0));
        let speak = words.into_iter().filter(|(weight, _)| *weight > 0.0);
        speak.take(MOST_WORDS).map(|(_, word)| word).collect()
    }

    /// The lines with the largest weights for a cause.
    fn quotes(&self, cause: Cause) -> Vec<Quote> {
        let mut lines: Vec<(f64, Quote)> = Vec::new();
        for (origin, text) in self.report {
            for (number, line) in (1..).zip(text.lines()) {
                let mut known: Vec<String> = words(without_prefix(line)).collect();
                // A word counts once per line, or a line that repeats itself would win.
                known.order();
                known.dedup();
                let weight = known.iter().map(|word| self.weight(word, cause)).sum();
                lines.push((weight, Quote::new(origin, number, line)));
            }
        }
        lines.order_by(|a, b| b.0.total_cmp(&a.0));
        let speak = lines.into_iter().filter(|(weight, _)| *weight > 0.0);
        speak.take(MOST_LINES).map(|(_, quote)| quote).collect()
    }

    fn weight(&self, word: &str, cause: Cause) -> f64 {
        let count = self.counts.get(word).copied().unwrap_or_default();
        let row = KNOWN.words.get(word);
        count * row.and_then(|row| row.weights.get(KNOWN.place(cause)?).copied()).unwrap_or_default()
    }
}

/// Words and lines that led to the classifier's decision.
pub(super) struct ClassifierMatch {
    words: Vec<&'static str>,
    pub(super) quotes: Vec<Quote>,
    share: f64,
}

impl ClassifierMatch {
    pub(super) fn of(text: &TextClassifier<'_>, cause: Cause) -> Self {
        Self { words: text.speaking(cause), quotes: text.quotes(cause), share: text.share(cause) }
    }

    pub(super) fn reason(&self) -> Reason {
        let words = self.words.join(", ");
        let text = format!(
            "no rule found a certain cause, so the cause was estimated from these words of the text: {words}"
        );
        let quotes = self.quotes.iter();
        Reason::new("likeness", text)
            .fact("share", percent(self.share))
            .because_all(quotes.map(|quote| Reason::new("line", quote.placed())))
    }
}

/// Word table, parsed.
struct WordTable {
    causes: Vec<Cause>,
    bias: Vec<f64>,
    words: HashMap<&'static str, WordWeights>,
}

struct WordWeights {
    frequency: f64,
    weights: Vec<f64>,
}

static KNOWN: LazyLock<WordTable> = LazyLock::new(|| WordTable::read(TABLE));

impl WordTable {
    fn read(table: &'static str) -> Self {
        let mut lines = table.lines();
        let named = |code: &str| Cause::ALL.iter().copied().find(|cause| cause.code() == code);
        // The first row names the causes, the second, whose word is empty, has their biases.
        let head = lines.next().unwrap_or_default();
        // A cause that this build does not know would shift the columns; a test compares their number.
        let causes = head.split('\t').skip(2).filter_map(named).collect();
        let mut words: HashMap<_, _> = lines.filter_map(row).collect();
        let bias = words.remove("").map(|row| row.weights).unwrap_or_default();
        Self { causes, bias, words }
    }

    fn place(&self, cause: Cause) -> Option<usize> {
        self.causes.iter().position(|of| *of == cause)
    }
}

fn row(line: &'static str) -> Option<(&'static str, WordWeights)> {
    let mut cells = line.split('\t');
    let word = cells.next()?;
    let mut numbers = cells.map_while(|cell| cell.parse::<f64>().ok());
    let frequency = numbers.next()? / FREQUENCIES;
    let weights = numbers.map(|weight| weight / WEIGHTS).collect();
    Some((word, WordWeights { frequency, weights }))
}

/// Softmax over the weighted sums of the causes that the program can have, and that the log does not exclude.
fn shares(counts: &BTreeMap<&'static str, f64>, facts: &Facts) -> Vec<(Cause, f64)> {
    let was_refused = facts.torch.is_some() || !facts.refusals.is_empty();
    let program = LogProgram::of(facts);
    let mut sums = KNOWN.bias.clone();
    for (word, count) in counts {
        for (sum, weight) in sums.iter_mut().zip(&KNOWN.words[word].weights) {
            *sum += count * weight;
        }
    }
    // The largest sum is subtracted so that `exp` cannot overflow.
    let most = sums.iter().copied().fold(f64::MIN, f64::max);
    let can_have = |cause| program.is_none_or(|program| program.can_have(cause));
    let odds = |(cause, sum): (&Cause, &f64)| if can_have(*cause) { libm::exp(sum - most) } else { 0.0 };
    let odds: Vec<f64> = KNOWN.causes.iter().zip(&sums).map(odds).collect();
    let whole: f64 = odds.iter().sum();
    // Causes that the log excludes make no other cause likelier.
    let is_denied = |cause| facts.rules_out(cause) || cause == Cause::NotOom && was_refused;
    let share = |(cause, odds): (Cause, &f64)| (cause, if is_denied(cause) { 0.0 } else { odds / whole });
    KNOWN.causes.iter().copied().zip(&odds).map(share).collect()
}

/// Runs of two or more letters in lower case, none right after a digit, so neither addresses nor sizes.
/// `train.py: WORD` is the same.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let mut behind_digit = false;
    let runs = text.split_inclusive(|c: char| !c.is_ascii_alphabetic());
    runs.filter_map(move |run| {
        let word = run.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        let counts = word.len() >= 2 && !behind_digit;
        behind_digit = run.ends_with(|c: char| c.is_ascii_digit());
        counts.then(|| word.to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Vec<(LineOrigin, String)> {
        vec![(LineOrigin::default(), text.to_owned())]
    }

    #[test]
    fn the_table_is_whole() {
        let rows = TABLE.lines().count() - 2;
        assert_eq!((KNOWN.words.len(), KNOWN.causes.len()), (rows, Cause::ALL.len() - 1));
        assert_eq!(KNOWN.place(Cause::HostOom), None, "its reports are filed under not_oom");
        assert!(KNOWN.words.values().all(|row| row.weights.len() == KNOWN.bias.len()));
        assert!(KNOWN.words.keys().all(|word| words(word).eq([(*word).to_owned()])));
    }

    #[test]
    fn sizes_and_addresses_are_no_words() {
        let found: Vec<String> =
            words("CUDA0: cudaMalloc(0xdeadbeef) of 9866MiB on q8_0, a -ngl 99").collect();
        assert_eq!(found, ["cuda", "cudamalloc", "of", "on", "ngl"]);
    }

    #[test]
    fn a_report_in_plain_words_is_like_its_kind_and_its_lines_are_shown() {
        let text = "We start the job on card 1.\nnvidia-smi shows a process on every gpu, and a small context of each rank on gpu 0, although \
                    CUDA_VISIBLE_DEVICES is set to another device.\nThe first device fills up.";
        let report = report(text);
        let text = TextClassifier::of(&report, &Facts::default()).unwrap();
        let (cause, share) = text.most();
        assert_eq!(cause, Cause::WrongDeviceContext, "{share}");
        assert_eq!(text.quotes(cause)[0].line, 2);
        assert!(text.speaking(cause).contains(&"device"), "{:?}", text.speaking(cause));
        let whole: f64 = Cause::ALL.iter().map(|cause| text.share(*cause)).sum();
        assert!((whole - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_text_of_something_else_is_like_nothing() {
        let bread = "Mix the flour with water and let the dough rest for an hour; then shape two loaves, heat the oven, and bake them until the crust \
                     is brown. While they cool, clean the table and start the machine. It does not matter how long you wait, but it is best on the same day.";
        assert!(TextClassifier::of(&report(bread), &Facts::default()).is_none());
        assert!(
            TextClassifier::of(
                &report(&format!("{bread} And see that its GPU has memory.")),
                &Facts::default()
            )
            .is_some()
        );
    }

    #[test]
    fn a_few_words_are_like_nothing() {
        assert!(TextClassifier::of(&report("CUDA error: out of memory"), &Facts::default()).is_none());
        assert!(TextClassifier::of(&[], &Facts::default()).is_none());
    }
}
