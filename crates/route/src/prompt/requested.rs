//! Reads the fields of a JSON request body that limit its number of tokens.
//!
//! If a body sets several limits on the answer's length, the largest is used, because engines differ in which
//! one they apply.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::CacheUse;

#[derive(Debug, Default, Deserialize)]
pub(super) struct PromptParameters<'a> {
    max_tokens: Option<f64>,
    max_completion_tokens: Option<f64>,
    max_output_tokens: Option<f64>,
    n_predict: Option<f64>,
    n: Option<f64>,
    n_cmpl: Option<f64>,
    /// As it came: it may be megabytes, and only some readers want its text.
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    tools: Option<IgnoredAny>,
    functions: Option<IgnoredAny>,
    /// The body sets a limit that cannot be parsed, so there is no usable limit.
    #[serde(skip)]
    garbled: bool,
}

impl<'a> PromptParameters<'a> {
    pub(super) fn read(text: &'a [u8]) -> Self {
        // A field of the wrong type fails the whole body; its other limits could mislead then.
        serde_json::from_slice(text).unwrap_or(Self { garbled: true, ..Self::default() })
    }

    /// Tokens of an answer at most.
    pub(super) fn limit(&self) -> Option<u64> {
        let limits = [self.max_tokens, self.max_completion_tokens, self.max_output_tokens, self.n_predict];
        let given: Vec<f64> = limits.into_iter().flatten().collect();
        // llama-server reads -1 as no limit.
        let unlimited = self.garbled || given.iter().any(|limit| *limit < 0.0);
        let most = given
            .into_iter()
            .fold(None, |most: Option<f64>, limit| Some(most.map_or(limit, |most| most.max(limit))));
        most.filter(|_| !unlimited).map(whole)
    }

    /// Answers that are wanted, over all prompts.
    pub(super) fn answers(&self) -> u64 {
        // Each prompt of a list gets this many answers.
        let each = [self.n, self.n_cmpl].into_iter().flatten().map(whole).max();
        self.prompts().saturating_mul(each.unwrap_or(1).max(1))
    }

    pub(super) fn has_tools(&self) -> bool {
        self.tools.is_some() || self.functions.is_some()
    }

    /// The prompt, if it is a single text.
    pub(super) fn prompt(&self) -> Option<String> {
        self.prompt
            .filter(|prompt| is_text(prompt))
            .and_then(|prompt| serde_json::from_str(prompt.get()).ok())
    }

    /// A list of texts or lists is several prompts; with a number in it, it is one.
    fn prompts(&self) -> u64 {
        let list = self.prompt.map(|prompt| Deserializer::from_str(prompt.get()).deserialize_seq(PromptList));
        list.and_then(Result::ok).map_or(1, |count| count.max(1))
    }

    /// The engine's own routes can count it.
    pub(super) fn can_be_counted(&self, works: CacheUse) -> bool {
        match works {
            CacheUse::Chats => !self.garbled,
            // A single text only, because the count is asked for in one request.
            CacheUse::Completes => self.prompt.is_some_and(is_text),
            CacheUse::Nothing | CacheUse::Reads | CacheUse::Converses | CacheUse::Unknown => false,
        }
    }
}

/// Converts a JSON number to a whole one. Beyond any possible context, the exact value does not matter.
fn whole(number: f64) -> u64 {
    const MOST: f64 = 1e12;
    // Rust has no checked conversion from `f64` to `u64`, so the number goes through its decimal text.
    let text = format!("{:.0}", number.clamp(0.0, MOST).ceil());
    text.parse().unwrap_or(u64::MAX)
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

/// Counts the prompts of a list, which is read without a copy.
struct PromptList;

impl<'de> Visitor<'de> for PromptList {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of prompts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        let (mut count, mut is_tokens) = (0_u64, false);
        while let Some(element) = list.next_element::<&RawValue>()? {
            count += 1;
            is_tokens |= element.get().starts_with(|first: char| first == '-' || first.is_ascii_digit());
        }
        Ok(if is_tokens { 1 } else { count })
    }
}
