//! Compares the scheduler with a search that knows all requests beforehand: answers of four models in a
//! minute, for each bound on the longest wait.
//!
//! The search answers more within ten seconds than the scheduler does without a bound. So loads alone do not
//! exclude such a bound; what the scheduler lacks is the future.

use crate::runner::admit::four::{H200, Pattern, minute, offline};

const SEEDS: u64 = 8;
const WIDTH: usize = 300;
/// Bounds on the wait, in milliseconds.
const BOUNDS: [u64; 7] = [60_000, 14_000, 12_000, 10_000, 9000, 8000, 7000];

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

/// Mean answers of the search, in each world, for this bound.
fn found(bound: u64) -> u64 {
    (0..SEEDS).map(|seed| offline(Pattern::Weighted(seed), H200).best_within(WIDTH, bound)).sum::<u64>()
        / SEEDS
}

#[test]
fn long_the_answers_against_the_longest_wait_are_printed() {
    let ours: Vec<_> = (0..SEEDS).map(|seed| minute(Pattern::Weighted(seed), H200, 10)).collect();
    let answers = ours.iter().map(|minute| minute.total()).sum::<u64>() / SEEDS;
    let waits = || ours.iter().map(|minute| minute.longest);
    let (least, most) = (waits().min().unwrap(), waits().max().unwrap());
    println!("the scheduler: {answers} answers, longest wait {} to {}", seconds(least), seconds(most));
    let curve: Vec<u64> = BOUNDS.into_iter().map(found).collect();
    for (bound, answers) in BOUNDS.into_iter().zip(&curve) {
        println!("the search, nobody waits for more than {}: {answers} answers", seconds(bound));
    }
    assert!(curve[0] >= answers, "the search knows the future");
    assert!(curve[3] >= answers, "and needs no wait of more than {}", seconds(BOUNDS[3]));
}
