//! What guard is asked to do: one line of words in [`crate::env::GUARD`], written by `plimsoll run` and `plimsoll serve`.
//!
//! Every word is an option that is off without it, so that an empty line asks for nothing but to be counted:
//!
//! `card=GPU-<uuid>[:BYTES]` a card of the plan and its budget, may be repeated; `budget=BYTES` of every card that has none of
//! its own; `contexts=report|refuse` on a card that no `card=` names; `reuse`; `chunk=BYTES`; `reclaim`; `wait=SECONDS`;
//! `spill=BYTES`; `keep=BYTES`; `pool=ours|managed`; `on-oom=managed`; `hide-vmm`.

use core::fmt;
use core::str::SplitAsciiWhitespace;

use crate::page::CARDS;

/// The words, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    cards: [Option<CardRule>; CARDS],
    /// Bytes of each card without a budget of its own.
    pub budget: Option<u64>,
    pub contexts: Contexts,
    /// Rung 1: give back what guard's own pools hold idle, and ask again.
    pub reuse: bool,
    /// Rung 2: build a refused request from physical chunks of this many bytes.
    pub chunk: Option<u64>,
    /// Rung 3: ask the daemon to make room.
    pub reclaim: bool,
    /// Rung 3: wait up to so many seconds for room.
    pub wait: u32,
    /// Rung 4: let up to so many bytes of what does not fit lie in host memory.
    pub spill: Option<u64>,
    /// With `spill`: a request of more than so many bytes leaves so many of the budget to smaller ones, so that it is weights
    /// and KV cache that overflow, which a token reads once, and not the scratch that comes last and is used all the time.
    pub keep: u64,
    pub pool: Pool,
    /// Answer a refused `cudaMalloc` with managed memory, the whole of it (llama.cpp PR 22158's opt-in).
    pub on_oom_managed: bool,
    /// Tell the program that its cards have no virtual memory management, so that ggml takes its legacy pool.
    pub hide_vmm: bool,
}

/// A card that the plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardRule {
    pub uuid: [u8; 16],
    pub budget: Option<u64>,
}

/// What happens when the program opens a context on a card outside the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contexts {
    #[default]
    Leave,
    /// Say it, with the stack that asked for it.
    Report,
    /// Say it and refuse it.
    Refuse,
}

/// What becomes of ggml's legacy pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pool {
    #[default]
    Leave,
    /// Guard serves it by its own policy.
    Ours,
    /// Its memory is managed memory (llama.cpp PR 22158's variant).
    Managed,
}

/// A word that is no option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsError<'a> {
    Unknown { word: &'a str },
    Number { word: &'a str },
    Uuid { word: &'a str },
    Choice { word: &'a str, choices: &'static str },
    TooManyCards { word: &'a str },
}

impl Default for Options {
    fn default() -> Self {
        Self::NONE
    }
}

impl Options {
    /// Asks for nothing.
    pub const NONE: Self = Self {
        cards: [None; CARDS],
        budget: None,
        contexts: Contexts::Leave,
        reuse: false,
        chunk: None,
        reclaim: false,
        wait: 0,
        spill: None,
        keep: 0,
        pool: Pool::Leave,
        on_oom_managed: false,
        hide_vmm: false,
    };

    /// Reads a line of words.
    pub fn read(line: &str) -> Result<Self, OptionsError<'_>> {
        let mut options = Self::NONE;
        let words: SplitAsciiWhitespace<'_> = line.split_ascii_whitespace();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse().map_err(|_| OptionsError::Number { word });
            match key {
                "card" => options
                    .add(rule(word, value)?)
                    .ok_or(OptionsError::TooManyCards { word })?,
                "budget" => options.budget = Some(number()?),
                "contexts" => options.contexts = contexts(word, value)?,
                "reuse" if word == key => options.reuse = true,
                "chunk" => options.chunk = Some(number()?),
                "reclaim" if word == key => options.reclaim = true,
                "wait" => options.wait = value.parse().map_err(|_| OptionsError::Number { word })?,
                "spill" => options.spill = Some(number()?),
                "keep" => options.keep = number()?,
                "pool" => options.pool = pool(word, value)?,
                "on-oom" if value == "managed" => options.on_oom_managed = true,
                "hide-vmm" if word == key => options.hide_vmm = true,
                _ => return Err(OptionsError::Unknown { word }),
            }
        }
        Ok(options)
    }

    /// Names a card of the plan; `None` if there is no room for more.
    pub fn add(&mut self, rule: CardRule) -> Option<()> {
        *self.cards.iter_mut().find(|slot| slot.is_none())? = Some(rule);
        Some(())
    }

    /// The cards that the plan names; none means that any will do.
    pub fn cards(&self) -> impl Iterator<Item = &CardRule> {
        self.cards.iter().flatten()
    }

    /// The budget of the card with this UUID.
    pub fn budget_of(&self, uuid: &[u8; 16]) -> Option<u64> {
        let own = self.cards().find(|rule| rule.uuid == *uuid);
        own.and_then(|rule| rule.budget).or(self.budget)
    }

    /// Whether the plan names the card with this UUID, or none at all.
    pub fn plans(&self, uuid: &[u8; 16]) -> bool {
        self.cards().next().is_none() || self.cards().any(|rule| rule.uuid == *uuid)
    }
}

/// Writes the line that [`Options::read`] reads.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Words { f, first: true };
        for rule in self.cards() {
            words.say(format_args!("card={}", Uuid(rule.uuid)))?;
            if let Some(budget) = rule.budget {
                write!(words.f, ":{budget}")?;
            }
        }
        words.number("budget", self.budget)?;
        match self.contexts {
            Contexts::Leave => {}
            Contexts::Report => words.say(format_args!("contexts=report"))?,
            Contexts::Refuse => words.say(format_args!("contexts=refuse"))?,
        }
        words.flag("reuse", self.reuse)?;
        words.number("chunk", self.chunk)?;
        words.flag("reclaim", self.reclaim)?;
        words.number("wait", (self.wait > 0).then_some(u64::from(self.wait)))?;
        words.number("spill", self.spill)?;
        words.number("keep", (self.keep > 0).then_some(self.keep))?;
        match self.pool {
            Pool::Leave => {}
            Pool::Ours => words.say(format_args!("pool=ours"))?,
            Pool::Managed => words.say(format_args!("pool=managed"))?,
        }
        words.flag("on-oom=managed", self.on_oom_managed)?;
        words.flag("hide-vmm", self.hide_vmm)
    }
}

/// Words with one space between them.
struct Words<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
}

impl Words<'_, '_> {
    fn say(&mut self, word: fmt::Arguments<'_>) -> fmt::Result {
        if !core::mem::take(&mut self.first) {
            self.f.write_str(" ")?;
        }
        self.f.write_fmt(word)
    }

    fn flag(&mut self, word: &str, set: bool) -> fmt::Result {
        if set {
            self.say(format_args!("{word}"))
        } else {
            Ok(())
        }
    }

    fn number(&mut self, key: &str, number: Option<u64>) -> fmt::Result {
        number.map_or(Ok(()), |number| self.say(format_args!("{key}={number}")))
    }
}

/// A card's UUID as NVIDIA's tools write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl Uuid {
    /// Reads `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`; a MIG instance's `MIG-…` too.
    pub fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"))?;
        let mut bytes = [0; 16];
        let mut nibbles = digits.bytes().filter(|digit| *digit != b'-');
        for byte in &mut bytes {
            *byte = nibble(nibbles.next()?)? << 4 | nibble(nibbles.next()?)?;
        }
        nibbles.next().is_none().then_some(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn rule<'a>(word: &'a str, value: &str) -> Result<CardRule, OptionsError<'a>> {
    let (uuid, budget) = match value.split_once(':') {
        Some((uuid, bytes)) => (
            uuid,
            Some(bytes.parse().map_err(|_| OptionsError::Number { word })?),
        ),
        None => (value, None),
    };
    let Uuid(uuid) = Uuid::read(uuid).ok_or(OptionsError::Uuid { word })?;
    Ok(CardRule { uuid, budget })
}

fn contexts<'a>(word: &'a str, value: &str) -> Result<Contexts, OptionsError<'a>> {
    match value {
        "report" => Ok(Contexts::Report),
        "refuse" => Ok(Contexts::Refuse),
        _ => Err(OptionsError::Choice {
            word,
            choices: "report, refuse",
        }),
    }
}

fn pool<'a>(word: &'a str, value: &str) -> Result<Pool, OptionsError<'a>> {
    match value {
        "ours" => Ok(Pool::Ours),
        "managed" => Ok(Pool::Managed),
        _ => Err(OptionsError::Choice {
            word,
            choices: "ours, managed",
        }),
    }
}

impl fmt::Display for OptionsError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = crate::env::GUARD;
        match self {
            Self::Unknown { word } => write!(f, "{variable} has a word that is no option: `{word}`"),
            Self::Number { word } => write!(f, "{variable}: `{word}` needs a whole number"),
            Self::Uuid { word } => write!(
                f,
                "{variable}: `{word}` needs a card's UUID, as GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
            ),
            Self::Choice { word, choices } => write!(f, "{variable}: `{word}` is none of {choices}"),
            Self::TooManyCards { word } => write!(
                f,
                "{variable}: `{word}` is one card more than the {CARDS} there is room for"
            ),
        }
    }
}

impl core::error::Error for OptionsError<'_> {}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let line = "card=GPU-00112233-4455-6677-8899-aabbccddeeff:8589934592 budget=5 contexts=refuse reuse chunk=2097152 reclaim wait=3 \
                    spill=1073741824 keep=4096 pool=ours on-oom=managed hide-vmm";
        let options = Options::read(line).unwrap();
        assert_eq!(options.to_string(), line);
        let uuid = options.cards().next().unwrap().uuid;
        assert_eq!(options.budget_of(&uuid), Some(8_589_934_592));
        assert_eq!(options.budget_of(&[1; 16]), Some(5));
        assert!(options.plans(&uuid) && !options.plans(&[1; 16]));
        assert_eq!(Options::read("").unwrap().to_string(), "");
        assert!(Options::default().plans(&uuid));
    }

    #[test]
    fn a_wrong_word_is_named() {
        let said = |line: &str| Options::read(line).unwrap_err().to_string();
        assert_eq!(
            said("reuse frob=1"),
            "PLIMSOLL_GUARD has a word that is no option: `frob=1`"
        );
        assert_eq!(
            said("spill=1G"),
            "PLIMSOLL_GUARD: `spill=1G` needs a whole number"
        );
        assert!(said("card=7:1").contains("needs a card's UUID"));
        assert_eq!(
            said("pool=best"),
            "PLIMSOLL_GUARD: `pool=best` is none of ours, managed"
        );
        let many = ["card=GPU-00112233-4455-6677-8899-aabbccddeeff"; CARDS + 1].join(" ");
        assert!(said(&many).ends_with("one card more than the 16 there is room for"));
    }
}
