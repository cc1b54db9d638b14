//! Reads the fields of a JSON request body that limit its number of tokens.
//!
//! If a body sets several limits on the answer's length, the largest is used, because engines differ in which
//! one they apply.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::CacheUse;

#[derive(Debug, Default, Deserialize)]
pub(super) struct PromptParameters<'a> {
    max_tokens: Option<f64>,
    max_completion_tokens: Option<f64>,
    max_output_tokens: Option<f64>,
    n_predict: Option<f64>,
    n: Option<f64>,
    n_cmpl: Option<f64>,
    #[serde(borrow, default)]
    prompt: PromptShape<'a>,
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
        self.prompt.count().saturating_mul(each.unwrap_or(1).max(1))
    }

    pub(super) fn has_tools(&self) -> bool {
        self.tools.is_some() || self.functions.is_some()
    }

    pub(super) fn prompt(&self) -> Option<&str> {
        match &self.prompt {
            PromptShape::Text(text) => Some(text),
            PromptShape::None | PromptShape::Tokens | PromptShape::Several(_) => None,
        }
    }

    /// The engine's own routes can count it.
    pub(super) fn can_be_counted(&self, works: CacheUse) -> bool {
        match works {
            CacheUse::Chats => !self.garbled,
            // A single text only, because the count is asked for in one request.
            CacheUse::Completes => matches!(self.prompt, PromptShape::Text(_)),
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

/// Form of the prompt: a text or a list.
#[derive(Debug, Default)]
enum PromptShape<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    /// One prompt, in tokens, with or without text between them.
    Tokens,
    Several(u64),
}

impl PromptShape<'_> {
    fn count(&self) -> u64 {
        match self {
            Self::Several(count) => (*count).max(1),
            Self::None | Self::Text(_) | Self::Tokens => 1,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PromptShape<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = PromptShape<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prompt")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        // A text without escapes is borrowed: a prompt may be megabytes.
        Ok(PromptShape::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        // serde_json decodes escapes into a buffer that it uses again, so this text is copied.
        Ok(PromptShape::Text(Cow::Owned(text.to_owned())))
    }

    /// A list of texts or lists is several prompts; with a number in it, it is one.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut count, mut number) = (0_u64, false);
        while let Some(element) = list.next_element::<PromptElement>()? {
            count += 1;
            number |= element.0;
        }
        Ok(if number { PromptShape::Tokens } else { PromptShape::Several(count) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // serde wants a map read to its end, even one that does not matter.
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(PromptShape::Tokens)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(PromptShape::None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(PromptShape::None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(PromptShape::Tokens)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(PromptShape::Tokens)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(PromptShape::Tokens)
    }
}

/// True if an element of a list is a number.
struct PromptElement(bool);

impl<'de> Deserialize<'de> for PromptElement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor).map(PromptElement)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prompt or a token")
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(false)
    }
}
