//! Check of a request's API key, in `Authorization: Bearer`, `Authorization: Basic` (the password) or
//! `x-api-key`.
//!
//! A comparison takes the same time for every key, so response times reveal nothing.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{AUTHORIZATION, HeaderMap};

use super::exposition::{Exposition, MetricKind};
use super::headers::{X_API_KEY, text};

/// Time between two log lines about requests without a valid key: whoever guesses keys must not fill a disk.
const APART: Duration = Duration::from_secs(10);

/// Clients differ in whether they pad (RFC 7617 leaves it to base64).
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The API keys of this server; without keys, every request is accepted. Clones share them, so that a reload
/// replaces them everywhere.
#[derive(Clone, Default)]
pub(crate) struct ApiKeys(Rc<RefCell<Vec<String>>>);

impl ApiKeys {
    pub(crate) fn new(keys: impl IntoIterator<Item = String>) -> Self {
        let own = Self::default();
        own.replace(keys);
        own
    }

    /// Replaces all keys; returns true if that changed anything.
    pub(crate) fn replace(&self, keys: impl IntoIterator<Item = String>) -> bool {
        // An empty key in the configuration would admit every client that sends an empty one.
        let keys: Vec<String> = keys.into_iter().filter(|key| !key.is_empty()).collect();
        let changed = *self.0.borrow() != keys;
        self.0.replace(keys);
        changed
    }

    /// True if every request is let in.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        self.0.borrow().is_empty() || presented(headers).is_some_and(|key| self.knows(&key))
    }

    fn knows(&self, key: &[u8]) -> bool {
        self.0
            .borrow()
            .iter()
            // `|` and not `||`, so that every key is compared.
            .fold(false, |known, own| known | same(own.as_bytes(), key))
    }
}

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.borrow().len())
    }
}

/// Requests that were refused for want of a valid API key.
#[derive(Debug, Default)]
pub(crate) struct WrongKeys {
    count: Cell<u64>,
    /// Time of the last log line, and the count that it told.
    told: Cell<Option<(Instant, u64)>>,
}

impl WrongKeys {
    /// Counts a request, and logs it unless another was logged just before.
    pub(crate) fn count(&self) {
        let count = self.count.get() + 1;
        self.count.set(count);
        if let Some(new) = self.news(count, Instant::now()) {
            let text = if new == 1 { "a request was".to_owned() } else { format!("{new} requests were") };
            tracing::warn!("{text} refused (401): no valid API key; {count} since the start");
        }
    }

    /// Requests since the last line, if it is time for one.
    fn news(&self, count: u64, now: Instant) -> Option<u64> {
        let told = match self.told.get() {
            Some((at, _)) if now.saturating_duration_since(at) < APART => return None,
            told => told.map_or(0, |(_, told)| told),
        };
        self.told.set(Some((now, count)));
        Some(count - told)
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let name = "plimsoll_unauthorized_total";
        page.family(name, MetricKind::Counter, "Requests refused because they had no valid API key");
        page.sample(name, &[], self.count.get());
    }
}

fn presented(headers: &HeaderMap) -> Option<Vec<u8>> {
    if let Some(value) = text(headers, &AUTHORIZATION) {
        let (scheme, rest) = value.split_once(' ').unwrap_or(("", value));
        return match scheme {
            // A bare key without a scheme.
            "" => Some(rest.as_bytes().to_vec()),
            scheme if scheme.eq_ignore_ascii_case("bearer") => Some(rest.trim().as_bytes().to_vec()),
            scheme if scheme.eq_ignore_ascii_case("basic") => password(rest.trim()),
            _ => None,
        };
    }
    text(headers, &X_API_KEY).map(|key| key.as_bytes().to_vec())
}

fn password(encoded: &str) -> Option<Vec<u8>> {
    let pair = BASIC.decode(encoded).ok()?;
    // The user name holds no colon, the password may (RFC 7617, section 2).
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Compares two keys in constant time, so that the time does not reveal where they differ.
fn same(own: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(own.len() != given.len());
    for (place, byte) in given.iter().enumerate() {
        difference |= byte ^ own[place % own.len()];
        // Keeps the compiler from ending the loop at the first difference.
        difference = black_box(difference);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn admits(name: &'static str, value: &str) -> bool {
        let keys = ApiKeys::new(["alpha".to_owned(), "beta-key".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        keys.admit(&headers)
    }

    #[test]
    fn a_key_is_taken_in_the_four_ways_that_clients_send_it() {
        assert!(admits("authorization", "Bearer beta-key"));
        assert!(admits("authorization", "bearer alpha"));
        assert!(admits("authorization", "alpha"));
        assert!(admits("x-api-key", "alpha"));
        assert!(admits("authorization", "Basic dXNlcjphbHBoYQ=="));
        assert!(admits("authorization", "Basic OmJldGEta2V5"));
        assert!(admits("authorization", "Basic dXNlcjphbHBoYQ"), "without padding");
    }

    #[test]
    fn a_flood_of_wrong_keys_is_a_line_every_ten_seconds_with_their_number() {
        let (wrong, start) = (WrongKeys::default(), Instant::now());
        let lines: Vec<u64> = (1..=1000)
            .filter_map(|count| {
                wrong.news(count, start + Duration::from_millis(25) * count.try_into().unwrap())
            })
            .collect();
        assert_eq!(lines, [1, 400, 400]);
    }

    #[test]
    fn anything_else_is_refused() {
        for value in ["", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaalpha", "Basic alpha", "Basic !!"]
        {
            assert!(!admits("authorization", value), "{value}");
        }
        assert!(!admits("authorization", "Digest alpha"));
        assert!(!admits("x-api-key", "alpha "));
        assert!(!ApiKeys::new(["alpha".to_owned()]).admit(&HeaderMap::new()));
    }

    #[test]
    fn without_keys_everybody_is_let_in_and_an_empty_key_is_no_key() {
        assert!(ApiKeys::new([]).admit(&HeaderMap::new()));
        let empty = ApiKeys::new([String::new()]);
        assert!(empty.admit(&HeaderMap::new()) && empty.is_empty(), "it protects nothing");
        assert!(!ApiKeys::new(["alpha".to_owned()]).is_empty());
    }
}
