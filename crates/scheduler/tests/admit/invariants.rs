//! Property tests of the scheduler's invariants, on a simulated machine with random faults.

use plimsoll_base::Priority;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::runner::admit::desk::PATIENCE;
use crate::runner::admit::script::{
    Action, CONTEXT, COUNT, Client, Fate, Grows, Need, PlanFate, RETURN, STOP, SURVEY,
};
use crate::runner::admit::world::World;

const MODELS: u32 = 5;

fn need() -> impl Strategy<Value = Need> {
    let gib = prop_oneof![1 => Just(None), 9 => (0_u64..14).prop_map(Some)];
    let ttl = prop::option::weighted(0.3, 500_u64..20_000);
    let concurrency = prop::option::weighted(0.4, 1_u32..4);
    (
        gib,
        prop::bool::weighted(0.1),
        concurrency,
        ttl,
        prop::bool::weighted(0.05),
        prop::option::weighted(0.6, grows()),
        prop::sample::select(Priority::ALL.to_vec()),
        0_u64..10,
        (prop::option::weighted(0.2, 1_u32..6), prop::bool::weighted(0.2)),
    )
        .prop_map(
            |(gib, pinned, concurrency, ttl, survey_fails, grows, priority, host, (most, measures))| Need {
                gib,
                pinned,
                concurrency,
                ttl,
                survey_fails,
                grows,
                priority,
                host,
                most,
                measures,
            },
        )
}

fn grows() -> impl Strategy<Value = Grows> {
    (1_u64..10, 1_u64..5, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(gib, slots, unified, keeps, elastic)| Grows { gib, slots, unified, keeps, elastic })
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => (0_u64..3_000).prop_map(|load| Fate::Serves { load }),
        1 => (0_u64..2_000).prop_map(|after| Fate::CrashesLoading { after }),
        2 => (0_u64..2_000).prop_map(|after| Fate::OutOfMemory { after }),
        1 => Just(Fate::NeverReady),
        1 => Just(Fate::Unstartable),
        2 => (0_u64..2_000, 0_u64..5_000, any::<bool>())
            .prop_map(|(load, after, out_of_memory)| Fate::DiesServing { load, after, out_of_memory }),
        1 => (0_u64..2_000).prop_map(|load| Fate::Stubborn { load }),
        1 => (0_u64..2_000, 0_u64..5_000).prop_map(|(load, after)| Fate::Poisoned { load, after }),
    ]
}

fn plan_fate() -> impl Strategy<Value = PlanFate> {
    prop_oneof![
        4 => Just(PlanFate::Answers),
        2 => (1_u64..4_000).prop_map(PlanFate::Late),
        1 => Just(PlanFate::OtherCards),
        1 => any::<u8>().prop_map(PlanFate::Nonsense),
        1 => Just(PlanFate::OtherSearch),
        1 => Just(PlanFate::Never),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let model = || 0..MODELS;
    prop_oneof![
        20 => (model(), 0_u64..4_000, 1_u64..60_000, 0..CONTEXT)
            .prop_map(|(model, takes, patient_for, prompt)| Action::Ask { model, takes, patient_for, prompt }),
        3 => (0_usize..6).prop_map(|back| Action::Leave { back }),
        2 => (0_usize..3, 0_u64..10).prop_map(|(card, gib)| Action::Foreign { card, gib }),
        3 => (0_usize..4, 1_u64..8).prop_map(|(back, gib)| Action::RequestBudget { back, gib }),
        2 => Just(Action::Measure),
        3 => (0_usize..4).prop_map(|back| Action::Sleep { back }),
        1 => model().prop_map(|model| Action::Replace { model }),
        1 => model().prop_map(|model| Action::Retune { model }),
        1 => model().prop_map(|model| Action::Remove { model }),
        1 => model().prop_map(|model| Action::Load { model }),
        1 => model().prop_map(|model| Action::Unload { model }),
        2 => (model(), 0_u64..20_000).prop_map(|(model, time)| Action::Pin { model, time }),
        2 => (0_usize..3, 0_u64..16, 0_u64..20_000)
            .prop_map(|(card, gib, time)| Action::Yield { card, gib, time }),
        1 => (0_usize..3).prop_map(|card| Action::Precedence { card }),
    ]
}

/// One world of many events: each plan answers in one of all ways, and engines have all faults.
#[test]
fn ten_thousand_events_with_plans_that_answer_late_wrongly_or_never_break_no_invariant() {
    let mut runner = TestRunner::deterministic();
    let needs = (0..MODELS).map(|_| Need { survey_fails: false, ..drawn(&mut runner, need()) }).collect();
    let fates = drawn(&mut runner, prop::collection::vec(fate(), 40));
    let plans = drawn(&mut runner, prop::collection::vec(plan_fate(), 40));
    let actions = drawn(&mut runner, prop::collection::vec((0_u64..1_500, action()), 4_000));
    let mut world = World::new(&[24, 16], needs, fates, (false, 0)).with_plans(plans);
    world.plan(&actions);
    world.run();
    assert!(world.events >= 10_000, "{} events", world.events);
    assert!(world.answered > 300, "{} answers, refused {:?}", world.answered, world.refused);
}

fn drawn<S: Strategy>(runner: &mut TestRunner, strategy: S) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}

proptest! {
    // The world checks every effect: no card is over-committed, no busy or pinned run is stopped, no dead run
    // is spoken to, every request ends exactly once, and the ledger is back to zero at the end.
    #[test]
    fn with_random_faults_the_ledger_balances_and_every_request_ends_once(
        totals in prop::collection::vec(8_u64..24, 1..4),
        needs in prop::collection::vec(need(), usize::try_from(MODELS).unwrap()),
        fates in prop::collection::vec(fate(), 1..12),
        actions in prop::collection::vec((0_u64..1_500, action()), 1..120),
        largest_first in any::<bool>(),
        models_max in 0_usize..4,
        host in any::<bool>(),
        on_port in 0_u32..4,
    ) {
        let mut world = World::new(&totals, needs, fates, (largest_first, models_max)).with_host(host).with_shared_port(on_port);
        world.plan(&actions);
        world.run();
    }

    // The same, whatever the plans of the models answer, and when. A request whose model cannot be placed for
    // want of an answer ends at its deadline.
    #[test]
    fn plans_that_answer_late_wrongly_or_never_break_no_invariant(
        totals in prop::collection::vec(8_u64..24, 1..4),
        needs in prop::collection::vec(need(), usize::try_from(MODELS).unwrap()),
        fates in prop::collection::vec(fate(), 1..12),
        plans in prop::collection::vec(plan_fate(), 1..12),
        actions in prop::collection::vec((0_u64..1_500, action()), 1..120),
        largest_first in any::<bool>(),
        host in any::<bool>(),
    ) {
        let mut world = World::new(&totals, needs, fates, (largest_first, 0)).with_host(host).with_plans(plans);
        world.plan(&actions);
        world.run();
    }

    // The bound: every model that waits at the same time may have its turn first. A turn is load, patience,
    // five quarters of a swap of two loads (two swaps for a higher priority), the longest request, stop, and
    // the memory's return. Whether the largest goes first changes nothing of it: a turn's patience is what
    // anybody may be passed for.
    #[test]
    fn no_model_starves_while_others_are_kept_busy(
        total in 12_u64..24,
        sizes in prop::collection::vec(1_u64..13, 2..6),
        clients in prop::collection::vec((0_usize..6, 100_u64..1_500), 1..12),
        load in 0_u64..3_000,
        concurrency in prop::option::weighted(0.3, 2_u32..4),
        largest_first in any::<bool>(),
        models_max in 0_usize..4,
        mixed in prop::bool::weighted(0.2),
        on_port in 0_u32..4,
    ) {
        let models = sizes.len();
        let priority = |place: usize| if mixed { Priority::ALL[place % 3] } else { Priority::Normal };
        let needs = sizes.iter().enumerate().map(|(place, gib)| Need {
            gib: Some(*gib), pinned: false, concurrency, ttl: None, survey_fails: false, grows: None,
            priority: priority(place), host: 0, most: None, measures: false,
        });
        let clients: Vec<Client> = clients
            .iter()
            .map(|(model, takes)| Client { model: u32::try_from(model % models).unwrap(), takes: *takes, prompt: 0 })
            .collect();
        let mut world = World::new(&[total], needs.collect(), vec![Fate::Serves { load }], (largest_first, models_max))
            .with_shared_port(on_port);
        // What the highest priority of model and request is ahead of the lowest.
        let ahead = if mixed { u64::try_from(Priority::Low.delay().as_millis()).unwrap() * 2 } else { 0 };
        world.with_clients(&clients, 120_000 + ahead);
        world.run();
        let longest = clients.iter().map(|client| client.takes).max().unwrap();
        // With a limit on concurrency a queue is served in rounds.
        let rounds = concurrency.map_or(1, |limit| u64::try_from(clients.len()).unwrap().div_ceil(u64::from(limit)) + 1);
        let swaps = if mixed { 6 } else { 3 } * load;
        let turn = SURVEY + load + PATIENCE * 1_000 + swaps + rounds * longest + STOP + RETURN;
        let bound = turn * (u64::try_from(models).unwrap() + 1) + ahead;
        prop_assert!(world.longest_wait <= bound, "{} > {bound} ms", world.longest_wait);
        prop_assert!(world.refused.is_empty(), "{:?}", world.refused);
        prop_assert!(world.answered > 0);
    }

    // Every request fits alone. In the worst case each client has its turn before one does, and each turn
    // needs a fresh engine.
    #[test]
    fn no_request_starves_for_its_depth_while_others_keep_their_engines_busy(
        total in 16_u64..24,
        models in prop::collection::vec((1_u64..7, grows()), 1..4),
        clients in prop::collection::vec((0_usize..4, 100_u64..1_500, 0..CONTEXT), 1..8),
        load in 0_u64..2_000,
        largest_first in any::<bool>(),
        models_max in 0_usize..4,
    ) {
        let count = models.len();
        let needs = models.iter().map(|(gib, grows)| Need {
            gib: Some(*gib), pinned: false, concurrency: None, ttl: None, survey_fails: false, grows: Some(*grows),
            priority: Priority::Normal, host: 0, most: None, measures: false,
        });
        let clients: Vec<Client> = clients
            .iter()
            .map(|(model, takes, prompt)| Client {
                model: u32::try_from(model % count).unwrap(), takes: *takes, prompt: *prompt,
            })
            .collect();
        let mut world = World::new(&[total], needs.collect(), vec![Fate::Serves { load }], (largest_first, models_max));
        world.with_clients(&clients, 120_000);
        world.run();
        let longest = clients.iter().map(|client| client.takes).max().unwrap();
        let turn = SURVEY + load + PATIENCE * 1_000 + 3 * load + 2 * longest + STOP + RETURN + COUNT;
        let bound = turn * u64::try_from(count + clients.len() + 1).unwrap();
        prop_assert!(world.longest_wait <= bound, "{} > {bound} ms", world.longest_wait);
        prop_assert!(world.refused.is_empty(), "{:?}", world.refused);
        prop_assert!(world.answered > 0);
    }
}
