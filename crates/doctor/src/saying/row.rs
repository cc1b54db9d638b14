//! A row of the table: a phrase, what it says, and what it tells the scheduler.

use super::Saying;
use crate::sign::Sign;

/// What a row of the table tells the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    Nothing,
    /// Whatever else the line says, it is no cause of death.
    Mutes,
    Sign(Sign),
}

/// One phrase, in lower case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) phrase: &'static str,
    pub(crate) saying: Saying,
    pub(crate) tells: Tells,
    /// The phrase counts only where a word starts with it: `oom` is in `room`.
    pub(crate) starts_word: bool,
    /// The phrase counts only where a word ends with it: ` oom` is in ` OOMKilled=false`.
    pub(crate) ends_word: bool,
}

pub(super) const fn says(phrase: &'static str, saying: Saying) -> Row {
    Row {
        phrase,
        saying,
        tells: Tells::Nothing,
        starts_word: false,
        ends_word: false,
    }
}

pub(super) const fn word(phrase: &'static str, saying: Saying) -> Row {
    Row {
        starts_word: true,
        ..says(phrase, saying)
    }
}

pub(super) const fn end_of_word(phrase: &'static str, saying: Saying) -> Row {
    Row {
        ends_word: true,
        ..says(phrase, saying)
    }
}

pub(super) const fn sign(phrase: &'static str, saying: Saying, sign: Sign) -> Row {
    Row {
        phrase,
        tells: Tells::Sign(sign),
        ..says(phrase, saying)
    }
}
