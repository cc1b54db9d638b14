//! Receives the fleet's records and their changes from another host, instead of from the store.
//!
//! DECISION: news from another host is advice only. Two things are read from the store itself: revoked
//! certificates, and the figures that reveal a restored store. Otherwise a lying host could make others start
//! new lives (register anew) or leave the fleet.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode};
use plimsoll_etcd::{StoreError, StoreHeader};
use plimsoll_fleet::{DEEPEST, FleetEvent, FleetKey, NewsLine, NewsSource, ReportedChange, StoreChange};
use tokio::time::{Instant, timeout};

use super::FleetMember;
use super::follow::is_restored;
use super::news_share::NewsShare;
use super::notify::Telling;
use plimsoll_route::{EngineBody, HOP, NEWS, Rope, StreamSource, Upstream, to_engine};

/// A host that is silent for so long is no source: it reports on the store at least once in that time.
const SILENT: Duration = Duration::from_secs(12);
/// Time for a connection, and for all records.
const CONNECT: Duration = Duration::from_secs(2);
const WHOLE: Duration = Duration::from_secs(30);
/// Time between two looks at the revoked certificates, and time before one where another host reports a
/// revocation.
const REVOCATIONS: Duration = Duration::from_secs(60);
const REPORTED_REVOCATIONS: Duration = Duration::from_secs(2);
/// Longest time for which one host is followed: a lie that nothing contradicts ends with it.
const TENURE: Duration = Duration::from_secs(900);
/// Longest line: a record alone is at most 1 MiB, and twice as long as text within a text.
const LONGEST: usize = 8 << 20;

/// Why another host is no source.
#[derive(Debug, thiserror::Error)]
pub(super) enum NewsError {
    #[error("the host cannot be reached: {0}")]
    Connect(io::Error),
    #[error("the host refuses with status {0}")]
    Refused(StatusCode),
    #[error("the host's answer ended early: {0}")]
    Broken(hyper::Error),
    #[error("the host has sent nothing for too long")]
    Silent,
    #[error("the host's answer does not contain records of a fleet")]
    Unreadable,
    #[error("the host's records differ from those of the store")]
    Foreign,
    #[error("the records come through more hosts than a fleet allows, as in a loop")]
    Deep,
    #[error("the host sent outdated records, which are ignored; newer ones are known here")]
    Late,
    #[error("the host sent records that the store does not have")]
    Doubted,
    #[error("the host sends more than a fleet's store can hold")]
    TooMuch,
    #[error("this host reads records from one host for a limited time only, and now chooses another")]
    Tenure,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FleetMember {
    /// Takes the news of another host until they end; the error says why they did.
    pub(super) async fn follow_host(
        self: &Rc<Self>,
        name: &str,
        address: &str,
        seen: &mut StoreHeader,
    ) -> Result<(), NewsError> {
        self.leaves_source.set(false);
        let applied = self.node.borrow().applied();
        let stored = self.store.latest().await?.records;
        let mut share = NewsShare::of(stored);
        let mut lines = HostNews::open(&self.peer(name, address)).await?;
        let all = timeout(WHOLE, self.all_of(&mut lines, &mut share));
        let (header, depth, records) = all.await.map_err(|_| NewsError::Silent)??;
        // Only the store itself shows that it was restored, and what another host may have seen of it.
        let now = self.store.header().await?;
        if is_restored(&now, seen, applied) {
            self.store_went_back();
        }
        *seen = now;
        if header.cluster_id != now.cluster_id || header.revision > now.revision {
            return Err(NewsError::Foreign);
        }
        if header.revision < self.node.borrow().view.revision {
            return Err(NewsError::Late);
        }
        let (name, address) = (name.to_owned(), address.to_owned());
        self.submit(FleetEvent::NewsFrom(NewsSource::Host { name, address }));
        self.submit(FleetEvent::Read { revision: header.revision, records });
        if self.leaves_source.get() {
            return Err(NewsError::Doubted);
        }
        self.is_following.set(true);
        self.reported.begin(now, depth + 1);
        let _telling = Telling(Rc::clone(self));
        self.take_lines(&mut lines, &mut share, now).await
    }

    /// Takes changes until the host is left, or leaves.
    async fn take_lines(
        &self,
        lines: &mut HostNews,
        share: &mut NewsShare,
        store: StoreHeader,
    ) -> Result<(), NewsError> {
        let (began, mut looks_at, mut reached) = (Instant::now(), Instant::now(), 0);
        loop {
            if looks_at <= Instant::now() {
                self.look_at_revocations().await;
                looks_at = Instant::now() + REVOCATIONS;
            }
            if self.is_out() {
                return Ok(());
            }
            if began.elapsed() > TENURE {
                return Err(NewsError::Tenure);
            }
            let line = tokio::select! {
                line = timeout(SILENT, lines.next()) => line.map_err(|_| NewsError::Silent)??,
                () = self.source_left.notified() => if self.leaves_source.get() { return Err(NewsError::Doubted) } else { continue },
            };
            share.change(lines.length).await?;
            match line {
                NewsLine::Changes(reported) => {
                    let changes = self.changes_of(reported);
                    self.notify_changes(&changes);
                    let (revoked, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_revocation);
                    self.submit(FleetEvent::Changed(changes));
                    if !revoked.is_empty() {
                        looks_at = looks_at.min(Instant::now() + REPORTED_REVOCATIONS);
                    }
                }
                NewsLine::Beat { depth, .. } if depth >= DEEPEST => return Err(NewsError::Deep),
                NewsLine::Beat { revision, depth } => {
                    let known = self.node.borrow().view.revision;
                    if known < reached {
                        return Err(NewsError::Late);
                    }
                    reached = revision;
                    self.reported.begin(store, depth + 1);
                    self.notify_beat(known);
                }
                NewsLine::Begin { .. } => return Err(NewsError::Unreadable),
            }
        }
    }

    fn changes_of(&self, reported: Vec<ReportedChange>) -> Vec<StoreChange> {
        reported.into_iter().filter_map(|reported| reported.change(self.store.keys())).collect()
    }

    /// All records at the beginning of a host's news.
    async fn all_of(
        &self,
        lines: &mut HostNews,
        share: &mut NewsShare,
    ) -> Result<(StoreHeader, u32, Vec<StoreChange>), NewsError> {
        let NewsLine::Begin { cluster, term, revision, depth, lines: count } = lines.next().await? else {
            return Err(NewsError::Unreadable);
        };
        if depth >= DEEPEST {
            return Err(NewsError::Deep);
        }
        let mut records = Vec::new();
        for _ in 0..count {
            let NewsLine::Changes(reported) = lines.next().await? else { return Err(NewsError::Unreadable) };
            share.record(reported.len(), lines.length)?;
            records.extend(self.changes_of(reported).into_iter().filter(|record| !is_revocation(record)));
        }
        Ok((StoreHeader { cluster_id: cluster, raft_term: term, revision }, depth, records))
    }

    /// Reads revoked certificates from the store itself: a revoked host would not publish its own.
    async fn look_at_revocations(&self) {
        if self.trust.certificates().is_some()
            && let Ok(revoked) = self.store.revoked().await
        {
            self.submit(FleetEvent::Revoked(revoked));
            self.hear_revocations().await;
        }
    }
}

fn is_revocation(change: &StoreChange) -> bool {
    matches!(change.key, FleetKey::Revoked(_))
}

/// Lines that another host sends.
struct HostNews {
    source: StreamSource,
    read: Vec<u8>,
    /// Bytes of `read` without the end of a line.
    searched: usize,
    /// Bytes of the last line.
    length: usize,
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
        Ok(Self { source: StreamSource { wire, body }, read: Vec::new(), searched: 0, length: 0 })
    }

    async fn next(&mut self) -> Result<NewsLine, NewsError> {
        loop {
            let news = self.read.get(self.searched..).unwrap_or_default();
            if let Some(end) = news.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=self.searched + end).collect();
                self.searched = 0;
                self.length = line.len();
                return NewsLine::read(line.trim_ascii_end()).ok_or(NewsError::Unreadable);
            }
            self.searched = self.read.len();
            if self.read.len() > LONGEST {
                return Err(NewsError::TooMuch);
            }
            let frame = poll_fn(|context| self.source.poll(context)).await.ok_or(NewsError::Silent)?;
            let frame = frame.map_err(NewsError::Broken)?;
            self.read.extend(frame.data_ref().into_iter().flatten());
        }
    }
}
