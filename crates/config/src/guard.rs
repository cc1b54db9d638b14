//! Reads the settings of guard, the preloaded library that counts and limits a program's GPU memory.
//!
//! A setting that is not given is `None`, so each setting of a model can override the server's default.

use plimsoll_base::Bytes;
use plimsoll_wire::cache::CacheLayout;
use plimsoll_wire::options::{CacheRule, CardRule, Contexts, GuardOptions, Uuid, WeightsRule};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::duration::Length;
use super::serve_values::reserve_size;

// DECISION: under `serve`, guard only counts by default. Enforcing a plan that is a few MiB too low would
// kill an engine that fits its card. The setting `budget` enforces the granted memory.
/// Mode of guard: not loaded, counting, or enforcing a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardMode {
    /// It is not loaded at all.
    Off,
    /// It counts, and refuses nothing.
    Observe,
    /// It refuses allocations beyond the model's claim or the given budget.
    Budget,
}

/// Guard: preloaded into the model's engine, it counts the engine's GPU memory and enforces these settings.
// `None` is "not given".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[serde(expecting = "a table; write for example { mode = \"budget\" }")]
#[schemars(rename = "GuardTable")]
pub struct GuardSettings {
    /// `off`: guard is not loaded. `observe`: guard only counts memory. `budget`: guard refuses allocations
    /// beyond the memory reserved for the model. Default: `observe`.
    pub mode: Option<GuardMode>,
    /// A budget on each card, e.g. `20GiB`, instead of the memory reserved for the model.
    #[serde(deserialize_with = "through::<_, Size, _>")]
    #[schemars(with = "Option<Size>")]
    pub budget: Option<Bytes>,
    /// On a failed allocation, release idle memory of guard's own pools and retry.
    pub reuse: Option<bool>,
    /// Build a failed allocation from chunks of this size, e.g. `2MiB`.
    #[serde(deserialize_with = "through::<_, Size, _>")]
    #[schemars(with = "Option<Size>")]
    pub chunk: Option<Bytes>,
    /// Ask the server to make room: idle models on that card are unloaded, and more is reserved for this one.
    pub reclaim: Option<bool>,
    /// Longest wait for memory to become free, e.g. `5s`.
    #[serde(deserialize_with = "through::<_, Length, _>")]
    #[schemars(with = "Option<Length>")]
    pub wait: Option<u32>,
    /// Bytes that may spill to host memory, e.g. `4GiB`.
    #[serde(deserialize_with = "through::<_, Size, _>")]
    #[schemars(with = "Option<Size>")]
    pub spill: Option<Bytes>,
    /// With `spill`: all bytes that the engine requests on each card, without its CUDA context, e.g. `9GiB`,
    /// so that its first requests (weights) overflow and not its last. Default: the plan's figure.
    #[serde(deserialize_with = "through::<_, Size, _>")]
    #[schemars(with = "Option<Size>")]
    pub need: Option<Bytes>,
    /// With `spill`: part of the budget that is kept for requests smaller than this size, e.g. `512MiB`; used
    /// instead of `need`.
    #[serde(deserialize_with = "through::<_, Size, _>")]
    #[schemars(with = "Option<Size>")]
    pub keep: Option<Bytes>,
    /// ggml's legacy pool: served by guard's own policy, or left alone.
    pub pool: Option<PoolChoice>,
    /// `managed`: serve a failed allocation from managed memory.
    pub on_oom: Option<OnOom>,
    /// Report to the engine that its cards have no virtual memory management.
    pub hide_vmm: Option<bool>,
    /// Action on CUDA contexts on cards that are not assigned to the model.
    #[serde(deserialize_with = "through::<_, ContextsChoice, _>")]
    #[schemars(with = "Option<ContextsChoice>")]
    pub contexts: Option<Contexts>,
}

/// What serves ggml's legacy pool (temporary buffers): guard's own pool, or ggml's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolChoice {
    Ours,
    Leave,
}

/// Answer to a refused allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnOom {
    Managed,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ContextsChoice {
    Leave,
    Report,
    Refuse,
}

impl From<ContextsChoice> for Contexts {
    fn from(contexts: ContextsChoice) -> Self {
        match contexts {
            ContextsChoice::Leave => Self::Leave,
            ContextsChoice::Report => Self::Report,
            ContextsChoice::Refuse => Self::Refuse,
        }
    }
}

/// A size such as `24GiB` or `24576MiB`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(crate) struct Size(pub(crate) Bytes);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        reserve_size(&text).map(Self)
    }
}

impl From<Size> for Bytes {
    fn from(size: Size) -> Self {
        size.0
    }
}

/// Reads a setting by the type that the file has for it.
fn through<'de, D: Deserializer<'de>, A: Deserialize<'de>, B: From<A>>(
    from: D,
) -> Result<Option<B>, D::Error> {
    Ok(Option::<A>::deserialize(from)?.map(B::from))
}

/// A card of the plan, as it is passed to guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedCard {
    pub uuid: Uuid,
    pub budget: Option<Bytes>,
    /// Planned requests of the program on it, without its context.
    pub need: Option<Bytes>,
    /// Caches among them that can be divided by position.
    pub caches: Vec<CacheLayout>,
    /// Weights among them that give way to used positions of those caches.
    pub weights: Option<Bytes>,
}

impl GuardSettings {
    /// Words that [`GuardSettings::read`] takes, for messages.
    pub const EXPECTED: &'static str = "one of off, observe and budget[=SIZE], followed by any of these \
        options: reuse, chunk=SIZE, reclaim, wait=TIME, spill=SIZE, need=SIZE, keep=SIZE, \
                                        pool=ours|leave, on-oom=managed, hide-vmm, contexts=leave|report|refuse";

    /// Reads a line of words, which are keys of a model's guard table; `None` if one is no such key.
    pub fn read(line: &str) -> Option<Self> {
        let mut settings = serde_json::Map::new();
        for word in line.split_whitespace() {
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, value.into()),
                None if matches!(word, "off" | "observe" | "budget") => ("mode", word.into()),
                None => (word, true.into()),
            };
            settings.insert(key.to_owned(), value);
        }
        // Unknown words fail the whole line: a misspelt `spill` must not start an engine without it.
        serde_json::from_value(settings.into()).ok()
    }

    /// These settings, with `usual` for those not given.
    #[must_use]
    pub fn or(self, usual: &Self) -> Self {
        // A model that sets `off` or `observe` must not inherit a budget, which would enforce again.
        let budget = match self.mode {
            Some(GuardMode::Off | GuardMode::Observe) => self.budget,
            _ => self.budget.or(usual.budget),
        };
        /// Settings are independent of each other, so each falls back alone.
        macro_rules! each_or {
            ($($field:ident),*) => { Self { budget, $($field: self.$field.or(usual.$field),)* } };
        }
        each_or!(mode, reuse, chunk, reclaim, wait, spill, need, keep, pool, on_oom, hide_vmm, contexts)
    }

    /// The effective mode: a budget implies enforcement.
    pub fn mode(&self) -> GuardMode {
        match (self.mode, self.budget) {
            (Some(GuardMode::Off), _) => GuardMode::Off,
            // Only `off` beats a budget; `observe budget=…` enforces, since a size has no other use.
            (Some(GuardMode::Budget), _) | (_, Some(_)) => GuardMode::Budget,
            (Some(GuardMode::Observe) | None, None) => GuardMode::Observe,
        }
    }

    /// The budget on a card on which `claim` was granted; `None` for none.
    pub fn budget_for(&self, claim: Option<Bytes>) -> Option<Bytes> {
        match self.mode() {
            GuardMode::Budget => self.budget.or(claim),
            GuardMode::Off | GuardMode::Observe => None,
        }
    }

    /// True if a plan has to choose which requests spill: spilling is on, and neither `need` nor `keep` is
    /// given.
    pub fn is_to_be_planned(&self) -> bool {
        self.spill.is_some() && self.need.is_none() && self.keep.is_none()
    }

    /// The line for guard itself. `cards` are those of the plan.
    pub fn options(&self, cards: &[GuardedCard]) -> GuardOptions {
        let mut options = GuardOptions::NONE;
        // The claim is not known here; cards of the plan carry it in their own rules below.
        options.budget = self.budget_for(None).map(Bytes::get);
        options.contexts = self.contexts.unwrap_or_default();
        options.reuse = self.reuse.unwrap_or_default();
        options.chunk = self.chunk.map(Bytes::get);
        options.reclaim = self.reclaim.unwrap_or_default();
        options.wait = self.wait.unwrap_or_default();
        options.spill = self.spill.map(Bytes::get);
        options.need = self.need.map(Bytes::get);
        // 0 reserves nothing, which is guard's own default.
        options.keep = self.keep.map_or(0, Bytes::get);
        options.pool = self.pool == Some(PoolChoice::Ours);
        options.on_oom_managed = self.on_oom.is_some();
        options.hide_vmm = self.hide_vmm.unwrap_or_default();
        for card in cards {
            // Beyond its room guard treats a card as one that it does not know, as it must with more than its
            // page holds.
            let _ = options.add(CardRule {
                uuid: card.uuid.0,
                budget: card.budget.map(Bytes::get),
                need: card.need.map(Bytes::get),
            });
            for layout in &card.caches {
                let _ = options.add_cache(CacheRule { uuid: card.uuid.0, layout: *layout });
            }
            // Without a cache that can be divided, nothing changes places with them.
            if let Some(size) = card.weights.filter(|_| !card.caches.is_empty()) {
                let _ = options.add_weights(WeightsRule { uuid: card.uuid.0, size: size.get() });
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_words_is_read_and_a_wrong_word_is_not() {
        let params = GuardSettings::read("budget reclaim wait=5s spill=1GiB pool=ours").unwrap();
        assert_eq!(params.mode(), GuardMode::Budget);
        assert_eq!((params.wait, params.spill), (Some(5), Some(Bytes::gib(1))));
        assert_eq!(GuardSettings::read("budget=20GiB").unwrap().mode(), GuardMode::Budget);
        for wrong in ["budgett", "spill", "spill=x", "pool=best", "reuse=1", "wait"] {
            assert_eq!(GuardSettings::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_models_own_words_win_over_the_usual_ones() {
        let usual = GuardSettings::read("budget spill=1GiB reuse").unwrap();
        let params = GuardSettings::read("observe spill=2GiB").unwrap().or(&usual);
        assert_eq!(params.mode(), GuardMode::Observe);
        assert_eq!((params.spill, params.reuse), (Some(Bytes::gib(2)), Some(true)));
        let watched =
            GuardSettings::read("observe").unwrap().or(&GuardSettings::read("budget=1GiB").unwrap());
        assert_eq!(watched.mode(), GuardMode::Observe);
    }

    #[test]
    fn a_claim_is_a_budget_only_where_that_is_asked() {
        let claim = Some(Bytes::gib(3));
        let budget = |line: &str| GuardSettings::read(line).unwrap().budget_for(claim);
        assert_eq!(budget(""), None);
        assert_eq!(budget("budget"), claim);
        assert_eq!(budget("budget=1GiB"), Some(Bytes::gib(1)));
        assert_eq!(budget("off"), None);
    }

    #[test]
    fn guard_reads_what_is_written_for_it() {
        let uuid = Uuid::read("GPU-00112233-4455-6677-8899-aabbccddeeff").unwrap();
        let params = GuardSettings::read("budget reclaim wait=1500ms contexts=refuse").unwrap();
        let card = GuardedCard {
            uuid,
            budget: Some(Bytes::new(7)),
            need: Some(Bytes::new(9)),
            caches: vec![CacheLayout::read("1:256:2x4/1024").unwrap()],
            weights: Some(Bytes::new(4096)),
        };
        let line = params.options(&[card]).to_string();
        assert_eq!(
            line,
            "card=GPU-00112233-4455-6677-8899-aabbccddeeff:7:9 \
            cache=GPU-00112233-4455-6677-8899-aabbccddeeff:1:256:2x4/1024 \
            weights=GPU-00112233-4455-6677-8899-aabbccddeeff:4096 contexts=refuse reclaim wait=2"
        );
        assert_eq!(GuardOptions::read(&line).unwrap().to_string(), line);
    }
}
