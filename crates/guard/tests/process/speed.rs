//! Tests of the time that guard adds to a hooked call of CUDA, HIP and Vulkan: at most a microsecond each.

#![allow(clippy::print_stderr, reason = "the table of times is the result of the measurement")]

use super::artefact;
use super::client::Client;
use super::hip::Hip;
use super::vulkan::{self, Driver};

/// Nothing but the account, and a budget that every request is held to.
const OPTIONS: [&str; 2] = ["", "budget=500000000"];
const MOST: f64 = 1000.0;

/// The least time of some calls, in nanoseconds.
struct Least {
    calls: f64,
    name: String,
    nanoseconds: f64,
}

/// The times of a program with these words.
fn times(mut client: Client, words: &[&str]) -> Vec<Least> {
    let output = client
        .command(words)
        // A log and a trace would write a line for each call.
        .env("PLIMSOLL_FAKE_CUDA", "total=1G")
        .env("PLIMSOLL_FAKE_HIP", "total=1G vmm=1")
        .env_remove("PLIMSOLL_GUARD_TRACE")
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let times = lines.lines().filter_map(|line| {
        let (calls, line) = line.strip_prefix("least ")?.split_once(' ')?;
        let (name, nanoseconds) = line.rsplit_once(' ')?;
        let number = |word: &str| word.parse::<f64>().unwrap();
        Some(Least { calls: number(calls), name: name.to_owned(), nanoseconds: number(nanoseconds) })
    });
    times.collect()
}

/// Measures each call bare and under guard, and prints both.
fn hold(count: usize, bare: &[Least], guarded: impl Fn(&str) -> Vec<Least>) {
    assert_eq!(bare.len(), count);
    for options in OPTIONS {
        let guarded = guarded(options);
        assert_eq!(guarded.len(), count);
        for (bare, guarded) in bare.iter().zip(&guarded) {
            let added = (guarded.nanoseconds - bare.nanoseconds) / guarded.calls;
            eprintln!(
                "{:24} {:>17} bare {:5} ns, guarded {:5} ns, added to a call {added:5} ns",
                guarded.name, options, bare.nanoseconds, guarded.nanoseconds
            );
            assert!(added <= MOST, "{} {options}: {added} ns", guarded.name);
        }
    }
}

#[test]
fn long_a_hooked_call_of_cuda_costs_at_most_a_microsecond() {
    let words = ["init", "retain:0", "speed"];
    let client = || Client::bare("runtime").env("LD_LIBRARY_PATH", artefact::optimised_cuda());
    hold(7, &times(client(), &words), |options| times(client().guarded(options), &words));
}

#[test]
fn long_a_hooked_call_of_hip_costs_at_most_a_microsecond() {
    let hip = Hip::new("total=1G");
    let library = hip.library();
    let words = [&*library.to_string_lossy(), "speed"];
    hold(9, &times(hip.client(), &words), |options| times(hip.client().guarded(options), &words));
}

#[test]
fn long_a_hooked_call_of_vulkan_costs_at_most_a_microsecond() {
    let words = ["open", "speed"];
    let bare = times(vulkan::bare(Driver::Mesa), &words);
    hold(5, &bare, |options| times(vulkan::guarded(Driver::Mesa, options), &words));
}
