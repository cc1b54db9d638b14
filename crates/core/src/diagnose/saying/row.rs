//! A row of the table: a phrase, what it says, and what it tells the scheduler.

use super::Saying;
use crate::diagnose::sign::Sign;

/// What a row of the table tells the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::diagnose) enum Tells {
    Nothing,
    /// Whatever else the line says, it is no cause of death.
    Mutes,
    Sign(Sign),
}

/// One phrase, in lower case.
#[derive(Clone, Copy, Debug)]
pub(in crate::diagnose) struct Row {
    pub(in crate::diagnose) phrase: &'static str,
    pub(in crate::diagnose) saying: Saying,
    pub(in crate::diagnose) tells: Tells,
    /// The phrase counts only where a word starts with it: `oom` is in `room`.
    pub(in crate::diagnose) starts_word: bool,
    /// The phrase counts only where a word ends with it: ` oom` is in ` OOMKilled=false`.
    pub(in crate::diagnose) ends_word: bool,
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
