//! Runs all scenarios, checks the scheduler's invariants in them, and prints a table: `cargo test -p
//! plimsoll-scheduler --lib scenarios -- --nocapture`.

use plimsoll_base::Priority;

use super::S;
use super::engine::Life;
use super::machine::{Machine, Scenario};
use super::rows::*;

/// The number of a scenario, its name, the machine, and the best that can be had.
fn rows() -> Vec<(&'static str, &'static str, Scenario, &'static str)> {
    let fails = |after, lasts| cannot_load(Life::FailsToLoad { after, lasts });
    let same = [Priority::Normal; 2];
    vec![
        ("0a", "two agents, loads of 2 s", two_agents(2, false), "2.1/s"),
        ("0a", "the same, new connections", two_agents(2, true), "2.1/s"),
        ("0a", "two agents, loads of 8 s", two_agents(8, false), "1.7/s"),
        ("0a", "the same, new connections", two_agents(8, true), "1.7/s"),
        ("0b", "gives up after 6 s, load of 15 s", gives_up_during_a_load(), "16 s"),
        ("0c", "five models, ten clients", five_models(), "-"),
        ("1", "hung engine, clients give up", hung(false), "10 s and a load"),
        ("1", "the same, with a neighbour", hung(true), "10 s and a load"),
        ("2", "forty requests of one key", forty_of_one_key(None), "11 and 12.4 s"),
        ("2", "the same, concurrency = 4", forty_of_one_key(Some(4)), "11 and 12.4 s"),
        ("3", "cannot load, neighbour alone", cannot_load_alone(), "-"),
        ("3", "cannot load, fails after 1 s", fails(S, false), "as alone"),
        ("3", "cannot load, fails after 6 s", fails(6 * S, false), "as alone"),
        ("3", "cannot load, and it lasts", fails(2 * S, true), "as alone"),
        ("4", "long and short answers", long_and_short(vec![24]), "8 s"),
        ("4", "the same on two cards", long_and_short(vec![16, 16]), "9 s"),
        ("5", "idle beside a long answer", idle_alongside_a_long_answer(), "0.2 s"),
        ("6", "dear beside cheap", dear_alongside_cheap(), "1 load"),
        ("7", "poison", poison(), "8 lost"),
        ("8", "four crashes, plain requests", crashes(), "0 lost"),
        ("9", "behind a busy model, gives up", behind_a_busy_one(Some(10 * S)), "25 s"),
        ("9", "the same, patient", behind_a_busy_one(None), "25 s"),
        ("10", "two crowds", two_crowds(same), "15 turns"),
        ("10", "two crowds, high and low", two_crowds([Priority::High, Priority::Low]), "twice"),
        ("11", "ten preloads, cold disk", cold_preloads(), "5 to 9 s"),
        ("12", "request during a preload", request_during_a_preload(), "3.3 s"),
        ("12", "preload comes back", preload_comes_back(), "0.1 s"),
        ("13", "one slot, queue at ready", queue_at_ready(), "18 s"),
        ("15", "engines ignore stops", ignores_stops(), "one slow stop"),
        ("15", "shutdown", shutdown(), "30 s"),
        ("15", "starts anew behind a stream", starts_anew_behind_a_stream(), "-"),
    ]
}

#[test]
fn scenarios_keep_every_invariant_and_print_their_figures() {
    for (number, name, scenario, ideal) in rows() {
        let tally = Machine::run(&scenario);
        println!("{number:>3} {name:33} {}  (ideal {ideal})", tally.line());
        println!("{:38}{}{}", "", tally.by_model(), tally.by_key());
        assert!(tally.loads.iter().sum::<u64>() > 0, "{name}");
    }
}
