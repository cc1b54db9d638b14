//! Watches the fleet's keys in etcd: reads a stream of JSON lines, each with the changes of one or more store
//! revisions.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use plimsoll_fleet::{KeySpace, StoreChange};

use super::gateway::{StoreError, Stream};
use super::message::WatchLine;

/// Longest line: etcd sends at most 1.5 MB in one message, which base64 and JSON make longer.
const LONGEST: usize = 8 << 20;

/// Changes as they come. An error ends the watch.
#[derive(Debug)]
pub struct StoreWatch {
    stream: Stream,
    body: Incoming,
    keys: KeySpace,
    read: Vec<u8>,
    /// Bytes of `read` without the end of a line.
    searched: usize,
}

impl StoreWatch {
    pub(crate) fn new(stream: Stream, body: Incoming, keys: KeySpace) -> Self {
        Self { stream, body, keys, read: Vec::new(), searched: 0 }
    }

    /// Waits for the next changes. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<StoreChange>, StoreError> {
        loop {
            let news = self.read.get(self.searched..).unwrap_or_default();
            if let Some(end) = news.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=self.searched + end).collect();
                self.searched = 0;
                let changes = self.changes(&line)?;
                if !changes.is_empty() {
                    return Ok(changes);
                }
                continue;
            }
            self.searched = self.read.len();
            if self.read.len() > LONGEST {
                return Err(self.unreadable("a line of its answer is too long"));
            }
            let frame = self
                .body
                .frame()
                .await
                .ok_or_else(|| self.unreadable("the stream of the store's changes has ended"))?;
            let frame = frame.map_err(|error| self.unreadable(&error.to_string()))?;
            self.read.extend(frame.data_ref().into_iter().flatten());
        }
    }

    fn changes(&self, line: &[u8]) -> Result<Vec<StoreChange>, StoreError> {
        let line: WatchLine =
            serde_json::from_slice(line).map_err(|error| self.unreadable(&error.to_string()))?;
        // An `error` instead of a result: the member has no leader, for one.
        let result = line
            .result
            .ok_or_else(|| self.unreadable("the etcd member ended the stream of the store's changes"))?;
        if result.compact_revision > 0 {
            return Err(StoreError::Compacted { revision: result.compact_revision });
        }
        if result.canceled {
            return Err(self.unreadable("etcd has cancelled the stream of the store's changes"));
        }
        Ok(result.events.iter().filter_map(|event| event.change(&self.keys)).collect())
    }

    fn unreadable(&self, why: &str) -> StoreError {
        StoreError::Unreadable { member: self.stream.member.clone(), why: why.to_owned() }
    }
}
