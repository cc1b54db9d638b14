//! Lost time in random worlds, compared with what a rule of fixed patience lost in them, and with an oracle.
//!
//! `fixed_patience.txt` has that rule's lost time in each world, in seconds, in the order of seeds: a model that waited for
//! five seconds drained the runs that were used least recently, whatever its load and theirs took.

use super::machine::Machine;
use super::tally::float;
use super::{oracle, random};

const FIXED_PATIENCE: &str = include_str!("fixed_patience.txt");

/// Lost time in one world, in seconds.
struct Lost {
    here: f64,
    with_fixed_patience: f64,
    oracle: Option<f64>,
}

/// The first worlds, and the oracle's lost time in the first of these.
fn lost(worlds: usize, with_oracle: usize) -> Vec<Lost> {
    let recorded = FIXED_PATIENCE.split_whitespace().take(worlds);
    let played = (0..).zip(recorded).enumerate().map(|(place, (seed, recorded))| {
        let world = random::world(seed);
        Lost {
            here: Machine::run(&world).lost(),
            with_fixed_patience: recorded.parse().unwrap(),
            oracle: (place < with_oracle).then(|| oracle::lost(&world)),
        }
    });
    let played: Vec<Lost> = played.collect();
    assert_eq!(played.len(), worlds);
    played
}

fn median(ratios: impl Iterator<Item = f64>) -> f64 {
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Compares the lost time in the first worlds, and in some of these with the oracle's; returns a line about it.
fn compare(worlds: usize, with_oracle: usize) -> String {
    let lost = lost(worlds, with_oracle);
    let before = median(lost.iter().map(|lost| lost.here / lost.with_fixed_patience));
    let oracle = median(lost.iter().filter_map(|lost| Some(lost.here / lost.oracle?)));
    assert!(before <= 0.6, "{before}");
    let is_beaten = |lost: &&Lost| lost.oracle.is_some_and(|oracle| lost.here < oracle);
    let beaten = lost.iter().filter(is_beaten).count();
    assert!(float(beaten) <= 0.05 * float(with_oracle), "the oracle lost more in {beaten} worlds");
    let oracles = format!("{oracle:.2} of the oracle's in the first {with_oracle}");
    format!("lost time in the median of {worlds} worlds: {before:.2} of that with fixed patience; {oracles}")
}

#[test]
fn random_worlds_lose_three_fifths_of_the_time_lost_with_fixed_patience() {
    println!("{}", compare(600, 60));
}

#[test]
fn long_ten_thousand_worlds_lose_three_fifths_of_the_time_lost_with_fixed_patience() {
    println!("{}", compare(10_000, 10_000));
}
