//! JSON records of the fleet's store: hosts, the models that they can serve, loaded models, copies of files,
//! and drains (orders to empty a host).
//!
//! A seat is the record that a model is loaded on a host. A drain is an operator's order to take models off a
//! host.
//!
//! Each record states its schema version. Fields that this version does not know are kept. A record of a
//! later schema is read as far as it is known, and never overwritten. No record holds a key, a path or a
//! command line.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The schema that this version writes.
pub const SCHEMA: u32 = 1;
/// Longest record that is read: an offer of a thousand models takes 200 KiB.
const LONGEST: usize = 1 << 20;
/// Most values in the fields that this version does not know.
const MOST_UNKNOWN: usize = 1000;

/// A record with its schema and the fields that this version does not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<T> {
    pub schema: u32,
    #[serde(flatten)]
    pub body: T,
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl<T: Serialize + DeserializeOwned> Record<T> {
    pub fn new(body: T) -> Self {
        Self { schema: SCHEMA, body, unknown: Map::new() }
    }

    /// Reads a value of the store; `None` for anything that is no such record.
    pub fn read(value: &[u8]) -> Option<Self> {
        if value.len() > LONGEST {
            return None;
        }
        let record: Self = serde_json::from_slice(value).ok()?;
        // An unknown value may take sixteen times its text.
        let unknown: usize = record.unknown.values().map(values_in).sum();
        (unknown <= MOST_UNKNOWN).then_some(record)
    }

    pub fn write(&self) -> Vec<u8> {
        // Maps with string keys and plain fields: nothing in it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// True if this version may write over it.
    pub fn is_known(&self) -> bool {
        self.schema <= SCHEMA
    }
}

fn values_in(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values_in).sum(),
        Value::Object(fields) => fields.values().map(values_in).sum::<usize>(),
        _ => 0,
    }
}

/// Registration of a host. A claim of a seat on the host compares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// One life of the host. It changes with each start, and when the store has gone back in time.
    pub incarnation: String,
    /// The machine, so that a second host of the same name is distinguished from a restart.
    pub machine: String,
    /// `ADDRESS:PORT` at which other hosts reach it.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Memory for models, over all its cards.
    pub capacity: Bytes,
    /// Memory of models that the host holds and that have no seat.
    pub unseated: Bytes,
    /// Digest of its offers.
    pub offers: String,
}

/// Models that a host can serve, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferList {
    pub models: BTreeMap<String, ModelOffer>,
}

/// One model as a host can serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOffer {
    /// The file; `None` for a command of the user's own, whose files are not known.
    pub file: Option<FileDigest>,
    /// Memory that the model takes there.
    pub need: Bytes,
}

/// Identity of a model file: a digest of its header, and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    pub header: String,
    pub size: Bytes,
}

/// Models that a host has loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    pub runs: BTreeMap<String, RunState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    pub phase: RunPhase,
    /// True if no request uses it.
    pub idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPhase {
    Loading,
    Ready,
}

/// Models whose files a host lacks and may copy from another host, and the copy in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCopies {
    pub lacks: BTreeSet<String>,
    pub running: Option<RunningCopy>,
}

/// Copy of a model's files from one host to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCopy {
    pub model: String,
    pub from: String,
    /// In tens, so that the store is seldom written to.
    pub percent: u8,
}

/// The host of a model. The revision of its transaction is its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub host: String,
    pub incarnation: String,
    pub need: Bytes,
    /// Tells the writer's own transaction from another one when its answer was lost.
    pub nonce: String,
    pub cause: SeatCause,
    /// Tokens of idle models of the host that leave for this one.
    pub evicts: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeatCause {
    /// A request wanted the model.
    Wanted,
    /// An operator, or a drain, moved it.
    Moved,
}

/// Record whose only content is its revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {}

/// An operator's order about a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// True if its models are to leave as well.
    pub leave: bool,
}

/// A certificate that counts no more. The key has its serial number; nothing of the certificate itself is
/// told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Seconds since 1970 after which it would have ended by itself.
    pub expires: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat() -> Seat {
        let need = Bytes::mib(5);
        let (host, incarnation, nonce) = ("h".to_owned(), "i".to_owned(), "n".to_owned());
        Seat { host, incarnation, need, nonce, cause: SeatCause::Wanted, evicts: vec![3] }
    }

    #[test]
    fn a_field_of_a_later_version_is_kept_and_its_record_is_not_written_over() {
        let mut later: Value = serde_json::from_slice(&Record::new(seat()).write()).unwrap();
        later["schema"] = 2.into();
        later["prefers"] = "h2".into();
        let read = Record::<Seat>::read(later.to_string().as_bytes()).unwrap();
        assert_eq!((read.body.clone(), read.is_known()), (seat(), false));
        assert_eq!(serde_json::from_slice::<Value>(&read.write()).unwrap(), later);
    }

    #[test]
    fn a_record_names_no_command_and_no_key() {
        let text = String::from_utf8(Record::new(seat()).write()).unwrap();
        assert_eq!(
            text,
            r#"{"schema":1,"host":"h","incarnation":"i","need":5242880,"nonce":"n","cause":"wanted","evicts":[3]}"#
        );
    }

    #[test]
    fn malformed_records_read_as_none() {
        let long = vec![b' '; LONGEST + 1];
        for value in [&b""[..], b"{}", b"[]", b"{\"schema\":-1}", b"\xff", &long] {
            assert_eq!(Record::<Seat>::read(value), None);
            assert_eq!(Record::<HostRecord>::read(value), None);
        }
        let unknown = |count: usize| format!(r#"{{"schema":1,"leave":true,"x":[{}0]}}"#, "0,".repeat(count));
        assert!(Record::<Drain>::read(unknown(900).as_bytes()).is_some());
        assert_eq!(
            Record::<Drain>::read(unknown(200_000).as_bytes()),
            None,
            "its values take many times its text"
        );
        let deep = "[".repeat(100_000);
        assert_eq!(Record::<OfferList>::read(deep.as_bytes()), None);
    }
}
