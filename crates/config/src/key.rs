//! Reads API keys (`[keys.NAME]`) with their rights and limits.

use std::fmt;
use std::num::NonZeroU32;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use plimsoll_base::Priority;
use plimsoll_flags::quoted;
use schemars::JsonSchema;
use serde::Deserialize;

/// Beginning of a key that is given as its digest.
const DIGEST: &str = "sha256:";

/// An API key with its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredKey {
    pub name: String,
    pub secret: KeySecret,
    /// Names or aliases of models, with `*` for any characters; `None` for all models.
    pub models: Option<Vec<String>>,
    pub rights: Vec<KeyRight>,
    pub requests_per_minute: Option<NonZeroU32>,
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Requests at a time.
    pub concurrency: Option<NonZeroU32>,
    pub priority: Priority,
    /// Time from which it is refused.
    pub expires: Option<Timestamp>,
}

impl ConfiguredKey {
    /// A key with all rights and without limits.
    pub fn unlimited(name: String, secret: KeySecret) -> Self {
        Self {
            name,
            secret,
            models: None,
            rights: vec![KeyRight::Use, KeyRight::See, KeyRight::Change, KeyRight::Operate],
            requests_per_minute: None,
            tokens_per_minute: None,
            concurrency: None,
            priority: Priority::default(),
            expires: None,
        }
    }
}

/// Right of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRight {
    /// Send requests to models, and list them.
    Use,
    /// Read the state of the server: status, events, metrics.
    See,
    /// Load, unload and pin models, and reach all endpoints of their engines.
    Change,
    /// Read logs, reload the configuration, keep memory free, download and delete models.
    Operate,
}

impl KeyRight {
    pub const ALL: [Self; 4] = [Self::Use, Self::See, Self::Change, Self::Operate];

    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::See => "see",
            Self::Change => "change",
            Self::Operate => "operate",
        }
    }
}

/// A key as it is written: its text, or its SHA-256 digest.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySecret {
    Text(String),
    Digest([u8; 32]),
}

impl KeySecret {
    /// Reads a key, or `sha256:` and 64 hexadecimal digits.
    pub fn read(text: &str) -> Result<Self, String> {
        let Some(digits) = text.strip_prefix(DIGEST) else { return Ok(Self::Text(text.to_owned())) };
        let digest = digest(digits.trim());
        digest.map(Self::Digest).ok_or_else(|| {
            // The text may be a key that only looks like a digest, so it is not repeated.
            format!("`{DIGEST}` must be followed by a digest of 64 hexadecimal digits, as printed by: printf %s KEY | \
                sha256sum")
        })
    }
}

/// Never the key itself: this output ends up in logs and bug reports.
impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret")
    }
}

fn digest(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// A day, whose first second in UTC is meant, or a time with its zone.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(crate) struct ExpiryText(pub(crate) Timestamp);

impl TryFrom<String> for ExpiryText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // A date with a time and no zone would be read as its day.
        let day = text.parse::<Date>().ok().filter(|_| text.len() == "2027-01-31".len());
        let day = || day?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
        let time = text.parse::<Timestamp>().ok().or_else(day);
        time.map(Self).ok_or_else(|| {
            format!("`{}` is not a time; write \"2027-01-31\" or \"2027-01-31T18:00:00Z\"", quoted(&text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_text_or_its_digest() {
        let hex = "2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B";
        let Ok(KeySecret::Digest(bytes)) = KeySecret::read(&format!("sha256:{hex}")) else { panic!() };
        assert_eq!((bytes[0], bytes[31]), (0x2b, 0x5b));
        assert_eq!(KeySecret::read("plain"), Ok(KeySecret::Text("plain".to_owned())));
        for bad in ["sha256:", "sha256:12", &format!("sha256:{hex}0"), &format!("sha256:+{}", &hex[1..])] {
            let error = KeySecret::read(bad).unwrap_err();
            assert!(!error.contains(hex), "{error}");
        }
        assert!(!format!("{:?}", KeySecret::Text("secret".to_owned())).contains("secret"));
    }

    #[test]
    fn an_expiry_is_a_day_or_a_time_with_its_zone() {
        let seconds = |text: &str| ExpiryText::try_from(text.to_owned()).map(|time| time.0.as_second());
        assert_eq!(seconds("2027-01-31"), Ok(1_801_353_600));
        assert_eq!(seconds("2027-01-31T01:00:00+01:00"), Ok(1_801_353_600));
        for bad in ["", "soon", "2027-13-01", "2027-01-31T18:00:00", "99999-01-01"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
