//! Receives the fleet's records and their changes: from the store or, in a large fleet, from another host.

use std::rc::Rc;
use std::time::Duration;

use plimsoll_etcd::{StoreError, StoreHeader};
use plimsoll_fleet::{FleetEvent, FleetView, NewsSource, StoreChange};
use tokio::time::{Instant, sleep, timeout};

use super::FleetMember;
use super::follow_host::NewsError;
use super::notify::Telling;

/// A watch that says nothing for so long is asked whether the store still answers.
const QUIET: Duration = Duration::from_secs(5);
/// Pause between two sources.
const PAUSE: Duration = Duration::from_millis(500);
/// Time after which a host that watches the store checks for another source: soon, because a starting fleet
/// grows, and late after other hosts have failed it.
const SOON: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(60);
/// As many failures as make the store the source.
const STORE_ITSELF: u32 = u32::MAX;

impl FleetMember {
    /// Takes the news of the fleet, from one source after the other, until the certificate of this host ends.
    pub(super) async fn follow_news(self: Rc<Self>) {
        let (mut seen, mut is_silent, mut failed) = (StoreHeader::default(), false, 0);
        while !self.is_out() {
            let source = self.source(failed).await;
            match &source {
                NewsSource::Store => {
                    let stays = if failed == 0 { SOON } else { LATE };
                    self.follow_store(&mut seen, &mut is_silent, stays).await;
                    failed = 0;
                }
                NewsSource::Host { name, address } => {
                    let ended = self.follow_host(name, address, &mut seen).await.err();
                    if let Some(ended) = &ended {
                        tracing::debug!("fleet: records are no longer read from host '{name}': {ended}");
                    }
                    failed = match (ended, self.is_following.replace(false)) {
                        (Some(NewsError::Doubted | NewsError::TooMuch), _) => STORE_ITSELF,
                        // Another one is drawn.
                        (Some(NewsError::Tenure), _) => 1,
                        (_, true) => 0,
                        (_, false) => failed.saturating_add(1),
                    };
                }
            }
            if self.is_out() {
                return;
            }
            let pause = self.pause_before(failed);
            sleep(pause).await;
        }
    }

    fn pause_before(&self, failed: u32) -> Duration {
        let mut node = self.node.borrow_mut();
        match node.source(self.now(), failed) {
            NewsSource::Store => node.share_of_reading(PAUSE),
            NewsSource::Host { .. } => node.share(PAUSE),
        }
    }

    /// The source after so many attempts with other hosts. A daemon that has just been started reads which
    /// hosts there are.
    async fn source(&self, failed: u32) -> NewsSource {
        if self.node.borrow().view.hosts.is_empty()
            && failed == 0
            && let Ok((header, hosts)) = self.store.hosts().await
        {
            let hosts = FleetView::at(header.revision, hosts);
            return self.node.borrow_mut().source_among(&hosts, failed);
        }
        self.node.borrow_mut().source(self.now(), failed)
    }

    /// Reads the store and then its changes, until the watch ends.
    ///
    /// DECISION: all is read anew after each end of a watch, and no watch goes on where another ended. A
    /// store that was restored from a backup may have passed the revision of that end again, with another
    /// history.
    async fn follow_store(self: &Rc<Self>, seen: &mut StoreHeader, is_silent: &mut bool, stays: Duration) {
        let applied = self.node.borrow().applied();
        match self.store.read().await {
            Ok((header, records)) => {
                if std::mem::replace(is_silent, false) {
                    tracing::info!("the fleet's store answers again");
                }
                if is_restored(&header, seen, applied) {
                    self.store_went_back();
                }
                *seen = header;
                self.submit(FleetEvent::NewsFrom(NewsSource::Store));
                self.submit(FleetEvent::Read { revision: header.revision, records });
                self.hear_revocations().await;
                if self.is_out() {
                    return;
                }
                self.reported.begin(header, 0);
                let _telling = Telling(Rc::clone(self));
                if let Err(error) = self.watch(seen, stays).await {
                    tracing::debug!("the fleet's store no longer reports its changes: {error}");
                }
            }
            Err(error) => {
                if !std::mem::replace(is_silent, true) {
                    tracing::warn!("the fleet's store does not answer: {error}; loaded models are served");
                }
                self.submit(FleetEvent::StoreSilent { cause: error.to_string() });
            }
        }
    }

    pub(super) fn store_went_back(&self) {
        self.submit(FleetEvent::StoreWentBack);
        self.begin_life();
    }

    /// Takes a new lease for a new life of this host.
    pub(super) fn begin_life(&self) {
        tracing::warn!(
            "the fleet's store was restored from a backup; this host registers again, and its \
            models are assigned anew"
        );
        self.lease.set(0);
        self.lease_given_up.notify_one();
    }

    /// Passes changes of the store on until the watch ends, or another host is the source after a time.
    async fn watch(&self, seen: &mut StoreHeader, stays: Duration) -> Result<(), StoreError> {
        let mut watch = self.store.watch(seen.revision + 1).await?;
        let mut looked = Instant::now();
        let mut was_behind = false;
        loop {
            match timeout(QUIET, watch.next()).await {
                Ok(changes) => {
                    was_behind = false;
                    self.take(changes?, seen).await;
                    if self.is_out() {
                        return Ok(());
                    }
                }
                Err(_) => {
                    let header = self.store.header().await?;
                    let is_behind = header.revision > seen.revision && self.is_behind(seen.revision).await?;
                    // The second: the watch has missed something, or its member has lost the others.
                    if header.is_before(seen) || (is_behind && was_behind) {
                        return Ok(());
                    }
                    (seen.raft_term, was_behind) = (header.raft_term, is_behind);
                    self.reported.begin(*seen, 0);
                    self.notify_beat(seen.revision);
                }
            }
            if looked.elapsed() > stays {
                looked = Instant::now();
                if self.node.borrow_mut().source(self.now(), 0) != NewsSource::Store {
                    return Ok(());
                }
            }
        }
    }

    /// True if the store has other records of the fleet than this host knows. Its revision alone does not
    /// prove it, because another fleet may write to the same store.
    async fn is_behind(&self, known: u64) -> Result<bool, StoreError> {
        let latest = self.store.latest().await?;
        Ok(latest.revision > known || latest.records != self.node.borrow().view.count())
    }

    /// Takes changes, and passes them on.
    async fn take(&self, changes: Vec<StoreChange>, seen: &mut StoreHeader) {
        let last = changes.iter().map(|change| change.revision).max().unwrap_or_default();
        seen.revision = seen.revision.max(last);
        self.notify_changes(&changes);
        self.submit(FleetEvent::Changed(changes));
        self.hear_revocations().await;
    }
}

/// True if a store that answered with `seen`, and has applied a transaction at `applied`, was restored since.
pub(super) fn is_restored(now: &StoreHeader, seen: &StoreHeader, applied: u64) -> bool {
    (*seen != StoreHeader::default() && now.is_before(seen)) || now.revision < applied
}
