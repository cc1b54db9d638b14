//! Parser of durations in configuration files: `90s`, `10m`, `1h30m`, `500ms`; a bare number is seconds.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

/// The expected form, for messages.
pub(crate) const EXPECTED: &str = "a duration such as 90s, 10m or 1h30m";

/// Reads a length of time; `None` for other texts, and for more than a century.
pub fn parse(text: &str) -> Option<Duration> {
    const LONGEST: u64 = 100 * 366 * 86_400 * 1000;
    let text = text.trim();
    // llama-swap and llama-server write plain seconds.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse(&format!("{}s", text));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(unit);
        let scale = match unit {
            "ms" => 1,
            "s" => 1000,
            // Minutes, not months: no setting is that long.
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        // checked: `99999999999h` must be refused, not wrap to a short time.
        let part = number.parse::<u64>().ok()?.checked_mul(scale)?;
        total = total.checked_add(part).filter(|&total| total <= LONGEST)?;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::from_millis(total))
}

/// A length of time such as `90s`, `10m` or `1h30m`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", extend("pattern" = "^([0-9]+(ms|s|m|min|h|d))+$|^[0-9]+$"))]
pub(crate) struct Length(Duration);

impl TryFrom<String> for Length {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // A newtype with TryFrom, so that serde reports the line of a bad value.
        let length = parse(&text).map(Self);
        length.ok_or_else(|| format!("`{text}` is not a duration; write {}", EXPECTED))
    }
}

impl From<Length> for Duration {
    fn from(length: Length) -> Self {
        length.0
    }
}

/// Whole seconds, rounded up: guard counts in them, and 500 ms must not become no wait at all.
impl From<Length> for u32 {
    fn from(length: Length) -> Self {
        Self::try_from(length.0.as_millis().div_ceil(1000)).unwrap_or(Self::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("2d", 172_800_000),
            ("0", 0),
            (" 5s ", 5000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-5", "5x", "1.5h", "5 s", "99999999999999999999", "9999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
