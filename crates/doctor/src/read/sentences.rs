//! What people tell, sentence by sentence: things that mean something only where several words stand together.
//!
//! DECISION: a report is prose in part, and prose has no fixed phrases. A sentence is what English is written in (one of its small words, no
//! line of a program); it says a thing where each of several groups has a word in it. Only a short report is read this way.

use crate::evidence::{Evidence, Quote, Source};
use crate::line::shortened;
use crate::saying::Saying;

use super::named;

mod cures;
mod topics;
mod words;

use self::cures::*;
use self::words::*;

/// A longer sentence is a dump.
const LONGEST: usize = 700;
/// What a sentence says that has a word of each group.
const PATTERNS: &[(Saying, &[Words])] = &[
    (Saying::NotReleased, &[MEMORY, NOT, GIVE_BACK]),
    (Saying::NotReleased, &[MEMORY, STAY, HELD, LATER]),
    (Saying::NotReleased, &[MEMORY, KEEPS, LATER]),
    (Saying::NotReleased, &[MEMORY, FORMER, STAYS]),
    (Saying::NotReleased, &[MODEL_WORD, NOT, UNLOAD]),
    (Saying::FailsAgain, &[OUT, RELOAD]),
    (Saying::GrowsEachRound, &[MEMORY, MORE, ROUNDS]),
    (Saying::CpuInstead, &[CPU_ALONE]),
    (Saying::TakesLong, &[TAKES_TIME, LONG_TIME]),
    (Saying::BuiltForOther, &[BUILT, ARCHITECTURE]),
    (Saying::Fragmented, &[ALLOCATOR, GAPS]),
    (Saying::PreviousChild, &[SWITCH, MODEL_WORD, OUT]),
    (Saying::PreviousChild, &[SWITCH, MODEL_WORD, FORMER, ENDS]),
    (Saying::Neighbour, &[CLOSED, PROGRAMS, CURES]),
    (Saying::StrayContext, &[VISIBLE, PICKED]),
    (Saying::StrayContext, &[VISIBLE, UNHEEDED]),
    (Saying::Pinned, &[OF_HOST, REGISTERS]),
    (Saying::Desktop, &[PICTURE, SHOWN, CARD]),
    (Saying::GrowsWithDepth, &[FIRST, ASKING, OUT]),
    (Saying::Neighbour, &[END_IT, OTHER, PROCESS, CURED]),
    (Saying::Fragmented, &[HOLDS, LIVES, ONLY]),
    (Saying::Activations, &[FED, OUT]),
    (Saying::Works, &[WHILE, WORKING]),
    (Saying::TakenBefore, &[HALF_GONE, CARD]),
    (Saying::TakenBefore, &[RAN, ENDED, CARD, NOT, GIVE_BACK]),
    (Saying::TakenBefore, &[RAN, ENDED, CARD, KEEPS]),
    (Saying::CuredByPieces, &[PIECES, NEEDED]),
    (Saying::TakenBefore, &[HALF_GONE, MEMORY]),
    (Saying::CuredByContext, &[CONTEXT, CURED]),
    (Saying::CuredByBatch, &[BATCH, CURED]),
    (Saying::GrowsWithDepth, &[DEEPER, LONGER, ASKED]),
    (Saying::Neighbour, &[OTHER, PROCESS, TAKES, CARD]),
    (Saying::Neighbour, &[END_IT, PROCESS, OTHER, CURES]),
    (Saying::TakenBefore, &[CARD, IN_USE, BEFORE, AMOUNT]),
    (Saying::Neighbour, &[OTHER, PROCESS, ALIVE]),
    (Saying::Neighbour, &[PROGRAMS, ALIVE, CARD]),
    (Saying::Neighbour, &[PROCESS, ALIVE, ENDED]),
    (Saying::TakenBefore, &[ENDS, BEFORE_MODEL]),
    (Saying::NobodyShown, &[TABLE, NOBODY]),
    (Saying::CuredByContext, &[LESS, CONTEXT, CURES]),
    (Saying::CuredByBatch, &[LESS, BATCH, CURES]),
    (Saying::CuredByModel, &[LESS, MODEL, CURES]),
    (Saying::CuredByPieces, &[PIECES, CURES]),
];

/// What two sentences say, one behind the other: words of these groups in either of them, and of those in the second.
const PAIRS: &[(Saying, &[Words], &[Words])] = &[
    (Saying::GrowsWithDepth, &[BEGINS, WELL, TURN, AT_WORK], &[ENDS]),
    (Saying::FailsAgain, &[ONCE, AGAIN], &[ENDS]),
    (Saying::Wonders, &[FOOTPRINT, AMOUNTS, WONDERS], &[]),
];

/// Reads the prose of a report.
pub(super) fn read(evidence: &mut Evidence, source: Source, text: &str) {
    let mut before = String::new();
    let mut apart = Apart::default();
    for (line, paragraph) in (1..).zip(text.lines()) {
        for sentence in paragraph
            .split_inclusive(['!', '?'])
            .flat_map(|part| part.split(". "))
        {
            let folded = folded(sentence);
            if !is_prose(&folded) {
                continue;
            }
            let quote = Quote {
                source,
                line,
                text: shortened(sentence.trim()).to_owned(),
            };
            for saying in said(&folded) {
                evidence.note(saying, &quote);
            }
            for saying in said_together(&before, &folded) {
                evidence.note(saying, &quote);
            }
            apart.see(&folded, &quote);
            topics::see(evidence, &folded, &quote);
            before = folded;
        }
    }
    let chosen = evidence
        .choices
        .iter()
        .any(|choice| choice.cards.iter().any(|card| *card > 0));
    if let Some(quote) = apart.first.filter(|_| apart.others || chosen) {
        evidence.note(Saying::CardsSetApart, &quote);
    }
}

/// Which cards a report speaks of: its first, as one that has or does something, and others.
#[derive(Default)]
struct Apart {
    first: Option<Quote>,
    others: bool,
}

impl Apart {
    fn see(&mut self, sentence: &str, quote: &Quote) {
        let numbers = numbered_cards(sentence);
        let first = numbers.contains(&0) || FIRST_CARD.are_in(sentence);
        if first && PRESENCE.are_in(sentence) && self.first.is_none() {
            self.first = Some(quote.clone());
        }
        self.others |= numbers.iter().any(|number| *number > 0) || OTHER_CARDS.are_in(sentence);
    }
}

/// What a sentence says together with the one before.
fn said_together(before: &str, sentence: &str) -> impl Iterator<Item = Saying> {
    let both = format!("{before}{sentence}");
    let stray = is_stray_in_two(before, sentence, &both).then_some(Saying::StrayContext);
    let all = |groups: &[Words], text: &str| groups.iter().all(|words| words.are_in(text));
    let said: Vec<Saying> = PAIRS
        .iter()
        .filter(|(_, either, second)| all(either, &both) && all(second, sentence))
        .map(|(saying, ..)| *saying)
        .chain(stray)
        .collect();
    said.into_iter()
}

/// All that a folded sentence says by itself.
fn said(sentence: &str) -> impl Iterator<Item = Saying> {
    let by_words = PATTERNS
        .iter()
        .filter(|(_, groups)| groups.iter().all(|words| words.are_in(sentence)));
    let programs = PROGRAMS.count_in(sentence) >= 2
        && TOGETHER.are_in(sentence)
        && (CARD.are_in(sentence) || CURES.are_in(sentence));
    let more = [
        (Saying::Neighbour, programs),
        (Saying::Activations, sentence.split(' ').any(is_resolution)),
        (Saying::StrayContext, is_stray(sentence)),
        (
            Saying::LongContext,
            CONTEXT.are_in(sentence) && sentence.split(' ').any(is_thousands),
        ),
    ];
    let in_vain = IN_VAIN.are_in(sentence);
    let by_words = by_words.map(move |(saying, _)| if in_vain { in_vain_of(*saying) } else { *saying });
    by_words.chain(
        more.into_iter()
            .filter(|(_, is_said)| *is_said)
            .map(|(saying, _)| saying),
    )
}

/// What did not help speaks against the cause that it would have cured.
fn in_vain_of(saying: Saying) -> Saying {
    match saying {
        Saying::CuredByBatch | Saying::CuredByContext | Saying::CuredByModel | Saying::CuredByPieces => {
            Saying::LessDidNotHelp
        }
        other => other,
    }
}

/// Small letters, one blank between words; marks that do not belong to a name are blanks.
fn folded(sentence: &str) -> String {
    let mut folded = String::from(" ");
    for letter in sentence.chars().take(LONGEST + 1) {
        let letter = match letter {
            '\u{2019}' => '\'',
            '\'' | '-' | '_' | ':' | '#' | '=' | '%' | '*' => letter,
            letter if letter.is_alphanumeric() => letter.to_ascii_lowercase(),
            _ => ' ',
        };
        if letter != ' ' || !folded.ends_with(' ') {
            folded.push(letter);
        }
    }
    folded.push(' ');
    folded
}

fn is_prose(sentence: &str) -> bool {
    let letters = sentence
        .bytes()
        .filter(|byte| byte.is_ascii_alphabetic() || *byte == b' ')
        .count();
    let plain = letters * 10 >= sentence.len() * 9 && sentence.split(' ').count() >= 6;
    let told = plain || SMALL_WORDS.are_in(sentence) || HELPED.are_in(sentence);
    told && sentence.len() <= LONGEST && !OF_PROGRAMS.are_in(sentence)
}

/// Something is on a card, and another was meant: two cards are numbered and set against each other, or it is said of the first or of all.
fn is_stray(sentence: &str) -> bool {
    let numbers = numbered_cards(sentence);
    let two = numbers.iter().any(|number| *number != numbers[0]);
    let marked =
        two || numbers.contains(&0) || STRAY.are_in(sentence) || sentence.contains("cuda_visible_devices");
    let lands = ON_FIRST.are_in(sentence) && PRESENCE.are_in(sentence);
    let swapped = named::several(sentence) && IN_PLACE_OF.are_in(sentence);
    let unheeded = !numbers.is_empty() && REGARDLESS.are_in(sentence) && CHOSEN.are_in(sentence);
    let unmeant = MISPLACED.are_in(sentence) || unheeded || (marked && MEANT.are_in(sentence));
    let unmeant = unmeant || swapped;
    (lands || unmeant && PRESENCE.are_in(sentence) && !OUT.are_in(sentence)) && !GIVE_BACK.are_in(sentence)
}

/// What is meant and what is, each in its own sentence.
fn is_stray_in_two(before: &str, sentence: &str, both: &str) -> bool {
    let numbers = numbered_cards(both);
    let two = numbers.iter().any(|number| *number != numbers[0]) && numbered_cards(sentence).len() == 1;
    let elsewhere = WANTED.are_in(before) && PRESENCE.are_in(sentence);
    two && elsewhere && !OUT.are_in(both) && !GIVE_BACK.are_in(both)
}

/// The numbers of `gpu 0`, `cuda:1`, `device #2`, `number 0`, `0号`.
fn numbered_cards(sentence: &str) -> Vec<u8> {
    let digit_before = |at: usize| {
        sentence.as_bytes()[..at]
            .last()
            .filter(|byte| byte.is_ascii_digit())
    };
    let mut numbers: Vec<u8> = sentence
        .match_indices('号')
        .filter_map(|(at, _)| Some(digit_before(at)? - b'0'))
        .collect();
    for name in ["gpu", "cuda", "device", "card", "the number"] {
        for (at, _) in sentence.match_indices(name) {
            let marks = [' ', ':', '#', '-', '_', '='];
            let mut rest = sentence[at + name.len()..].trim_start_matches(marks);
            for word in ["with ", "id ", "index ", "ordinal ", "number ", "no "] {
                rest = rest.strip_prefix(word).unwrap_or(rest).trim_start_matches(marks);
            }
            let mut bytes = rest.bytes();
            if let (Some(digit @ b'0'..=b'9'), Some(false)) = (
                bytes.next(),
                bytes.next().map(|byte| byte.is_ascii_alphanumeric()),
            ) {
                numbers.push(digit - b'0');
            }
        }
    }
    numbers
}

/// `1024x1024`: of an image.
fn is_resolution(word: &str) -> bool {
    let side = |text: &str| (3..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once(['x', '*', '×'])
        .is_some_and(|(width, height)| side(width) && side(height))
}

/// `128k`: of tokens.
fn is_thousands(word: &str) -> bool {
    let digits = word.strip_suffix('k').unwrap_or_default();
    (2..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}
