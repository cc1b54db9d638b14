//! Tests of leak detection: rates of false alarms and of missed leaks on simulated series.

use super::*;

/// Splitmix64: the same series on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        wide(self.next() >> 11) / wide(1 << 53)
    }

    /// Near enough to a normal deviate.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

const BASE: f64 = 400.0 * 1024.0 * 1024.0;

fn occupied(bytes: f64) -> Bytes {
    // Page-granular, as the kernel counts.
    let pages = (bytes / 4096.0).max(0.0).floor();
    Bytes::kib(4) * format!("{pages:.0}").parse().unwrap()
}

/// A look after every 20 requests.
fn series(looks: u64, mut value: impl FnMut(f64) -> f64) -> Vec<TrendPoint> {
    (1..=looks)
        .map(|look| TrendPoint { at: look * 20, occupied: occupied(BASE + value(wide(look * 20))) })
        .collect()
}

fn growth(points: &[TrendPoint]) -> TrendGrowth {
    judge(points, &TrendTest::default()).growth
}

/// Flat, in the ways in which programs are: `kind` of noise, with steps while it warms up.
fn flat(kind: u64, seed: u64, looks: u64) -> Vec<TrendPoint> {
    let mut dice = Dice(seed * 7919 + kind);
    let (mut walk, mut smooth, mut highest) = (0.0_f64, 0.0_f64, 0.0_f64);
    let warm = wide(looks * 20) * 0.2;
    let steps: Vec<(f64, f64)> = (0..6).map(|_| (dice.unit() * warm, dice.unit() * 60e6)).collect();
    let once = (dice.unit() * wide(looks * 20), 30e6);
    series(looks, move |at| {
        let warmed: f64 = steps.iter().filter(|step| step.0 <= at).map(|step| step.1).sum();
        let late = if once.0 <= at { once.1 } else { 0.0 };
        let noise = dice.normal();
        walk += noise * 100e3;
        smooth = 0.9 * smooth + noise * 1e6;
        highest = highest.max(noise);
        warmed
            + late
            + match kind {
                0 => 0.0,
                1 => noise * 2e6,
                2 => smooth,
                3 => walk,
                _ => highest * 5e6,
            }
    })
}

#[test]
fn a_flat_program_is_called_a_leak_no_more_often_than_promised() {
    const EACH: u64 = 400;
    for (kind, name) in
        (0..).zip(["still", "white noise", "autocorrelated", "random walk", "high-water mark"])
    {
        for looks in [100, 1000] {
            let alarms =
                (0..EACH).filter(|seed| growth(&flat(kind, *seed, looks)) == TrendGrowth::Leak).count();
            // 0.002 of 400 is 0.8; five or more would be seen once in a thousand times.
            assert!(alarms < 5, "{name}, {looks} looks: {alarms} of {EACH}");
        }
    }
}

#[test]
fn one_kibibyte_a_request_is_found_within_two_thousand_requests_in_the_noise_of_a_quiet_process() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let step_at = dice.unit() * 2000.0;
        let points = series(100, |at| {
            let step = if at >= step_at { 5e6 } else { 0.0 };
            at * 1024.0 + step + dice.normal() * 20e3
        });
        let trend = judge(&points, &TrendTest::default());
        assert_eq!(trend.growth, TrendGrowth::Leak, "seed {seed}: {trend:?}");
        assert!(trend.slope_low <= 1024.0 && 1024.0 <= trend.slope_high, "{trend:?}");
        assert!((trend.slope - 1024.0).abs() < 200.0, "{trend:?}");
    }
}

#[test]
fn a_leak_that_shows_in_granules_of_two_mebibytes_is_found_when_it_has_filled_enough_of_them() {
    let granule = 2.0 * 1024.0 * 1024.0;
    let points = series(2000, |at| ((at * 1024.0) / granule).floor() * granule);
    assert_eq!(growth(&points), TrendGrowth::Leak);
    assert_eq!(growth(&points[..100]), TrendGrowth::Flat, "one granule proves nothing");
}

#[test]
fn single_allocation_is_no_leak_at_any_size() {
    let points = series(200, |at| if at >= 2000.0 { 8e9 } else { 0.0 });
    let trend = judge(&points, &TrendTest::default());
    assert_eq!((trend.growth, trend.slope.to_string().as_str()), (TrendGrowth::Flat, "0"));
    let steps = steps(&points);
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].at, steps[0].size() > Bytes::gib(7)), (2000, true));
}

#[test]
fn a_cache_that_fills_is_settling_and_one_that_is_full_is_flat() {
    let filling = |time: f64| move |at: f64| 500e6 * (1.0 - (-at / time).exp());
    assert_eq!(growth(&series(200, filling(1500.0))), TrendGrowth::Settling);
    assert_eq!(growth(&series(2000, filling(1500.0))), TrendGrowth::Flat);
}

#[test]
fn a_heap_that_is_collected_is_flat() {
    let points = series(400, |at| (at * 1000.0) % 6.5e6);
    assert_eq!(growth(&points), TrendGrowth::Flat);
}

#[test]
fn growth_that_may_be_chance_is_neither_a_leak_nor_flat() {
    // 4096 bytes more in two of three looks: 9 of 13 parts rise.
    let looks = |count: u64| -> Vec<TrendPoint> {
        (0..count)
            .map(|look| TrendPoint { at: 4 * look, occupied: Bytes::new(4096 * (look - look / 3)) })
            .collect()
    };
    let few = judge(&looks(24), &TrendTest::default());
    assert_eq!(few.growth, TrendGrowth::Open, "{few:?}");
    assert_eq!(judge(&looks(400), &TrendTest::default()).growth, TrendGrowth::Leak);
    // A figure as small as this is flat, sure or not.
    let negligible = TrendTest { negligible: 2000.0, ..TrendTest::default() };
    assert_eq!(judge(&looks(24), &negligible).growth, TrendGrowth::Flat);
}

#[test]
fn shrinking_is_no_leak_and_a_trickle_is_not_worth_a_word() {
    assert_eq!(growth(&series(200, |at| -500.0 * at)), TrendGrowth::Flat);
    assert_eq!(growth(&series(2000, |at| 20.0 * at)), TrendGrowth::Flat);
}

#[test]
fn too_few_looks_are_no_verdict() {
    let few = u64::try_from(Trend::LEAST_LOOKS).unwrap();
    assert_eq!(growth(&series(few - 2, |at| at * 1e6)), TrendGrowth::Unknown);
    assert_eq!(growth(&series(few, |at| at * 1e6)), TrendGrowth::Leak);
    assert_eq!(growth(&[]), TrendGrowth::Unknown);
}

#[test]
fn more_figures_need_a_stronger_case() {
    let points = series(60, |at| at * 1024.0);
    let with = |figures| {
        let judging = TrendTest { figures, ..TrendTest::default() };
        judge(&points, &judging).confidence
    };
    assert!(with(1) > with(10));
}
