//! Sends changes of the fleet's records to other hosts.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use plimsoll_etcd::StoreHeader;
use plimsoll_fleet::{DEEPEST, NewsLine, StoreChange};
use tokio::time::sleep;

use super::FleetMember;
use plimsoll_route::{FeedListener, HttpProblem};
use plimsoll_task::spawn_local;

/// Readers of one host's news: sixteen are meant to ask, and more where others are gone.
const MOST_LISTENERS: usize = 64;
/// Time for which all records are kept in the form of news, for hosts that begin together.
const KEPT: Duration = Duration::from_secs(5);
/// A host that is refused asks another one.
const AGAIN: Duration = Duration::from_secs(1);

impl FleetMember {
    /// Passes changes on that this host has taken.
    pub(super) fn notify_changes(&self, changes: &[StoreChange]) {
        for key in NewsLine::unreadable(self.store.keys(), changes) {
            tracing::error!("fleet: the value of '{key}' in the store is not UTF-8, so no host can read it");
        }
        if self.reported.from.get().is_some() {
            NewsLine::changes(self.store.keys(), changes).for_each(|line| self.reported.publish(&line));
        }
    }

    /// Reports that the store has answered a moment ago.
    pub(super) fn notify_beat(&self, revision: u64) {
        if let Some((_, depth)) = self.reported.from.get() {
            self.reported.publish(&NewsLine::Beat { revision, depth });
        }
    }

    /// All records and each change from now on, for another host.
    pub fn news(&self) -> Result<FeedListener, HttpProblem> {
        let refused = |code, text: &str| {
            HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code, text).retry_after(AGAIN)
        };
        let Some((header, depth)) = self.reported.from.get().filter(|(_, depth)| *depth < DEEPEST) else {
            return Err(refused(
                "no_news",
                "this host cannot pass on the fleet's records: it has none yet, \
                or got them through too many hosts",
            ));
        };
        if self.reported.feed.borrow().listeners() >= MOST_LISTENERS {
            return Err(refused(
                "too_many_listeners",
                "this host already sends the fleet's records to as many hosts as it may",
            ));
        }
        let first = self.all_records(header, depth);
        Ok(self.reported.feed.borrow().listen(Some(first)))
    }

    fn all_records(&self, header: StoreHeader, depth: u32) -> Bytes {
        if let Some(kept) = self.reported.kept.borrow().as_ref() {
            return Bytes::copy_from_slice(kept);
        }
        let node = self.node.borrow();
        let all = NewsLine::all(self.store.keys(), &node.view, header.cluster_id, header.raft_term, depth);
        let first = Bytes::copy_from_slice(&all);
        self.reported.kept.replace(Some(all));
        let me = self.me();
        spawn_local(async move {
            sleep(KEPT).await;
            me.inspect(|me| drop(me.reported.kept.take()));
        });
        first
    }
}

/// Takes part in the news of one source; dropping it ends the forwarding.
pub(super) struct Telling(pub(super) Rc<FleetMember>);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.reported.end();
    }
}
