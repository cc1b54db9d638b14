//! News of the fleet as they come in: from a watch of the store, or in a large fleet from another host.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode};
use plimsoll_etcd::{StoreError, StoreHeader};
use plimsoll_fleet::{DEEPEST, FleetEvent, FleetView, NewsLine, NewsSource, StoreChange};
use tokio::time::{Instant, sleep, timeout};

use super::FleetMember;
use super::tell::Telling;
use crate::route::{EngineBody, HOP, NEWS, Rope, StreamSource, Upstream, to_engine};

/// A watch that says nothing for so long is asked whether the store still answers.
const QUIET: Duration = Duration::from_secs(5);
/// A host that tells nothing for so long is no source: it tells of the store at least once in that time.
const SILENT: Duration = Duration::from_secs(12);
/// Pause between two sources.
const PAUSE: Duration = Duration::from_millis(500);
/// Time for a connection, and for all records.
const CONNECT: Duration = Duration::from_secs(2);
const WHOLE: Duration = Duration::from_secs(30);
/// Time after which a host that watches the store looks whether another host is its source by now: soon, as a fleet that
/// starts grows, and late where other hosts have just failed it.
const SOON: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(60);
/// Time between two looks at the revoked certificates, on which no other host is believed.
const REVOCATIONS: Duration = Duration::from_secs(60);
/// Longest line, and most bytes of all records: those of 10 000 hosts take 60 MB.
const LONGEST: usize = 64 << 20;
const MOST: usize = 512 << 20;

/// Why another host is no source.
#[derive(Debug, thiserror::Error)]
enum NewsError {
    #[error("it cannot be reached: {0}")]
    Connect(io::Error),
    #[error("it refuses with status {0}")]
    Refused(StatusCode),
    #[error("its answer breaks off: {0}")]
    Broken(hyper::Error),
    #[error("it tells nothing")]
    Silent,
    #[error("it sends what is no news of a fleet")]
    Unreadable,
    #[error("its news come over too many hosts")]
    Deep,
    #[error("its news are older than those that this host has")]
    Late,
    #[error(transparent)]
    Store(#[from] StoreError),
}

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
                    if let Err(ended) = self.follow_host(name, address, &mut seen).await {
                        tracing::debug!("fleet: host '{name}' is no source of news: {ended}");
                    }
                    failed = if self.is_following.replace(false) { 0 } else { failed + 1 };
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
        match node.source(failed) {
            NewsSource::Store => node.share_of_reading(PAUSE),
            NewsSource::Host { .. } => node.share(PAUSE),
        }
    }

    /// The source after so many attempts with other hosts. A daemon that has just been started reads which hosts there are.
    async fn source(&self, failed: u32) -> NewsSource {
        if self.node.borrow().view.hosts.is_empty()
            && failed == 0
            && let Ok((header, hosts)) = self.store.hosts().await
        {
            let hosts = FleetView::at(header.revision, hosts);
            return self.node.borrow_mut().source_among(&hosts, failed);
        }
        self.node.borrow_mut().source(failed)
    }

    /// Reads the store and then its changes, until the watch ends.
    ///
    /// DECISION: all is read anew after each end of a watch, and no watch goes on where another ended. A store that was
    /// restored from a backup may have passed the revision of that end again, with another history.
    async fn follow_store(self: &Rc<Self>, seen: &mut StoreHeader, is_silent: &mut bool, stays: Duration) {
        match self.store.read().await {
            Ok((header, records)) => {
                if std::mem::replace(is_silent, false) {
                    tracing::info!("the fleet's store answers again");
                }
                if *seen != StoreHeader::default() && header.is_before(seen) {
                    self.store_went_back();
                }
                *seen = header;
                self.submit(FleetEvent::Read { revision: header.revision, records });
                self.hear_revocations().await;
                if self.is_out() {
                    return;
                }
                self.told.begin(header, 0);
                let _telling = Telling(Rc::clone(self));
                if let Err(error) = self.watch(seen, stays).await {
                    tracing::debug!("the watch of the fleet's store has ended: {error}");
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

    fn store_went_back(&self) {
        tracing::warn!("the fleet's store has been restored; former seats are worth nothing");
        self.submit(FleetEvent::StoreWentBack);
        self.lease.set(0);
        self.lease_given_up.notify_one();
    }

    /// Passes changes of the store on until the watch ends, or another host is the source after a time.
    async fn watch(&self, seen: &mut StoreHeader, stays: Duration) -> Result<(), StoreError> {
        let mut watch = self.store.watch(seen.revision + 1).await?;
        let mut looked = Instant::now();
        // What a quorum had when the watch was quiet the last time.
        let mut reached = 0;
        loop {
            match timeout(QUIET, watch.next()).await {
                Ok(changes) => {
                    self.take(changes?, seen).await;
                    if self.is_out() {
                        return Ok(());
                    }
                }
                Err(_) => {
                    let header = self.store.header().await?;
                    // The second: the watch has missed something, or its member has lost the others.
                    if header.is_before(seen) || seen.revision < reached {
                        return Ok(());
                    }
                    (seen.raft_term, reached) = (header.raft_term, header.revision);
                    self.told.begin(*seen, 0);
                    self.tell_beat(seen.revision);
                }
            }
            if looked.elapsed() > stays {
                looked = Instant::now();
                if self.node.borrow_mut().source(0) != NewsSource::Store {
                    return Ok(());
                }
            }
        }
    }

    /// Takes changes, and tells them on.
    async fn take(&self, changes: Vec<StoreChange>, seen: &mut StoreHeader) {
        let last = changes.iter().map(|change| change.revision).max().unwrap_or_default();
        seen.revision = seen.revision.max(last);
        self.tell_changes(&changes);
        self.submit(FleetEvent::Changed(changes));
        self.hear_revocations().await;
    }

    /// Takes the news of another host until they end; the error says why they did.
    async fn follow_host(
        self: &Rc<Self>,
        name: &str,
        address: &str,
        seen: &mut StoreHeader,
    ) -> Result<(), NewsError> {
        let mut lines = HostNews::open(&self.peer(name, address)).await?;
        let (header, depth, records) =
            timeout(WHOLE, self.all_of(&mut lines)).await.map_err(|_| NewsError::Silent)??;
        // Only the store itself tells that it was restored, and what another host may have seen of it.
        let now = self.store.header().await?;
        if *seen != StoreHeader::default() && now.is_before(seen) {
            self.store_went_back();
            *seen = StoreHeader::default();
        }
        if header.cluster_id != now.cluster_id || header.revision > now.revision {
            return Err(NewsError::Unreadable);
        }
        if header.revision < seen.revision {
            return Err(NewsError::Late);
        }
        *seen = StoreHeader { revision: header.revision, ..now };
        self.submit(FleetEvent::Read { revision: header.revision, records });
        self.is_following.set(true);
        self.told.begin(*seen, depth + 1);
        let _telling = Telling(Rc::clone(self));
        let (mut looked, mut reached) = (None::<Instant>, 0);
        loop {
            if looked.is_none_or(|looked| looked.elapsed() > REVOCATIONS) {
                looked = Some(Instant::now());
                self.look_at_revocations().await;
            }
            if self.is_out() {
                return Ok(());
            }
            match timeout(SILENT, lines.next()).await.map_err(|_| NewsError::Silent)?? {
                NewsLine::Changes(told) => {
                    let changes =
                        told.into_iter().filter_map(|told| told.change(self.store.keys())).collect();
                    self.take(changes, seen).await;
                }
                NewsLine::Beat { revision, depth } if depth < DEEPEST && seen.revision >= reached => {
                    reached = revision;
                    self.told.begin(*seen, depth + 1);
                    self.tell_beat(seen.revision);
                }
                NewsLine::Beat { depth, .. } if depth < DEEPEST => return Err(NewsError::Late),
                NewsLine::Beat { .. } => return Err(NewsError::Deep),
                NewsLine::Begin { .. } => return Err(NewsError::Unreadable),
            }
        }
    }

    /// All records that a host tells first.
    async fn all_of(&self, lines: &mut HostNews) -> Result<(StoreHeader, u32, Vec<StoreChange>), NewsError> {
        let NewsLine::Begin { cluster, term, revision, depth, lines: count } = lines.next().await? else {
            return Err(NewsError::Unreadable);
        };
        if depth >= DEEPEST {
            return Err(NewsError::Deep);
        }
        let mut records = Vec::new();
        for _ in 0..count {
            let NewsLine::Changes(told) = lines.next().await? else { return Err(NewsError::Unreadable) };
            if lines.taken > MOST {
                return Err(NewsError::Unreadable);
            }
            records.extend(told.into_iter().filter_map(|told| told.change(self.store.keys())));
        }
        Ok((StoreHeader { cluster_id: cluster, raft_term: term, revision }, depth, records))
    }

    /// Reads revoked certificates from the store itself: a revoked host would not tell of its own.
    async fn look_at_revocations(&self) {
        if self.trust.certificates().is_some()
            && let Ok(revoked) = self.store.revoked().await
        {
            self.submit(FleetEvent::Revoked(revoked));
            self.hear_revocations().await;
        }
    }
}

/// Lines that another host sends.
struct HostNews {
    source: StreamSource,
    read: Vec<u8>,
    /// Bytes of `read` without the end of a line.
    searched: usize,
    /// Bytes of all lines so far.
    taken: usize,
}

impl HostNews {
    async fn open(peer: &Upstream) -> Result<Self, NewsError> {
        let peer = peer.with_lines(vec![(HOP, HeaderValue::from_static(NEWS))]);
        let mut wire = peer.connect(CONNECT).await.map_err(NewsError::Connect)?;
        let mut request = Request::new(EngineBody::from(Rope::default()));
        *request.method_mut() = Method::GET;
        *request.headers_mut() = to_engine(&http::HeaderMap::new(), &peer, 0);
        let answer = timeout(CONNECT, wire.send(request)).await.map_err(|_| NewsError::Silent)?;
        let (head, body) = answer.map_err(NewsError::Broken)?.into_parts();
        if head.status != StatusCode::OK {
            return Err(NewsError::Refused(head.status));
        }
        Ok(Self { source: StreamSource { wire, body }, read: Vec::new(), searched: 0, taken: 0 })
    }

    async fn next(&mut self) -> Result<NewsLine, NewsError> {
        loop {
            let news = self.read.get(self.searched..).unwrap_or_default();
            if let Some(end) = news.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=self.searched + end).collect();
                self.searched = 0;
                self.taken = self.taken.saturating_add(line.len());
                return NewsLine::read(line.trim_ascii_end()).ok_or(NewsError::Unreadable);
            }
            self.searched = self.read.len();
            if self.read.len() > LONGEST {
                return Err(NewsError::Unreadable);
            }
            let frame = poll_fn(|context| self.source.poll(context)).await.ok_or(NewsError::Silent)?;
            let frame = frame.map_err(NewsError::Broken)?;
            self.read.extend(frame.data_ref().into_iter().flatten());
        }
    }
}
