//! Messages of etcd's JSON gateway, in which numbers are strings, and keys and values are base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_fleet::{KeySpace, StoreChange};
use serde::{Deserialize, Deserializer};

/// State of the store when it answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StoreHeader {
    #[serde(deserialize_with = "number")]
    pub cluster_id: u64,
    #[serde(deserialize_with = "number")]
    pub revision: u64,
    #[serde(deserialize_with = "number")]
    pub raft_term: u64,
}

impl StoreHeader {
    /// True if a store that gave `former` was restored since: what counts upwards has gone back.
    pub fn is_before(&self, former: &Self) -> bool {
        self.cluster_id != former.cluster_id
            || self.revision < former.revision
            || self.raft_term < former.raft_term
    }
}

/// Answer to the renewal of a lease; no time is left if the lease has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeepAlive {
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub seconds: u64,
}

/// All fields of the answers that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) header: StoreHeader,
    pub(crate) kvs: Vec<Pair>,
    pub(crate) more: bool,
    #[serde(deserialize_with = "number")]
    pub(crate) count: u64,
    pub(crate) succeeded: bool,
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(crate) lease: u64,
    pub(crate) result: Option<KeepAlive>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pair {
    #[serde(deserialize_with = "bytes")]
    pub(crate) key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    pub(crate) mod_revision: u64,
}

impl Pair {
    /// The record as a change; `None` for a key outside of the fleet.
    pub(crate) fn change(&self, keys: &KeySpace) -> Option<StoreChange> {
        let key = keys.read(str::from_utf8(&self.key).ok()?)?;
        Some(StoreChange { key, revision: self.mod_revision, value: Some(self.value.clone()) })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchLine {
    pub(crate) result: Option<WatchResult>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchResult {
    pub(crate) canceled: bool,
    #[serde(deserialize_with = "number")]
    pub(crate) compact_revision: u64,
    pub(crate) events: Vec<WatchEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    kv: Pair,
}

impl WatchEvent {
    pub(crate) fn change(&self, keys: &KeySpace) -> Option<StoreChange> {
        let change = self.kv.change(keys)?;
        // A put is named by no type at all.
        let value = change.value.filter(|_| self.kind != "DELETE");
        Some(StoreChange { value, ..change })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberText {
    Text(String),
    Number(u64),
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match NumberText::deserialize(from)? {
        NumberText::Text(text) => text.parse().map_err(serde::de::Error::custom),
        NumberText::Number(number) => Ok(number),
    }
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(from)?).map_err(serde::de::Error::custom)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The first key behind all that begin with `prefix`, which ends in a slash.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_as_texts_and_what_is_missing_is_zero() {
        let answer: Answer = serde_json::from_str(
            r#"{"header":{"cluster_id":"14841639068965178418","revision":"12"},"kvs":[{"key":"YQ==","mod_revision":7}],"new":[1]}"#,
        )
        .unwrap();
        assert_eq!((answer.header.revision, answer.header.raft_term, answer.succeeded), (12, 0, false));
        assert_eq!((answer.kvs[0].key.as_slice(), answer.kvs[0].mod_revision), (&b"a"[..], 7));
        for text in
            ["", "7", r#"{"kvs":[{"key":"%"}]}"#, r#"{"header":{"revision":"-1"}}"#, &"[".repeat(1 << 20)]
        {
            let short: String = text.chars().take(60).collect();
            assert!(serde_json::from_str::<Answer>(text).is_err(), "{short}");
        }
    }

    #[test]
    fn a_store_that_counts_backwards_was_restored() {
        let now = StoreHeader { cluster_id: 1, revision: 100, raft_term: 5 };
        assert!(!now.is_before(&now) && !StoreHeader { revision: 101, ..now }.is_before(&now));
        assert!(StoreHeader { revision: 99, ..now }.is_before(&now));
        assert!(StoreHeader { raft_term: 2, revision: 200, ..now }.is_before(&now));
        assert!(StoreHeader { cluster_id: 2, ..now }.is_before(&now));
    }
}
