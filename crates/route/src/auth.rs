//! Checks the API key of a request, in `Authorization: Bearer`, `Authorization: Basic` (the password) or
//! `x-api-key`.
//!
//! Keys are kept as digests. A comparison takes the same time for every key, so response times reveal
//! nothing.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use plimsoll_config::{ConfiguredKey, KeySecret};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use super::access_key::{AccessKey, KeyDigest, digest_of};
use super::exposition::{Exposition, MetricKind};
use super::headers::{X_API_KEY, text};
use super::problem::HttpProblem;

/// Time between two log lines about requests without a valid key: whoever guesses keys must not fill a disk.
const APART: Duration = Duration::from_secs(10);

/// Clients differ in whether they pad (RFC 7617 leaves it to base64).
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The API keys of this server; without keys, every request is accepted. Clones share them, so that a reload
/// replaces them everywhere.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys(Rc<SharedKeys>);

#[derive(Debug, Default)]
struct SharedKeys {
    table: RefCell<KeyTable>,
    replaced: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct KeyTable {
    keys: Vec<(KeyNumber, Rc<AccessKey>)>,
    /// Number of the next key.
    next: u32,
}

/// A key with a name. It keeps its number through a reload that leaves name and secret. No number is reused,
/// so that a key that a reload removed is not taken for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyNumber(u32);

/// Result of the check of a request's key.
#[derive(Debug)]
pub(crate) enum KeyCheck {
    /// No key is required.
    Open,
    Key(KeyNumber, Rc<AccessKey>),
    Unknown,
    Expired,
}

/// A header line that holds a key, and the number of the key.
type ShownLine = (Vec<u8>, KeyNumber);

/// The key that the last request of a connection has shown.
#[derive(Default)]
pub(crate) struct ShownKey(RefCell<Option<ShownLine>>);

impl fmt::Debug for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownKey")
    }
}

impl ApiKeys {
    pub fn new(keys: Vec<ConfiguredKey>) -> Self {
        let own = Self::default();
        own.replace(keys);
        own
    }

    /// Replaces all keys; returns the names of those with a name that were added, changed or removed, and
    /// true if those without changed.
    pub fn replace(&self, keys: Vec<ConfiguredKey>) -> KeyChanges {
        let mut table = self.0.table.borrow_mut();
        let old = std::mem::take(&mut table.keys);
        let find = |name: &str| old.iter().map(|(_, key)| key).find(|key| key.is_named && key.name() == name);
        let mut changes = KeyChanges::default();
        // An empty key in the configuration would admit every client that sends an empty one.
        let keys = keys.into_iter().filter(|key| key.secret != KeySecret::Text(String::new()));
        for key in keys {
            let is_named = !key.name.is_empty();
            let before = find(&key.name).filter(|_| is_named);
            let key = AccessKey::new(key, is_named, before.map(|key| Rc::clone(&key.usage)));
            match before {
                None if is_named => changes.named.push(("add", key.name().to_owned())),
                Some(old) if old.digest != key.digest => {
                    changes.named.push(("replace", key.name().to_owned()));
                }
                Some(old) if old.settings != key.settings => {
                    changes.named.push(("change", key.name().to_owned()));
                }
                _ => {}
            }
            let is_same = |old: &&(KeyNumber, Rc<AccessKey>)| {
                old.1.digest == key.digest && old.1.is_named == key.is_named && old.1.name() == key.name()
            };
            let number = match old.iter().find(is_same) {
                Some((number, _)) => *number,
                None => {
                    table.next = table.next.saturating_add(1);
                    KeyNumber(table.next)
                }
            };
            table.keys.push((number, Rc::new(key)));
        }
        let stays = |old: &AccessKey| table.keys.iter().any(|(_, key)| key.name() == old.name());
        let gone = old.iter().map(|(_, key)| key).filter(|key| key.is_named && !stays(key));
        changes.named.extend(gone.map(|key| ("remove", key.name().to_owned())));
        let plain = |keys: &[(KeyNumber, Rc<AccessKey>)]| -> Vec<KeyDigest> {
            keys.iter().map(|(_, key)| key).filter(|key| !key.is_named).map(|key| key.digest).collect()
        };
        changes.plain = plain(&old) != plain(&table.keys);
        self.0.replaced.send_replace(());
        changes
    }

    /// Changes with each replacement of the keys.
    pub(super) fn replaced(&self) -> watch::Receiver<()> {
        self.0.replaced.subscribe()
    }

    /// True if every request is let in.
    pub fn is_empty(&self) -> bool {
        self.0.table.borrow().keys.is_empty()
    }

    pub(super) fn get(&self, number: KeyNumber) -> Option<Rc<AccessKey>> {
        self.key(number).filter(|key| !key.is_expired())
    }

    fn key(&self, number: KeyNumber) -> Option<Rc<AccessKey>> {
        let table = self.0.table.borrow();
        let found = table.keys.iter().find(|(of, _)| *of == number);
        found.map(|(_, key)| Rc::clone(key))
    }

    /// Finds the key of a request; `shown` is that of the request before on its connection.
    pub(crate) fn check(&self, headers: &HeaderMap, shown: &ShownKey) -> KeyCheck {
        if self.is_empty() {
            return KeyCheck::Open;
        }
        let Some(line) = key_line(headers) else { return KeyCheck::Unknown };
        let mut shown = shown.0.borrow_mut();
        let again = shown.as_ref().filter(|(before, ..)| before[..].ct_eq(line).into());
        let same = again.and_then(|(_, number)| Some((*number, self.key(*number)?)));
        let known = same.or_else(|| presented(headers).and_then(|key| self.find(&digest_of(&key))));
        match known {
            None => {
                *shown = None;
                KeyCheck::Unknown
            }
            Some((_, key)) if key.is_expired() => KeyCheck::Expired,
            Some((number, key)) => {
                if again.is_none() {
                    *shown = Some((line.to_owned(), number));
                }
                KeyCheck::Key(number, key)
            }
        }
    }

    fn find(&self, digest: &KeyDigest) -> Option<(KeyNumber, Rc<AccessKey>)> {
        let table = self.0.table.borrow();
        // Every key is compared, so that the time does not reveal which one fits.
        table.keys.iter().fold(None, |found, (number, key)| {
            if bool::from(key.digest.ct_eq(digest)) { Some((*number, Rc::clone(key))) } else { found }
        })
    }

    /// Writes what the keys with names have used.
    pub fn write(&self, page: &mut Exposition) {
        type KeyValue = fn(&AccessKey) -> u64;
        let families: [(&str, &str, KeyValue); 3] = [
            ("plimsoll_key_requests_total", "Requests to models with an API key", |key| {
                key.usage.requests.get()
            }),
            ("plimsoll_key_tokens_total", "Tokens of prompts and answers of an API key", |key| {
                key.usage.tokens.get()
            }),
            ("plimsoll_key_refused_total", "Requests refused by the limits of an API key", |key| {
                key.usage.refused.get()
            }),
        ];
        let table = self.0.table.borrow();
        let keys = || table.keys.iter().map(|(_, key)| key).filter(|key| key.is_named);
        for (name, help, value) in families.iter().filter(|_| keys().next().is_some()) {
            page.family(name, MetricKind::Counter, help);
            for key in keys() {
                page.sample(name, &[("key", key.name())], value(key));
            }
        }
    }
}

/// Differences between the keys of two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Change of each named key.
    pub named: Vec<(&'static str, String)>,
    /// Keys without names differ.
    pub plain: bool,
}

/// Requests that were refused for want of a valid API key.
#[derive(Debug, Default)]
pub(crate) struct WrongKeys {
    count: Cell<u64>,
    /// Time of the last log line, and its count.
    reported: Cell<Option<(Instant, u64)>>,
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
        let reported = match self.reported.get() {
            Some((at, _)) if now.saturating_duration_since(at) < APART => return None,
            reported => reported.map_or(0, |(_, reported)| reported),
        };
        self.reported.set(Some((now, count)));
        Some(count - reported)
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let name = "plimsoll_unauthorized_total";
        page.family(name, MetricKind::Counter, "Requests refused because they had no valid API key");
        page.sample(name, &[], self.count.get());
    }
}

pub(super) fn wrong_key() -> HttpProblem {
    let message = "the request contains no valid API key";
    HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
}

pub(super) fn expired_key() -> HttpProblem {
    HttpProblem::new(StatusCode::UNAUTHORIZED, "expired_api_key", "the API key of the request has expired")
}

/// The header line that holds the key.
fn key_line(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(AUTHORIZATION).or_else(|| headers.get(&X_API_KEY)).map(HeaderValue::as_bytes)
}

/// True if a request shows this very key.
pub fn shows(headers: &HeaderMap, key: &str) -> bool {
    presented(headers).is_some_and(|shown| digest_of(&shown).ct_eq(&digest_of(key.as_bytes())).into())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(keys: &[&str]) -> Vec<ConfiguredKey> {
        let key = |text: &&str| ConfiguredKey::unlimited(String::new(), KeySecret::Text((*text).to_owned()));
        keys.iter().map(key).collect()
    }

    fn header(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    fn admits(name: &'static str, value: &str) -> bool {
        let keys = ApiKeys::new(plain(&["alpha", "beta-key"]));
        let (headers, shown) = (header(name, value), ShownKey::default());
        let first = matches!(keys.check(&headers, &shown), KeyCheck::Key(..));
        // The second request of the connection is not checked anew.
        assert_eq!(matches!(keys.check(&headers, &shown), KeyCheck::Key(..)), first);
        first
    }

    #[test]
    fn a_connection_is_bound_to_no_key_and_to_no_table_of_keys() {
        let keys = ApiKeys::new(plain(&["alpha"]));
        let shown = ShownKey::default();
        let check = |value: &str| keys.check(&header("x-api-key", value), &shown);
        let KeyCheck::Key(number, _) = check("alpha") else { panic!() };
        assert!(keys.get(number).is_some());
        assert!(matches!(check("beta"), KeyCheck::Unknown), "another client may use the connection");
        assert!(matches!(check("alpha"), KeyCheck::Key(..)));
        assert!(keys.replace(plain(&["beta"])).plain);
        assert!(matches!(check("alpha"), KeyCheck::Unknown), "a reload has revoked it");
        assert!(keys.get(number).is_none(), "also of a request that is under way");
        assert!(matches!(check("beta"), KeyCheck::Key(..)));
    }

    #[test]
    fn a_key_that_a_reload_leaves_is_the_same_for_a_request_under_way_and_a_removed_one_is_not() {
        let keys = ApiKeys::new(plain(&["alpha", "beta"]));
        let shown = ShownKey::default();
        let number = |value: &str| match keys.check(&header("x-api-key", value), &ShownKey::default()) {
            KeyCheck::Key(number, _) => number,
            other => panic!("{other:?}"),
        };
        let (alpha, beta) = (number("alpha"), number("beta"));
        assert!(matches!(keys.check(&header("x-api-key", "beta"), &shown), KeyCheck::Key(..)));
        keys.replace(plain(&["gamma", "alpha"]));
        assert!(keys.get(alpha).is_some() && keys.get(beta).is_none());
        assert_eq!(number("alpha"), alpha);
        assert!(matches!(keys.check(&header("x-api-key", "beta"), &shown), KeyCheck::Unknown));
        // A number is not used again.
        assert!(number("gamma") != alpha && number("gamma") != beta);
    }

    #[test]
    fn a_reload_reports_which_keys_have_changed_and_keeps_what_they_have_used() {
        let key = |name: &str, text: &str| ConfiguredKey {
            requests_per_minute: std::num::NonZeroU32::new(1),
            ..ConfiguredKey::unlimited(name.to_owned(), KeySecret::Text(text.to_owned()))
        };
        let keys = ApiKeys::new(vec![key("a", "1"), key("b", "2"), key("c", "3")]);
        let of = |text: &str| match keys.check(&header("x-api-key", text), &ShownKey::default()) {
            KeyCheck::Key(_, key) => key,
            other => panic!("{other:?}"),
        };
        drop(of("1").enter(0).unwrap());
        let changes = keys.replace(vec![key("a", "1"), key("b", "new"), key("d", "4")]);
        let expected =
            [("replace", "b"), ("add", "d"), ("remove", "c")].map(|(act, name)| (act, name.to_owned()));
        assert_eq!(changes, KeyChanges { named: expected.into(), plain: false });
        assert_eq!(of("1").enter(0).unwrap_err().status, http::StatusCode::TOO_MANY_REQUESTS);
        assert!(of("new").enter(0).is_ok());
        let other = ConfiguredKey { models: Some(vec!["m".to_owned()]), ..key("b", "new") };
        let changes = keys.replace(vec![key("a", "1"), other, key("d", "4")]);
        assert_eq!(changes.named, [("change", "b".to_owned())], "another setting, and the same key");
        assert!(!format!("{keys:?}").contains("new"));
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
        let keys = ApiKeys::new(plain(&["alpha"]));
        assert!(matches!(keys.check(&HeaderMap::new(), &ShownKey::default()), KeyCheck::Unknown));
    }

    #[test]
    fn without_keys_everybody_is_let_in_and_an_empty_key_is_no_key() {
        let open = ApiKeys::new(Vec::new());
        assert!(matches!(open.check(&HeaderMap::new(), &ShownKey::default()), KeyCheck::Open));
        assert!(ApiKeys::new(plain(&[""])).is_empty(), "it protects nothing");
        assert!(!ApiKeys::new(plain(&["alpha"])).is_empty());
    }
}
