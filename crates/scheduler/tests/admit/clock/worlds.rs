//! Tests of the time that clients lose on random simulated machines, compared with a simple eviction rule and
//! with an oracle that knows all requests.
//!
//! `fixed_patience.txt` has that rule's lost time in each world, in seconds, in the order of seeds: a model
//! that waited for five seconds drained the runs that were used least recently, whatever its load and theirs
//! took.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::S;
use super::machine::{Machine, Model, Scenario};
use super::tally::{float, seconds};
use super::{oracle, random};

const FIXED_PATIENCE: &str = include_str!("fixed_patience.txt");

/// Lost time in one world, in seconds.
struct Lost {
    here: f64,
    with_fixed_patience: f64,
    oracle: Option<f64>,
    /// Hash of all decisions.
    trace: u64,
}

/// The first worlds, and the oracle's lost time in the first of these.
fn lost(worlds: usize, with_oracle: usize) -> Vec<Lost> {
    let recorded = || FIXED_PATIENCE.split_whitespace().take(worlds).enumerate();
    let play = |(place, recorded): (usize, &str)| {
        let world = random::world(u64::try_from(place).unwrap());
        let tally = Machine::run(&world);
        Lost {
            here: tally.lost(),
            trace: tally.stopwatch.trace.finish(),
            with_fixed_patience: recorded.parse().unwrap(),
            oracle: (place < with_oracle).then(|| oracle::lost(&world)),
        }
    };
    let every_second = |first| recorded().skip(first).step_by(2).map(play).collect::<Vec<Lost>>();
    let played = std::thread::scope(|scope| {
        let odd = scope.spawn(|| every_second(1));
        let mut played = every_second(0);
        played.extend(odd.join().unwrap());
        played
    });
    assert_eq!(played.len(), worlds);
    played
}

fn median(ratios: impl Iterator<Item = f64>) -> f64 {
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Compares the lost time in the first worlds, and in some of these with the oracle's; returns a line about
/// it.
fn compare(worlds: usize, with_oracle: usize, most: f64) -> String {
    let lost = lost(worlds, with_oracle);
    let before = median(lost.iter().map(|lost| lost.here / lost.with_fixed_patience));
    let oracle = median(lost.iter().filter_map(|lost| Some(lost.here / lost.oracle?)));
    assert!(before <= most && oracle <= 2.0, "{before} and {oracle}");
    // Its search keeps few schedules, and decides each half second.
    let is_beaten = |lost: &&Lost| lost.oracle.is_some_and(|oracle| lost.here < 0.9 * oracle);
    let beaten = lost.iter().filter(is_beaten).count();
    assert!(float(beaten) <= 0.05 * float(with_oracle), "the oracle lost more in {beaten} worlds");
    let oracles = format!("{oracle:.2} of the oracle's in the first {with_oracle}");
    let mut traces = DefaultHasher::new();
    lost.iter().for_each(|lost| lost.trace.hash(&mut traces));
    let all =
        format!("{before:.2} of that with fixed patience; {oracles}; decisions {:016x}", traces.finish());
    format!("lost time in the median of {worlds} worlds: {all}")
}

#[test]
fn random_worlds_lose_three_fifths_of_the_time_lost_with_fixed_patience() {
    println!("{}", compare(600, 60, 0.6));
}

#[test]
fn long_ten_thousand_worlds_lose_three_fifths_of_the_time_lost_with_fixed_patience() {
    println!("{}", compare(10_000, 600, 0.6));
}

/// The longest that a client of a world without faults may wait, where each client has a slot: a turn of
/// every model, and what higher priorities are ahead. A turn is the patience, the load, three swaps, the
/// longest answer, and the stop.
fn longest_wait(world: &Scenario) -> Option<f64> {
    let users = |model: u32| world.clients.iter().filter(move |client| client.models.contains(&model));
    let has_slots = |(model, kind): (u32, &Model)| users(model).count() <= kind.slots;
    if !(0..).zip(&world.models).all(has_slots) {
        return None;
    }
    let cold: u64 = world.models.iter().map(|model| model.cold).sum();
    let dearest = world.models.iter().map(|model| model.load + cold).max()?;
    let turn = |(model, kind): (u32, &Model)| {
        let longest = users(model).flat_map(|client| &client.answers).max().copied().unwrap_or(0);
        5 * S + kind.load + cold + 3 * (kind.load + cold + dearest) + longest + S
    };
    Some(seconds((0..).zip(&world.models).map(turn).sum::<u64>() + 120 * S))
}

#[test]
fn no_client_waits_longer_than_each_model_s_turn() {
    let mut worlds = 0;
    for world in (0..2000).filter(|seed| seed % 5 > 0).map(random::world) {
        if let Some(longest) = longest_wait(&world) {
            worlds += 1;
            let tally = Machine::run(&world);
            assert!(tally.longest(|_, _| true) <= longest, "{} > {longest}", tally.line());
        }
    }
    assert!(worlds > 300);
}
