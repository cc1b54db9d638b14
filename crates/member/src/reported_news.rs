//! Sends the fleet's records, then each change, to hosts that do not read the store themselves.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use plimsoll_etcd::StoreHeader;
use plimsoll_fleet::NewsLine;

use plimsoll_route::Feed;

/// Where this host has its news from, and who listens to it.
#[derive(Default)]
pub(super) struct ReportedNews {
    pub(super) feed: RefCell<Feed>,
    /// The store as it was read, and the hosts between it and this one; `None` while there are no news.
    pub(super) from: Cell<Option<(StoreHeader, u32)>>,
    /// All records, and the changes since.
    pub(super) kept: RefCell<Option<Vec<u8>>>,
}

impl ReportedNews {
    /// News come in: other hosts may listen from now on.
    pub(super) fn begin(&self, header: StoreHeader, depth: u32) {
        self.from.set(Some((header, depth)));
    }

    /// News come no more: listeners look for another source.
    pub(super) fn end(&self) {
        self.from.set(None);
        self.kept.take();
        self.feed.replace(Feed::default());
    }

    pub(super) fn publish(&self, line: &NewsLine) {
        if !self.feed.borrow().is_heard() && self.kept.borrow().is_none() {
            return;
        }
        let line = line.write();
        self.kept.borrow_mut().iter_mut().for_each(|kept| kept.extend_from_slice(&line));
        self.feed.borrow().publish(&Bytes::from(line));
    }
}
