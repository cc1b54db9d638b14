//! Chooses where a daemon reads the fleet's records: from the store or, in a large fleet, from another host.
//!
//! The source is the store itself or, in a large fleet, another daemon.
//!
//! DECISION: hosts are ranked by a hash of their names, which all daemons compute alike. The first ones watch
//! the store. Every other host asks one of a lower rank. So no election is needed, and daemons that know the
//! same hosts form no cycle. Between daemons that know different hosts, the field `depth` of the news breaks
//! a cycle.

use std::collections::BTreeMap;
use std::time::Duration;

use super::view::FleetView;

/// Hosts that watch the store in a fleet that is too large for all to do so, at most.
const ROOTS: usize = 32;
/// Hosts that ask one host, as long as each answers.
const ASKING: usize = 16;
/// Attempts with other hosts, one after the other, after which the store itself is asked: three, and one more
/// for each thousand hosts. Where ten thousand come back at once, most sources are not whole at the first
/// attempts, and those that ask the store instead keep the others from it.
const TRIES: u32 = 3;
const A_TRY: usize = 1000;
/// News that came over so many hosts are passed on no further.
pub const DEEPEST: u32 = 8;
/// Time for which a host that sent records that the store does not have is no source.
const DOUBTED: Duration = Duration::from_secs(3600);

/// Where a daemon's news come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewsSource {
    Store,
    Host { name: String, address: String },
}

/// A daemon's knowledge of its news sources.
#[derive(Clone, Debug)]
pub(crate) struct SourceTrust {
    /// Where the news come from now, and where the view at hand came from.
    pub(crate) from: NewsSource,
    pub(crate) read_from: NewsSource,
    /// The store did not answer this host since it was last read itself. News of another host do not change
    /// that.
    pub(crate) was_silent: bool,
    /// Hosts that sent records that the store does not have, since when.
    doubted: BTreeMap<String, Duration>,
}

impl Default for SourceTrust {
    fn default() -> Self {
        Self {
            from: NewsSource::Store,
            read_from: NewsSource::Store,
            was_silent: false,
            doubted: BTreeMap::new(),
        }
    }
}

impl SourceTrust {
    /// True while another host is the news source, and until the store was read after that.
    pub(crate) fn is_reported(&self) -> bool {
        self.from != NewsSource::Store || self.read_from != NewsSource::Store
    }

    /// Takes a host for none of the sources, for a time; false if it was none before.
    pub(crate) fn doubt(&mut self, now: Duration, source: &NewsSource) -> bool {
        match source {
            NewsSource::Store => false,
            NewsSource::Host { name, .. } => self.doubted.insert(name.clone(), now).is_none(),
        }
    }

    /// Ends all doubts, because the store was restored: what hosts sent was of its former life.
    pub(crate) fn end_doubts(&mut self) {
        self.doubted.clear();
    }

    /// The source, if it is not doubted; else the store.
    pub(crate) fn or_store(&mut self, now: Duration, source: NewsSource) -> NewsSource {
        self.doubted.retain(|_, since| now < *since + DOUBTED);
        match &source {
            NewsSource::Host { name, .. } if self.doubted.contains_key(name) => NewsSource::Store,
            _ => source,
        }
    }
}

/// The source of the host `own`, after so many attempts that failed; `random` draws another one then.
///
/// Up to `watchers` hosts all watch the store.
pub fn source(view: &FleetView, own: &str, watchers: usize, failed: u32, random: u64) -> NewsSource {
    if view.hosts.len() <= watchers || failed > tries(view.hosts.len()) {
        return NewsSource::Store;
    }
    let place = place_of(own);
    let others = view.hosts.keys().map(String::as_str).filter(|name| *name != own);
    let mut ahead: Vec<(u64, &str)> = others.map(place_of).filter(|other| *other < place).collect();
    let (rank, roots) = (ahead.len(), roots(watchers));
    if rank < roots {
        return NewsSource::Store;
    }
    let at = match failed {
        0 => (rank - roots) / ASKING,
        // Near the store, so that what is passed on stays fresh.
        _ => usize::try_from(random).unwrap_or_default() % rank.min(roots * ASKING),
    };
    let (_, (_, name), _) = ahead.select_nth_unstable(at);
    match view.host(name).filter(|host| view.trusts(name, host)) {
        Some(host) => NewsSource::Host { name: (*name).to_owned(), address: host.address.clone() },
        None => NewsSource::Store,
    }
}

/// Hosts that read the store whole when all come back at once.
pub(crate) fn readers(hosts: usize, watchers: usize) -> usize {
    if hosts <= watchers { hosts } else { roots(watchers) }
}

fn tries(hosts: usize) -> u32 {
    TRIES.saturating_add(u32::try_from(hosts / A_TRY).unwrap_or(u32::MAX))
}

fn roots(watchers: usize) -> usize {
    watchers.clamp(1, ROOTS)
}

/// The hash of the name, and the name, for two names with one hash.
fn place_of(name: &str) -> (u64, &str) {
    (mixed(name), name)
}

/// FNV-1a, mixed once more: the same in every daemon.
pub(crate) fn mixed(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_base::Bytes;

    use super::*;
    use crate::keys::FleetKey;
    use crate::records::{HostRecord, Record};
    use crate::view::StoreChange;

    #[test]
    fn a_doubt_ends_with_its_time_or_with_the_restoration_of_the_store() {
        let host = NewsSource::Host { name: "h0".to_owned(), address: "10.0.0.1:1".to_owned() };
        let mut trust = SourceTrust::default();
        assert!(trust.doubt(Duration::ZERO, &host) && !trust.doubt(Duration::ZERO, &host));
        assert_eq!(trust.or_store(Duration::ZERO, host.clone()), NewsSource::Store);
        trust.end_doubts();
        assert_eq!(trust.or_store(Duration::ZERO, host.clone()), host);
        assert!(trust.doubt(Duration::ZERO, &host));
        assert_eq!(trust.or_store(DOUBTED, host.clone()), host);
    }

    fn fleet(hosts: usize) -> FleetView {
        let records = (0..hosts).map(|number| {
            let text = |prefix: &str| format!("{prefix}{number}");
            let host = HostRecord {
                incarnation: text("i"),
                machine: text("m"),
                address: text("10.0.0.1:"),
                version: "1".to_owned(),
                capacity: Bytes::gib(80),
                unseated: Bytes::ZERO,
                offers: "o".to_owned(),
            };
            StoreChange {
                key: FleetKey::Host(text("h")),
                revision: 1,
                value: Some(Record::new(host).write()),
            }
        });
        FleetView::at(1, records)
    }

    /// The name of each host's source; none for the store.
    fn sources(view: &FleetView, watchers: usize, failed: u32) -> BTreeMap<&str, Option<String>> {
        let of = |name: &str| match source(view, name, watchers, failed, 7_919) {
            NewsSource::Store => None,
            NewsSource::Host { name, .. } => Some(name),
        };
        view.hosts.keys().map(|name| (name.as_str(), of(name))).collect()
    }

    fn depth(sources: &BTreeMap<&str, Option<String>>, name: &str) -> u32 {
        let (mut at, mut depth) = (name, 0);
        while let Some(next) = &sources[at] {
            (at, depth) = (next, depth + 1);
            assert!(depth < 100, "a circle at {at}");
        }
        depth
    }

    #[test]
    fn a_small_fleet_watches_the_store() {
        assert!(sources(&fleet(300), 300, 0).values().all(Option::is_none));
        assert!(sources(&fleet(0), 300, 0).is_empty());
    }

    fn check_sources(sizes: &[(usize, u32)]) {
        for &(hosts, deepest) in sizes {
            let view = fleet(hosts);
            let sources = sources(&view, 300, 0);
            assert_eq!(sources.values().filter(|source| source.is_none()).count(), ROOTS);
            let mut requested = BTreeMap::<&String, usize>::new();
            sources.values().flatten().for_each(|source| *requested.entry(source).or_default() += 1);
            assert!(requested.values().all(|asking| *asking <= ASKING));
            let depths = view.hosts.keys().map(|name| depth(&sources, name));
            assert_eq!(depths.max(), Some(deepest), "{hosts} hosts");
        }
    }

    #[test]
    fn in_a_large_fleet_few_watch_the_store_and_no_host_is_asked_by_many() {
        check_sources(&[(301, 1), (1000, 2)]);
    }

    /// Each host ranks all others: a hundred million times here.
    #[test]
    fn long_in_the_largest_fleet_few_watch_the_store() {
        check_sources(&[(10_000, 3)]);
    }

    #[test]
    fn other_sources_make_no_circle_either_and_the_store_is_the_last() {
        let view = fleet(1000);
        for failed in 1..=tries(1000) {
            let sources = sources(&view, 300, failed);
            view.hosts.keys().for_each(|name| assert!(depth(&sources, name) <= DEEPEST));
        }
        assert!(sources(&view, 300, tries(1000) + 1).values().all(Option::is_none));
    }

    #[test]
    fn a_host_that_is_gone_or_not_trusted_is_no_source() {
        let mut view = fleet(1000);
        let NewsSource::Host { name, .. } = source(&view, "stranger", 1, 0, 0) else { panic!("no source") };
        view.distrusted.insert(name.clone(), view.host(&name).unwrap().incarnation.clone());
        assert_eq!(source(&view, "stranger", 1, 0, 0), NewsSource::Store);
        view.hosts.remove(&name);
        let next = source(&view, "stranger", 1, 0, 0);
        assert!(matches!(&next, NewsSource::Host { name: next, .. } if *next != name), "{next:?}");
    }
}
