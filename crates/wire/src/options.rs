//! Parses and writes the options of guard, the preloaded library: one line of words in [`crate::env::GUARD`].
//! With an empty line, guard only counts.
//!
//! - `card=GPU-<uuid>[:[BUDGET][:NEED]]`: a card with its budget and its need (planned total) in bytes.
//! - `cache=GPU-<uuid>:LAYOUT`: an allocation of the program's KV cache on a card (see [`crate::cache`]).
//! - `weights=GPU-<uuid>:BYTES`: the allocation of the program's weights on a card, which gives way to used
//!   positions of a cache.
//! - `budget=BYTES`, `need=BYTES`: budget and need for every card without figures of its own.
//! - `contexts=report|refuse`: treatment of CUDA contexts on a card that no `card=` names.
//! - `reuse`, `chunk=BYTES`, `reclaim`, `wait=SECONDS`, `spill=BYTES`, `keep=BYTES`, `on-oom=managed`:
//!   remedies for a refused allocation (see `guard/src/ladder.rs`).
//! - `pool=ours`: replacement of ggml's legacy pool.
//! - `arena=BYTES`: with it, one allocation of the planned size for each such pool.
//! - `hide-vmm`: the program is told that no card has virtual memory management.
//! - `hide-others`: Vulkan lists no device but those that a `card=` names.

use core::fmt;
use core::str::SplitAsciiWhitespace;

use crate::cache::{CACHES, CacheLayout};
use crate::env::GUARD;
use crate::page::CARDS;

/// Guard's options for one process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    cards: [Option<CardRule>; CARDS],
    caches: [Option<CacheRule>; CACHES],
    weights: [Option<WeightsRule>; CARDS],
    /// Budget of each card that has no separate one.
    pub budget: Option<u64>,
    pub contexts: Contexts,
    /// Rung 1: release idle memory of pools, then try again.
    pub reuse: bool,
    /// Rung 2: build a refused request from physical chunks of this many bytes.
    pub chunk: Option<u64>,
    /// Rung 3: request the daemon to make room.
    pub reclaim: bool,
    /// Rung 3: seconds to wait for room.
    pub wait: u32,
    /// Rung 4: maximum bytes in host memory for allocations that do not fit.
    pub spill: Option<u64>,
    /// With `spill`: the total that the program will request on each card without a separate need, not
    /// counting its context. A large request then leaves room for all later ones, so that the first requests
    /// overflow: weights, which a token reads once, and not the KV cache and the compute buffer, which it
    /// reads many times.
    pub need: Option<u64>,
    /// With `spill`: bytes that larger requests leave to smaller ones.
    pub keep: u64,
    /// Serve ggml's legacy pool by guard's own policy.
    pub pool: bool,
    /// With `pool`: bytes of the one allocation in which a pool places its blocks.
    pub arena: Option<u64>,
    /// Rung 5: answer a refused request with managed memory for the whole (llama.cpp PR 22158's opt-in).
    pub on_oom_managed: bool,
    /// Report cards without virtual memory management, so that ggml uses its legacy pool.
    pub hide_vmm: bool,
    /// Show the program no device of Vulkan that is not one of `cards`.
    pub hide_others: bool,
}

/// Budget and need of one card of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardRule {
    pub uuid: [u8; 16],
    pub budget: Option<u64>,
    pub need: Option<u64>,
}

/// An allocation that the program will request for its KV cache on one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRule {
    pub uuid: [u8; 16],
    pub layout: CacheLayout,
}

/// The allocation of the program's weights on one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightsRule {
    pub uuid: [u8; 16],
    pub size: u64,
}

/// Treatment of a context on a card outside the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contexts {
    #[default]
    Leave,
    /// Report it with the stack of the caller.
    Report,
    /// Report and refuse it.
    Refuse,
}

/// Error: an option of guard cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError<'a> {
    #[error("the variable {GUARD} contains `{word}`, which is not an option of guard")]
    Unknown { word: &'a str },
    #[error("the option `{word}` in {GUARD} needs a whole number as its value")]
    Number { word: &'a str },
    #[error(
        "the option `{word}` in {GUARD} needs a card's UUID as its value, such as \
        GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
    )]
    Uuid { word: &'a str },
    #[error("the option `{word}` in {GUARD} is not one of {choices}")]
    Choice { word: &'a str, choices: &'static str },
    #[error("the option `{word}` in {GUARD} exceeds the limit of {CARDS} cards")]
    TooManyCards { word: &'a str },
    #[error("the option `{word}` in {GUARD} is not the layout of a cache")]
    Cache { word: &'a str },
    #[error(
        "the option `{word}` in {GUARD} is not the size of a card's weights; write \
        weights=GPU-UUID:BYTES"
    )]
    Weights { word: &'a str },
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self::NONE
    }
}

impl GuardOptions {
    /// No option at all.
    pub const NONE: Self = Self {
        cards: [None; CARDS],
        caches: [None; CACHES],
        weights: [None; CARDS],
        budget: None,
        contexts: Contexts::Leave,
        reuse: false,
        chunk: None,
        reclaim: false,
        wait: 0,
        spill: None,
        need: None,
        keep: 0,
        pool: false,
        arena: None,
        on_oom_managed: false,
        hide_vmm: false,
        hide_others: false,
    };

    /// Reads a line of words.
    pub fn read(line: &str) -> Result<Self, OptionsError<'_>> {
        let mut options = Self::NONE;
        let words: SplitAsciiWhitespace<'_> = line.split_ascii_whitespace();
        for word in words {
            // A word without `=` is a flag; its value is empty.
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse().map_err(|_| OptionsError::Number { word });
            match key {
                "card" => options.add(rule(word, value)?).ok_or(OptionsError::TooManyCards { word })?,
                "cache" => cache(value)
                    .and_then(|rule| options.add_cache(rule))
                    .ok_or(OptionsError::Cache { word })?,
                "weights" => weights(value)
                    .and_then(|rule| options.add_weights(rule))
                    .ok_or(OptionsError::Weights { word })?,
                "budget" => options.budget = Some(number()?),
                "contexts" => options.contexts = contexts(word, value)?,
                // `reuse=` with a value is a mistake that must be reported, not a flag.
                "reuse" if word == key => options.reuse = true,
                "chunk" => options.chunk = Some(number()?),
                "reclaim" if word == key => options.reclaim = true,
                "wait" => options.wait = value.parse().map_err(|_| OptionsError::Number { word })?,
                "spill" => options.spill = Some(number()?),
                "need" => options.need = Some(number()?),
                "keep" => options.keep = number()?,
                "pool" if value == "ours" => options.pool = true,
                "arena" => options.arena = Some(number()?),
                "on-oom" if value == "managed" => options.on_oom_managed = true,
                "hide-vmm" if word == key => options.hide_vmm = true,
                "hide-others" if word == key => options.hide_others = true,
                _ => return Err(OptionsError::Unknown { word }),
            }
        }
        Ok(options)
    }

    /// Adds a card of the plan; `None` if there is no room for more.
    pub fn add(&mut self, rule: CardRule) -> Option<()> {
        *self.cards.iter_mut().find(|slot| slot.is_none())? = Some(rule);
        Some(())
    }

    /// Adds a cache; `None` if there is no room for more.
    pub fn add_cache(&mut self, rule: CacheRule) -> Option<()> {
        *self.caches.iter_mut().find(|slot| slot.is_none())? = Some(rule);
        Some(())
    }

    /// Adds the weights of a card; `None` if there is no room for more.
    pub fn add_weights(&mut self, rule: WeightsRule) -> Option<()> {
        *self.weights.iter_mut().find(|slot| slot.is_none())? = Some(rule);
        Some(())
    }

    /// Size of the weights on the card with this UUID.
    pub fn weights_on(&self, uuid: [u8; 16]) -> Option<u64> {
        self.weights.iter().flatten().find(|rule| rule.uuid == uuid).map(|rule| rule.size)
    }

    /// The caches on the card with this UUID, with their numbers.
    pub fn caches_on(&self, uuid: [u8; 16]) -> impl Iterator<Item = (usize, &CacheLayout)> {
        let caches = self.caches.iter().enumerate();
        caches.filter_map(move |(number, rule)| {
            rule.as_ref().filter(|rule| rule.uuid == uuid).map(|rule| (number, &rule.layout))
        })
    }

    /// The cards of the plan; none means that every card is in the plan.
    pub fn cards(&self) -> impl Iterator<Item = &CardRule> {
        self.cards.iter().flatten()
    }

    /// The budget of the card with this UUID.
    pub fn budget_of(&self, uuid: &[u8; 16]) -> Option<u64> {
        let own = self.cards().find(|rule| rule.uuid == *uuid);
        // A card of the plan without a budget of its own gets the common one.
        own.and_then(|rule| rule.budget).or(self.budget)
    }

    /// The need of the program on the card with this UUID, if it is known.
    pub fn need_of(&self, uuid: &[u8; 16]) -> Option<u64> {
        let own = self.cards().find(|rule| rule.uuid == *uuid);
        own.and_then(|rule| rule.need).or(self.need)
    }

    /// True if the card with this UUID is in the plan, or the plan names no card.
    pub fn plans(&self, uuid: &[u8; 16]) -> bool {
        self.cards().next().is_none() || self.cards().any(|rule| rule.uuid == *uuid)
    }
}

/// Writes the line that [`GuardOptions::read`] reads.
impl fmt::Display for GuardOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = WordWriter { f, first: true };
        for rule in self.cards() {
            words.say(format_args!("card={}", Uuid(rule.uuid)))?;
            match (rule.budget, rule.need) {
                (None, None) => {}
                (Some(budget), None) => write!(words.f, ":{budget}")?,
                (None, Some(need)) => write!(words.f, "::{need}")?,
                (Some(budget), Some(need)) => write!(words.f, ":{budget}:{need}")?,
            }
        }
        for rule in self.caches.iter().flatten() {
            words.say(format_args!("cache={}:{}", Uuid(rule.uuid), rule.layout))?;
        }
        for rule in self.weights.iter().flatten() {
            words.say(format_args!("weights={}:{}", Uuid(rule.uuid), rule.size))?;
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
        words.number("need", self.need)?;
        words.number("keep", (self.keep > 0).then_some(self.keep))?;
        words.flag("pool=ours", self.pool)?;
        words.number("arena", self.arena)?;
        words.flag("on-oom=managed", self.on_oom_managed)?;
        words.flag("hide-vmm", self.hide_vmm)?;
        words.flag("hide-others", self.hide_others)
    }
}

/// Writer of words with one space between them.
struct WordWriter<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
}

impl WordWriter<'_, '_> {
    fn say(&mut self, word: fmt::Arguments<'_>) -> fmt::Result {
        if !core::mem::take(&mut self.first) {
            self.f.write_str(" ")?;
        }
        self.f.write_fmt(word)
    }

    fn flag(&mut self, word: &str, set: bool) -> fmt::Result {
        if set { self.say(format_args!("{word}")) } else { Ok(()) }
    }

    fn number(&mut self, key: &str, number: Option<u64>) -> fmt::Result {
        number.map_or(Ok(()), |number| self.say(format_args!("{key}={number}")))
    }
}

/// The identity of a card, written as NVIDIA's tools write a UUID: of NVIDIA's its UUID, of others their
/// place on the PCI bus.
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
        // Dashes anywhere: NVIDIA's tools group the digits, other tools drop the dashes.
        let mut nibbles = digits.bytes().filter(|digit| *digit != b'-');
        for byte in &mut bytes {
            *byte = nibble(nibbles.next()?)? << 4 | nibble(nibbles.next()?)?;
        }
        // Sixteen bytes and no digit more.
        nibbles.next().is_none().then_some(Self(bytes))
    }

    /// The identity of a card that has no UUID which all its interfaces know: its place on the PCI bus, as
    /// domain, bus, device and function. Mesa's RADV makes its UUID in the same way.
    pub fn of_place(place: [u32; 4]) -> Self {
        let mut bytes = [0; 16];
        for (four, number) in bytes.chunks_exact_mut(4).zip(place) {
            four.copy_from_slice(&number.to_le_bytes());
        }
        Self(bytes)
    }

    /// The same for an address such as `0000:03:00.0`.
    pub fn of_address(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let mut parts = rest.split(':');
        let mut part = |digits: usize| {
            let text = parts.next().filter(|part| part.len() == digits)?;
            text.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(text, 16).ok())?
        };
        let place = [part(4)?, part(2)?, part(2)?, function.parse().ok().filter(|function| *function < 8)?];
        parts.next().is_none().then_some(Self::of_place(place))
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
    let (uuid, bytes) = value.split_once(':').unwrap_or((value, ""));
    let (budget, need) = bytes.split_once(':').map_or((bytes, None), |(budget, need)| (budget, Some(need)));
    let number = |text: &str| text.parse().map_err(|_| OptionsError::Number { word });
    let given = value.contains(':').then_some(budget);
    // `card=UUID::NEED` has a need and no budget; `card=UUID:` is a budget that was forgotten, and an error.
    let given = given.filter(|text| need.is_none() || !text.is_empty());
    let Uuid(uuid) = Uuid::read(uuid).ok_or(OptionsError::Uuid { word })?;
    Ok(CardRule { uuid, budget: given.map(number).transpose()?, need: need.map(number).transpose()? })
}

fn cache(value: &str) -> Option<CacheRule> {
    let (uuid, layout) = value.split_once(':')?;
    Some(CacheRule { uuid: Uuid::read(uuid)?.0, layout: CacheLayout::read(layout)? })
}

fn weights(value: &str) -> Option<WeightsRule> {
    let (uuid, size) = value.split_once(':')?;
    Some(WeightsRule { uuid: Uuid::read(uuid)?.0, size: size.parse().ok()? })
}

fn contexts<'a>(word: &'a str, value: &str) -> Result<Contexts, OptionsError<'a>> {
    match value {
        "report" => Ok(Contexts::Report),
        "refuse" => Ok(Contexts::Refuse),
        _ => Err(OptionsError::Choice { word, choices: "report, refuse" }),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn guard_options_round_trip_through_their_text() {
        let line = "card=GPU-00112233-4455-6677-8899-aabbccddeeff:8589934592 \
                    cache=GPU-00112233-4455-6677-8899-aabbccddeeff:1:256:2x4/1024 \
                    weights=GPU-00112233-4455-6677-8899-aabbccddeeff:4096 budget=5 contexts=refuse reuse chunk=2097152 reclaim wait=3 \
                    spill=1073741824 need=77 keep=4096 pool=ours arena=99 on-oom=managed hide-vmm hide-others";
        let options = GuardOptions::read(line).unwrap();
        assert_eq!(options.to_string(), line);
        let uuid = options.cards().next().unwrap().uuid;
        assert_eq!(options.budget_of(&uuid), Some(8_589_934_592));
        assert_eq!(options.budget_of(&[1; 16]), Some(5));
        assert_eq!(options.need_of(&uuid), Some(77));
        let sizes =
            |uuid: &[u8; 16]| options.caches_on(*uuid).map(|(number, layout)| (number, layout.size())).next();
        assert_eq!((sizes(&uuid), sizes(&[1; 16])), (Some((0, 2048)), None));
        assert_eq!((options.weights_on(uuid), options.weights_on([1; 16])), (Some(4096), None));
        assert!(options.plans(&uuid) && !options.plans(&[1; 16]));
        assert_eq!(GuardOptions::read("").unwrap().to_string(), "");
        assert!(GuardOptions::default().plans(&uuid));
    }

    #[test]
    fn a_cards_budget_and_need_stand_behind_it() {
        let uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
        for (line, budget, need) in [
            (std::format!("card={uuid}"), None, None),
            (std::format!("card={uuid}:7"), Some(7), None),
            (std::format!("card={uuid}::8"), None, Some(8)),
            (std::format!("card={uuid}:7:8"), Some(7), Some(8)),
        ] {
            let options = GuardOptions::read(&line).unwrap();
            let rule = options.cards().next().unwrap();
            assert_eq!((rule.budget, rule.need), (budget, need), "{line}");
            assert_eq!(options.need_of(&rule.uuid), need);
            assert_eq!(options.to_string(), line);
        }
        for wrong in [":", "::", ":7:", ":x", "::7:8"] {
            assert!(GuardOptions::read(&std::format!("card={uuid}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_on_the_pci_bus_is_an_identity() {
        let uuid = Uuid::of_address("0001:c2:1f.7").unwrap();
        assert_eq!(uuid.0, [1, 0, 0, 0, 0xc2, 0, 0, 0, 0x1f, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(Uuid::read(&uuid.to_string()), Some(uuid));
        for wrong in
            ["", "0", "c2:00.0", "0000:c2:00", "0000:c2:00.8", "0000:+2:00.0", "0000:c2:00:00.0", "x:c2:00.0"]
        {
            assert_eq!(Uuid::of_address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wrong_word_is_named() {
        let stated = |line: &str| GuardOptions::read(line).unwrap_err().to_string();
        assert_eq!(
            stated("reuse frob=1"),
            "the variable PLIMSOLL_GUARD contains `frob=1`, which is not an option of guard"
        );
        assert_eq!(
            stated("spill=1G"),
            "the option `spill=1G` in PLIMSOLL_GUARD needs a whole number as its value"
        );
        assert!(stated("cache=7:1").contains("is not the layout of a cache"));
        assert!(stated("weights=7:1").contains("is not the size of a card's weights"));
        assert!(stated("card=7:1").contains("needs a card's UUID"));
        assert_eq!(
            stated("pool=best"),
            "the variable PLIMSOLL_GUARD contains `pool=best`, which is not an option of guard"
        );
        let many = ["card=GPU-00112233-4455-6677-8899-aabbccddeeff"; CARDS + 1].join(" ");
        assert!(stated(&many).ends_with("exceeds the limit of 16 cards"));
    }
}
