//! Tests of guarantees to clients, such as the longest wait, in the simulation with realistic times.
//! [`super::table`] compares with the best schedule.

use plimsoll_base::Priority;

use super::S;
use super::engine::Life;
use super::machine::Machine;
use super::rows::*;

#[test]
fn forty_requests_of_one_key_leave_another_and_another_model_their_turns() {
    let tally = Machine::run(&forty_of_one_key(Some(4)));
    assert!(tally.slowest(1) <= 1.6 * 11.0, "{}", tally.by_key());
    assert!(tally.slowest(2) <= 1.6 * 12.4, "{}", tally.by_key());
}

#[test]
fn a_shutdown_takes_30_s_whatever_an_engine_ignores() {
    let tally = Machine::run(&shutdown());
    assert!(tally.shutdown <= 30.1, "{}", tally.line());
}

#[test]
fn two_agents_share_a_card_in_turns_in_proportion_to_their_loads() {
    for (load, least, longest) in [(2, 1.8, 15.0), (8, 1.4, 40.0)] {
        for unknown in [false, true] {
            let tally = Machine::run(&two_agents(load, unknown));
            assert!(tally.per_second() >= least, "{}", tally.line());
            assert!(tally.longest(|_, _| true) <= longest, "{}", tally.line());
            let of = |model| tally.answers(|call, _| call.model == model);
            assert!(of(0) * 5 >= of(1) * 4 && of(1) * 5 >= of(0) * 4, "{}", tally.by_model());
        }
    }
}

#[test]
fn a_client_that_gives_up_during_each_load_is_answered() {
    let tally = Machine::run(&gives_up_during_a_load());
    assert!(tally.slowest(1) <= 45.0 && tally.loads[1] == 1, "{} {}", tally.by_key(), tally.by_model());
    for gives_up in [Some(10_000), None] {
        let tally = Machine::run(&behind_a_busy_one(gives_up));
        assert!(tally.slowest(9) <= 1.6 * 25.0, "{}", tally.by_key());
    }
}

#[test]
fn ten_clients_of_five_models_are_answered_more_often_than_the_card_loads() {
    let tally = Machine::run(&five_models());
    assert!(tally.answers(|_, _| true) >= 165 && tally.p99() <= 60.0, "{}", tally.line());
}

#[test]
fn the_run_that_is_free_first_leaves() {
    for (cards, ideal) in [(vec![24], 8.0), (vec![16, 16], 9.0)] {
        let tally = Machine::run(&long_and_short(cards));
        assert!(tally.slowest(2) <= 1.6 * ideal, "{}", tally.by_key());
    }
}

#[test]
fn an_idle_victim_serves_until_the_last_of_the_others_is_free() {
    let tally = Machine::run(&idle_alongside_a_long_answer());
    assert!(tally.longest(|call, _| call.model == 1) <= 2.1, "its first load; {}", tally.by_model());
}

#[test]
fn an_idle_model_with_a_dear_load_stays_beside_a_busy_one_with_a_cheap_load() {
    let tally = Machine::run(&dear_alongside_cheap());
    assert!(tally.loads[0] <= 2, "{}", tally.by_model());
}

#[test]
fn two_crowds_take_turns_and_the_higher_priority_gets_twice_the_answers() {
    let tally = Machine::run(&two_crowds([Priority::Normal; 2]));
    assert!(tally.loads.iter().sum::<u64>() >= 10, "{}", tally.by_model());
    let tally = Machine::run(&two_crowds([Priority::High, Priority::Low]));
    let of = |model| tally.answers(|call, _| call.model == model);
    assert!(of(0) >= 2 * of(1) && of(1) >= 10, "{}", tally.by_model());
}

#[test]
fn a_preload_blocks_no_request_and_comes_back_where_there_is_room() {
    let tally = Machine::run(&request_during_a_preload());
    assert!(tally.slowest(1) <= 1.6 * 3.3, "{}", tally.by_key());
    let tally = Machine::run(&preload_comes_back());
    assert!(tally.slowest(0) <= 0.2, "{}", tally.by_key());
}

#[test]
fn the_queue_of_a_model_with_one_slot_leaves_another_model_its_turn() {
    let tally = Machine::run(&queue_at_ready());
    assert!(tally.slowest(1) <= 1.6 * 18.0, "{}", tally.by_key());
}

#[test]
fn a_hung_engine_whose_clients_have_time_outs_is_replaced() {
    let tally = Machine::run(&hung(false));
    // The third client of those who gave up began at most 10 s after the engine hung.
    assert!(tally.longest(|_, _| true) <= 40.0, "{}", tally.line());
}

#[test]
fn the_neighbour_of_a_hung_engine_is_answered_though_it_gives_up_as_well() {
    let tally = Machine::run(&hung(true));
    // The third client has given up by 39 s.
    assert!(tally.next_answer(38 * S) <= 69.0 && tally.slowest(9) <= 45.0, "{}", tally.by_key());
}

#[test]
fn an_engine_that_ignores_stops_costs_its_stop_time_once() {
    let tally = Machine::run(&ignores_stops());
    // With the whole stop time for each, there were 9.
    assert!(tally.answers(|_, _| true) >= 15, "{}", tally.line());
}

#[test]
fn a_request_that_kills_engines_costs_the_streams_of_others_once() {
    let tally = Machine::run(&poison());
    // Eight of others, once, and its own three tries.
    assert!(tally.lost_streams <= 10, "{}", tally.line());
}

#[test]
fn plain_requests_are_answered_through_four_crashes() {
    let tally = Machine::run(&crashes());
    assert_eq!((tally.refused, tally.lost_streams), (0, 0), "{}", tally.line());
}

#[test]
fn a_model_that_cannot_load_leaves_its_neighbour_four_fifths_of_its_answers() {
    let alone = Machine::run(&cannot_load_alone()).answers(|call, _| call.model == 0);
    for (after, lasts) in [(S, false), (6 * S, false), (2 * S, true)] {
        let tally = Machine::run(&cannot_load(Life::FailsToLoad { after, lasts }));
        assert!(5 * tally.answers(|call, _| call.model == 0) >= 4 * alone, "{} of {alone}", tally.line());
    }
}

#[test]
fn another_client_of_a_default_engine_waits_for_a_slot_and_not_for_a_queue() {
    let tally = Machine::run(&forty_of_one_key(None));
    assert!(tally.slowest(1) <= 1.6 * 11.0, "{}", tally.by_key());
}

#[test]
fn the_first_answer_beside_ten_cold_preloads_comes_within_nine_seconds() {
    let tally = Machine::run(&cold_preloads());
    assert!(tally.longest(|_, _| true) <= 9.0, "{}", tally.line());
}

#[test]
fn nobody_stands_behind_a_stream_of_an_engine_that_is_to_start_anew() {
    let tally = Machine::run(&starts_anew_behind_a_stream());
    assert!(tally.slowest(1) <= 12.0, "{}", tally.line());
}
