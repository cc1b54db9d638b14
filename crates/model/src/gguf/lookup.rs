//! Looks up keys in a GGUF header, and accepts integers of any width, because file converters differ.

use super::error::{GgufError, shortened};
use super::{Array, GgufEntry, GgufValue, Header};

impl<'a> Header<'a> {
    pub fn entry(&self, key: &str) -> Option<&GgufEntry<'a>> {
        // Headers have some dozens of keys; a linear search is faster than building a map.
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.convert(key, "a whole number below 2^32", |value| match value {
            GgufValue::Unsigned(n) => u32::try_from(n).ok(),
            // Python writers default to signed integers.
            GgufValue::Signed(n) => u32::try_from(n).ok(),
            _ => None,
        })
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.convert(key, "true or false", |value| match value {
            GgufValue::Bool(yes) => Some(yes),
            _ => None,
        })
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, GgufError> {
        self.convert(key, "UTF-8 text", |value| match value {
            GgufValue::Text(text) => str::from_utf8(text).ok(),
            _ => None,
        })
    }

    pub fn array(&self, key: &str) -> Result<Option<Array<'a>>, GgufError> {
        self.convert(key, "an array", |value| match value {
            GgufValue::Array(array) => Some(array),
            _ => None,
        })
    }

    fn convert<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(GgufValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        match convert(entry.value) {
            Some(value) => Ok(Some(value)),
            None => Err(GgufError::WrongValue {
                key: shortened(key),
                found: format!("{} ({})", entry.value, entry.kind),
                expected,
                offset: entry.offset,
            }),
        }
    }
}
