//! etcd client for the records of a fleet: reads, transactions, leases and watches through etcd's JSON
//! gateway.
//!
//! DECISION: the client uses the gateway (HTTP/1.1 and JSON) instead of gRPC. The daemon speaks both already.
//! A gRPC client would add 44 crates and need `protoc` at build time.
#![forbid(unsafe_code)]

mod access;
mod address;
mod connection;
mod gateway;
mod message;
mod user;
mod watch;

use std::time::Duration;

use plimsoll_fleet::{
    FleetKey, KeySpace, NumberedSeats, Record, StoreChange, Transaction, TransactionOutcome, Versioned,
};
use serde_json::{Value, json};

pub use access::{AccessError, StoreAccess};
pub use address::{StoreAddress, StoreAddressError};
use gateway::Gateway;
pub use gateway::StoreError;
use message::{Answer, base64, end_of_prefix};
pub use message::{KeepAlive, StoreHeader};
pub use watch::StoreWatch;

/// Records in one answer; the store answers others while a large reading goes on.
const PAGE: usize = 500;

/// etcd's words for a database that has reached its quota: it refuses the write before it is proposed, or
/// when it is applied, and both change nothing. Source: ErrGRPCNoSpace in etcd's
/// `api/v3rpc/rpctypes/error.go`.
const NO_SPACE: &str = "database space exceeded";

/// The record of a fleet that was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestRecord {
    pub revision: u64,
    /// Records of the fleet at that time.
    pub records: usize,
}

/// Client of one store, for the keys of one fleet.
#[derive(Debug)]
pub struct Etcd {
    gateway: Gateway,
    keys: KeySpace,
}

impl Etcd {
    /// Reads the files that `access` names, and connects to no member yet.
    pub fn new(address: &StoreAddress, keys: KeySpace, access: &StoreAccess) -> Result<Self, AccessError> {
        Ok(Self { gateway: Gateway::new(address, access)?, keys })
    }

    /// Asks another member first than the one that the address names first.
    ///
    /// DECISION: each daemon draws one. Watches cost the member that tells them, and would all lie with the
    /// first.
    #[must_use]
    pub fn beginning_at(self, member: usize) -> Self {
        Self { gateway: self.gateway.beginning_at(member), ..self }
    }

    pub fn keys(&self) -> &KeySpace {
        &self.keys
    }

    /// Reads all records at one revision.
    pub async fn read(&self) -> Result<(StoreHeader, Vec<StoreChange>), StoreError> {
        self.read_below("").await
    }

    /// Reads the registrations of the hosts alone.
    pub async fn hosts(&self) -> Result<(StoreHeader, Vec<StoreChange>), StoreError> {
        self.read_below("hosts/").await
    }

    /// Reads which certificates are revoked.
    pub async fn revoked(&self) -> Result<Vec<StoreChange>, StoreError> {
        Ok(self.read_below("revoked/").await?.1)
    }

    async fn read_below(&self, kind: &str) -> Result<(StoreHeader, Vec<StoreChange>), StoreError> {
        let prefix = format!("{}{kind}", self.keys.prefix()).into_bytes();
        let end = base64(&end_of_prefix(&prefix));
        let (mut from, mut first, mut records) = (prefix, None, Vec::new());
        loop {
            let revision = first.map_or(0, |header: StoreHeader| header.revision);
            let range = json!({ "key": base64(&from), "range_end": end, "limit": PAGE.to_string(),
                "revision": revision.to_string() });
            let answer = self.gateway.ask("/v3/kv/range", &range).await?;
            let header = *first.get_or_insert(answer.header);
            let Some(last) = answer.kvs.last().filter(|_| answer.more) else {
                records.extend(answer.kvs.iter().filter_map(|pair| pair.change(&self.keys)));
                return Ok((header, records));
            };
            // The next key in the order of bytes.
            from = last.key.iter().copied().chain([0]).collect();
            records.extend(answer.kvs.iter().filter_map(|pair| pair.change(&self.keys)));
        }
    }

    /// The revision that a quorum has.
    pub async fn header(&self) -> Result<StoreHeader, StoreError> {
        let range = json!({ "key": base64(self.keys.prefix().as_bytes()), "count_only": true });
        Ok(self.gateway.ask("/v3/kv/range", &range).await?.header)
    }

    /// The fleet's own records: how many there are, and when one was written last.
    pub async fn latest(&self) -> Result<LatestRecord, StoreError> {
        let prefix = self.keys.prefix().as_bytes();
        let range = json!({ "key": base64(prefix), "range_end": base64(&end_of_prefix(prefix)), "limit": "1",
            "sort_order": "DESCEND", "sort_target": "MOD", "keys_only": true });
        let answer = self.gateway.ask("/v3/kv/range", &range).await?;
        let revision = answer.kvs.first().map_or(0, |pair| pair.mod_revision);
        Ok(LatestRecord { revision, records: usize::try_from(answer.count).unwrap_or(usize::MAX) })
    }

    /// The seats of a model that a quorum has.
    pub async fn seats(&self, model: &str) -> Result<NumberedSeats, StoreError> {
        let first = self.keys.text(&FleetKey::Seat { model: model.to_owned(), number: 0 });
        // Digits end before ':'; a model whose name goes on with a slash begins with another byte there, or
        // is distinguished.
        let end = format!("{}:", first.trim_end_matches('0'));
        let range = json!({ "key": base64(first.as_bytes()), "range_end": base64(end.as_bytes()),
            "limit": PAGE.to_string() });
        let answer = self.gateway.ask("/v3/kv/range", &range).await?;
        let seats = answer.kvs.iter().filter_map(|pair| {
            let FleetKey::Seat { model: name, number } = self.keys.read(str::from_utf8(&pair.key).ok()?)?
            else {
                return None;
            };
            let record = Record::read(&pair.value).filter(|_| name == model)?;
            Some((number, Versioned { revision: pair.mod_revision, record }))
        });
        Ok(seats.collect())
    }

    /// Carries out a transaction. Once it was sent, no other member is asked: it may be applied without an
    /// answer.
    pub async fn transact(&self, transaction: &Transaction, lease: u64) -> TransactionOutcome {
        let compare = transaction.compares.iter().map(|compare| {
            json!({ "key": self.key(&compare.key), "target": "MOD", "result": "EQUAL",
                "mod_revision": compare.revision.to_string() })
        });
        let success = transaction.writes.iter().map(|write| match &write.value {
            Some(value) => {
                let lease = if write.leased { lease } else { 0 };
                json!({ "request_put": { "key": self.key(&write.key), "value": base64(value),
                    "lease": lease.to_string() } })
            }
            None => json!({ "request_delete_range": { "key": self.key(&write.key) } }),
        });
        let body = json!({ "compare": compare.collect::<Vec<_>>(), "success": success.collect::<Vec<_>>() });
        match self.gateway.ask_once("/v3/kv/txn", &body).await {
            Ok(Answer { succeeded: true, header, .. }) => TransactionOutcome::Applied(header.revision),
            Ok(_) => TransactionOutcome::Conflict,
            Err(StoreError::Refused { message, .. }) if message.contains(NO_SPACE) => {
                TransactionOutcome::Full
            }
            Err(_) => TransactionOutcome::Unknown,
        }
    }

    pub async fn grant(&self, time: Duration) -> Result<u64, StoreError> {
        let body = json!({ "TTL": time.as_secs().to_string(), "ID": "0" });
        Ok(self.gateway.ask("/v3/lease/grant", &body).await?.lease)
    }

    pub async fn keep_alive(&self, lease: u64) -> Result<KeepAlive, StoreError> {
        let answer = self.gateway.ask("/v3/lease/keepalive", &lease_body(lease)).await?;
        Ok(answer.result.unwrap_or_default())
    }

    pub async fn revoke(&self, lease: u64) -> Result<(), StoreError> {
        self.gateway.ask("/v3/lease/revoke", &lease_body(lease)).await.map(drop)
    }

    /// Changes from `revision` on.
    pub async fn watch(&self, revision: u64) -> Result<StoreWatch, StoreError> {
        let prefix = self.keys.prefix().as_bytes();
        let create = json!({ "create_request": { "key": base64(prefix),
            "range_end": base64(&end_of_prefix(prefix)), "start_revision": revision.to_string() } });
        let (stream, answer) = self.gateway.open("/v3/watch", &create).await?;
        Ok(StoreWatch::new(stream, answer.into_body(), self.keys.clone()))
    }

    fn key(&self, key: &FleetKey) -> String {
        base64(self.keys.text(key).as_bytes())
    }
}

fn lease_body(lease: u64) -> Value {
    json!({ "ID": lease.to_string() })
}

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_etcd;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
