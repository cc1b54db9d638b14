//! Latency model of a transaction in the fleet's store, drawn from measurements of a real etcd.
//!
//! Source: `crates/etcd/tests/real/loads.rs` on 23 November 2026, with etcd 3.4.23. Three members and eight
//! clients shared two processors at 500 claims a second. The figures are the worst of three runs. Members on
//! machines of their own are faster.

use std::time::Duration;

/// Percent of the claims, and the microseconds in which they were answered, with both ways of the network.
const CLAIMS: [(u64, u64); 8] =
    [(0, 1_700), (1, 2_138), (10, 2_492), (25, 2_804), (50, 3_498), (75, 4_774), (90, 8_433), (99, 19_486)];
const SLOWEST: u64 = 43_106;

/// The time at `draw`, which is one of a hundred thousand; between two measured ones it is on a straight
/// line.
pub(crate) fn of_claim(draw: u64) -> Duration {
    let points =
        CLAIMS.iter().copied().chain([(100, SLOWEST)]).map(|(percent, micros)| (percent * 1000, micros));
    let points: Vec<(u64, u64)> = points.collect();
    let draw = draw.min(100_000);
    let pair = points.windows(2).find(|pair| draw <= pair[1].0).unwrap();
    let ((from, low), (to, high)) = (pair[0], pair[1]);
    Duration::from_micros(low + (high - low) * (draw - from) / (to - from))
}

#[test]
fn a_drawn_time_lies_between_the_measured_ones() {
    let at = |draw| of_claim(draw).as_micros();
    assert_eq!([at(0), at(50_000), at(99_000), at(100_000)], [1_700, 3_498, 19_486, 43_106]);
    assert!((3_498..4_774).contains(&at(60_000)));
    assert_eq!(at(u64::MAX), 43_106);
}
