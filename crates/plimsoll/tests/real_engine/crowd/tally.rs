//! Counts latencies, lost requests and acts of hostile clients, in the test with hostile clients.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use super::LONGEST_SWAP;
use super::bystanders::Errand;

/// The p99 of hostile rounds stays under so many times that of quiet ones.
const SLOWER: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By errand, of quiet and hostile rounds.
    latencies: BTreeMap<Errand, [Vec<Duration>; 2]>,
    lost: Vec<String>,
    reconnected: u64,
    /// By way: how often, and the answers by status (0 where there was none).
    acts: BTreeMap<&'static str, (u64, BTreeMap<u16, u64>)>,
}

impl Tally {
    fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().expect("no thread panics with it"))
    }

    pub(super) fn answered(&self, errand: Errand, was_hostile: bool, took: Duration) {
        self.with(|counts| counts.latencies.entry(errand).or_default()[usize::from(was_hostile)].push(took));
    }

    pub(super) fn lost(&self, errand: Errand, why: String) {
        self.with(|counts| counts.lost.push(format!("{}: {why}", errand.name())));
    }

    pub(super) fn reconnected(&self) {
        self.with(|counts| counts.reconnected += 1);
    }

    pub(super) fn acted(&self, way: &'static str, acts: u64, statuses: &BTreeMap<u16, u64>) {
        self.with(|counts| {
            let entry = counts.acts.entry(way).or_default();
            entry.0 += acts;
            for (status, count) in statuses {
                *entry.1.entry(*status).or_default() += count;
            }
        });
    }

    /// Panics where a promise is broken.
    pub(super) fn check(&self) {
        self.with(|counts| {
            assert!(counts.lost.is_empty(), "lost: {:#?}", counts.lost);
            let [quiet, hostile] = counts.pooled();
            let (before, with) = (nth(&quiet, 99), nth(&hostile, 99));
            assert!(with < SLOWER * before, "p99 {before:?}, and {with:?} with hostile clients");
            let swaps = counts.latencies.get(&Errand::Swap);
            let longest = swaps.and_then(|[_, hostile]| hostile.iter().max().copied());
            assert!(longest.unwrap_or_default() < LONGEST_SWAP, "a swap took {longest:?}");
            for (way, (acts, _)) in &counts.acts {
                assert!(*acts > 0, "{way} never happened");
            }
        });
    }
}

impl Counts {
    fn pooled(&self) -> [Vec<Duration>; 2] {
        let pooled = |at: usize| {
            let mut all: Vec<_> = self.latencies.values().flat_map(|both| both[at].iter().copied()).collect();
            all.sort_unstable();
            all
        };
        [pooled(0), pooled(1)]
    }
}

/// The latency that `percent` of the sorted ones do not pass.
fn nth(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|counts| {
            writeln!(
                f,
                "{:<12} {:>8} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9}",
                "", "quiet", "p50 ms", "p99 ms", "hostile", "p50 ms", "p99 ms", "most ms"
            )?;
            let line = |f: &mut fmt::Formatter<'_>, name: &str, both: &[Vec<Duration>; 2]| {
                let [quiet, hostile] = both.clone().map(|mut times| {
                    times.sort_unstable();
                    times
                });
                let ms = |times: &[Duration], percent| nth(times, percent).as_secs_f64() * 1e3;
                writeln!(
                    f,
                    "{name:<12} {:>8} {:>9.1} {:>9.1} {:>8} {:>9.1} {:>9.1} {:>9.1}",
                    quiet.len(),
                    ms(&quiet, 50),
                    ms(&quiet, 99),
                    hostile.len(),
                    ms(&hostile, 50),
                    ms(&hostile, 99),
                    ms(&hostile, 100)
                )
            };
            for (errand, both) in &counts.latencies {
                line(f, errand.name(), both)?;
            }
            line(f, "all", &counts.pooled())?;
            writeln!(f, "lost {}, reconnected {}", counts.lost.len(), counts.reconnected)?;
            for (way, (acts, statuses)) in &counts.acts {
                writeln!(f, "{way:<34} {acts:>8} acts, answers {statuses:?}")?;
            }
            Ok(())
        })
    }
}
