//! Simulator of a fleet: real daemon logic against a simulated store, which delays answers, loses them, or
//! applies changes without an answer.
#![allow(clippy::cast_possible_truncation)]

mod checker;
mod latency;
mod rack;
mod reported;
mod returns;
mod scripted;
mod store;
mod world;

use std::time::Duration;

use plimsoll_fleet::{ClaimGuard, FleetKey};
use proptest::prelude::*;
use rack::{Rack, RackSettings};
use world::{World, WorldSettings};

const SMALL: WorldSettings = WorldSettings {
    hosts: 3,
    models: 8,
    replicas: 0,
    clients: 0,
    seconds: 20,
    faults: true,
    pause: 2000,
    late: 6,
    without: None,
    without_lease: false,
    seed: 1,
};

/// Runs a world and returns its faults.
fn faults(settings: WorldSettings) -> (World, checker::Faults) {
    let mut world = World::new(settings).run();
    let mut faults = checker::check(&world.store.history);
    faults.0.append(&mut world.faults.0);
    (world, faults)
}

#[test]
fn a_calm_fleet_answers_everything() {
    let (world, faults) = faults(WorldSettings { hosts: 6, models: 8, faults: false, ..SMALL });
    assert_eq!(faults, checker::Faults::default());
    assert!(world.answered > 100 && world.refused == 0, "{} {}", world.answered, world.refused);
}

#[test]
fn two_hundred_hosts_with_faults_over_commit_nothing() {
    let settings = WorldSettings { hosts: 200, models: 300, seconds: 6, pause: 30, seed: 7, ..SMALL };
    let (world, faults) = faults(settings);
    assert_eq!(faults, checker::Faults::default());
    assert!(world.answered > 200 && world.unknown > 100, "{} {}", world.answered, world.unknown);
}

/// Faults that a history without this compare shows, over some seeds.
fn caught(guard: ClaimGuard) -> u64 {
    let worlds = (1..=24).map(|seed| {
        let settings =
            WorldSettings { hosts: 4, seconds: 30, pause: 150, without: Some(guard), seed, ..SMALL };
        let history = World::new(settings).run().store.history;
        checker::check(&history).0.values().sum::<u64>()
    });
    worlds.sum()
}

#[test]
fn the_checker_catches_a_claim_without_its_compare_of_the_host() {
    assert!(caught(ClaimGuard::Host) > 0);
}

#[test]
fn the_checker_catches_a_claim_without_its_compare_of_the_turn() {
    assert!(caught(ClaimGuard::Turn) > 0);
}

#[test]
fn the_checker_catches_a_claim_without_its_compare_of_the_drain() {
    assert!(caught(ClaimGuard::Drain) > 0);
}

#[test]
fn a_host_that_writes_before_its_lease_comes_is_caught() {
    let kind = "a host registered without a lease";
    let (mut registered, mut world) = (0, WorldSettings { hosts: 4, seconds: 10, ..SMALL });
    for seed in 1..=8 {
        world = WorldSettings { seed, ..world };
        assert!(!faults(world).1.0.contains_key(kind), "seed {seed}");
        let (_, without) = faults(WorldSettings { without_lease: true, ..world });
        registered += without.0.get(kind).copied().unwrap_or_default();
    }
    assert!(registered > 0, "no grant came later than the reading of the store");
}

#[test]
fn models_with_two_seats_over_commit_nothing() {
    let mut answered = 0;
    for seed in 1..=8 {
        let settings = WorldSettings { hosts: 5, replicas: 4, seconds: 20, pause: 300, seed, ..SMALL };
        let (world, faults) = faults(settings);
        assert_eq!(faults, checker::Faults::default(), "seed {seed}");
        answered += world.answered;
    }
    assert!(answered > 200, "{answered}");
}

#[test]
fn a_crowded_model_gets_a_second_seat_and_no_third() {
    for replicas in [0, 1] {
        let crowd = WorldSettings { hosts: 4, models: 1, replicas, faults: false, clients: 400, ..SMALL };
        let (world, faults) = faults(crowd);
        assert_eq!(faults, checker::Faults::default());
        let numbers = world.store.history.iter().filter_map(|change| match &change.key {
            FleetKey::Seat { number, .. } => Some(u64::from(*number)),
            _ => None,
        });
        assert_eq!(numbers.max(), Some(replicas), "a model may have as many as the configuration says");
        assert!(world.answered > 500 && world.refused == 0, "{} {}", world.answered, world.refused);
    }
}

const RACK: RackSettings = RackSettings {
    hosts: 1000,
    dead: 50,
    models_a_host: 10,
    routers: 8,
    requested_within: Duration::from_secs(5),
    seed: 1,
};

/// Every model of the dead hosts is seated elsewhere, few transactions are lost, and no claim takes long.
#[allow(clippy::print_stdout, reason = "figures of the run")]
fn outlives(settings: RackSettings) {
    let figures = Rack::run(settings);
    println!(
        "{} hosts, {} die: {} of {} models back, {} transactions, {} % lost; a claim takes {:?} (p50), {:?} (p99), \
        {:?} at most",
        settings.hosts,
        settings.dead,
        figures.back,
        figures.requested,
        figures.applied + figures.lost,
        figures.lost_percent(),
        figures.percentile(50),
        figures.percentile(99),
        figures.times.last().copied().unwrap_or_default(),
    );
    assert_eq!(figures.back, figures.requested);
    assert!(figures.lost_percent() <= 15, "{} %", figures.lost_percent());
    assert!(figures.percentile(99) < Duration::from_millis(50), "{:?}", figures.percentile(99));
}

#[test]
fn the_models_of_fifty_hosts_that_die_at_once_are_back() {
    outlives(RACK);
}

#[test]
fn long_death_of_five_hundred_of_ten_thousand_hosts() {
    let requested_within = Duration::from_secs(10);
    outlives(RackSettings { hosts: 10_000, dead: 500, requested_within, seed: 2, ..RACK });
    outlives(RackSettings { hosts: 10_000, dead: 500, routers: 16, requested_within, seed: 3, ..RACK });
}

/// Hosts that lost the store together ask it as fast as it answers, and no faster.
#[allow(clippy::print_stdout, reason = "figures of the run")]
fn comes_back(hosts: usize, watchers: usize, whole: Duration) -> returns::ReturnFigures {
    let figures = returns::run(hosts, watchers);
    println!("{hosts} hosts come back at once, {watchers} may watch the store: {figures:?}");
    assert!(figures.backlog <= Duration::from_secs(1), "{figures:?}");
    assert!(figures.whole <= whole, "{figures:?}");
    figures
}

#[test]
fn a_thousand_hosts_that_come_back_at_once_do_not_fall_on_the_store() {
    comes_back(3, 300, Duration::from_secs(2));
    comes_back(300, 300, Duration::from_secs(10));
    let large = comes_back(1000, 300, Duration::from_secs(30));
    assert!(large.readings <= 100, "{large:?}");
    // All of them at the store, which is what the configuration may say.
    comes_back(1000, 1000, Duration::from_secs(90));
}

#[test]
fn long_return_of_ten_thousand_hosts_at_once() {
    comes_back(10_000, 300, Duration::from_secs(240));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_seed_over_commits_a_host(seed in any::<u64>(), hosts in 2_usize..7, models in 3_u64..14) {
        let (_, faults) = faults(WorldSettings { hosts, models, seed, ..SMALL });
        prop_assert_eq!(faults, checker::Faults::default());
    }
}
