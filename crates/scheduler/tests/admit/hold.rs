//! Tests of the hold, by which a model keeps its memory between two requests while its clients go on.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_scheduler::{ModelState, RequestId, RunId, SchedulerEffect, SchedulerEvent};

use crate::runner::admit::desk::Desk;

fn wait(desk: &mut Desk, milliseconds: u64) {
    desk.now = desk.now + Duration::from_millis(milliseconds);
    desk.send(SchedulerEvent::Tick);
}

fn call(desk: &mut Desk, model: u32) {
    let request = desk.ask(model);
    assert_eq!(desk.dispatched(), [request]);
    desk.finish(request);
}

/// Two models of which one fits. The first one's client has called three times, with a pause of 300 ms.
fn with_an_agent(hold: u64) -> (Desk, RunId) {
    let mut desk = Desk::tuned(&[10], &[6, 6], |_, spec| spec.hold = Duration::from_secs(hold));
    let run = desk.loaded(0);
    for _ in 0..2 {
        wait(&mut desk, 300);
        call(&mut desk, 0);
    }
    (desk, run)
}

#[test]
fn a_model_stays_while_its_client_goes_on_and_leaves_when_it_does_not() {
    let (mut desk, run) = with_an_agent(10);
    let until = desk.now + Duration::from_millis(700);
    assert_eq!(desk.view(0).kept_until, Some(until));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), []);
    wait(&mut desk, 300);
    assert_eq!(desk.stopped(), []);
    call(&mut desk, 0);
    assert_eq!(desk.stopped(), []);
    wait(&mut desk, 699);
    assert_eq!(desk.stopped(), []);
    wait(&mut desk, 1);
    assert_eq!(desk.stopped().iter().map(|(run, _)| *run).collect::<Vec<_>>(), [run]);
}

#[test]
fn a_client_that_has_called_twice_holds_nothing() {
    let mut desk = Desk::new(&[10], &[6, 6]);
    let run = desk.loaded(0);
    wait(&mut desk, 20);
    call(&mut desk, 0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped().len(), 1, "{run:?}");
}

#[test]
fn a_client_that_uses_two_models_in_turn_waits_for_no_hold() {
    let mut desk = Desk::new(&[10], &[6, 6]);
    desk.loaded(0);
    for turn in 0..6 {
        let model = (turn + 1) % 2;
        wait(&mut desk, 20);
        let request = desk.ask(model);
        desk.surveyed(model);
        let stopped = desk.stopped();
        assert_eq!(stopped.len(), 1, "turn {turn}");
        desk.gone(stopped[0].0);
        let run = desk.started().unwrap();
        wait(&mut desk, 5);
        desk.ready(run);
        desk.finish(request);
        call(&mut desk, model);
    }
}

#[test]
fn without_a_hold_an_idle_model_leaves_at_once() {
    let (mut desk, _) = with_an_agent(0);
    assert_eq!(desk.view(0).kept_until, None);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped().len(), 1);
}

#[test]
fn a_hold_bounds_one_pause_and_the_turn_bounds_them_all() {
    let (mut desk, _) = with_an_agent(10);
    let came = desk.now;
    desk.ask(1);
    desk.surveyed(1);
    while desk.stopped().is_empty() {
        wait(&mut desk, 100);
        if desk.stopped().is_empty() {
            call(&mut desk, 0);
        }
        assert!(desk.now.since(came).as_secs() <= 1);
    }
    assert_eq!(desk.now.since(came).as_secs(), 1, "the least patience, for a load that takes no time");

    let mut desk = Desk::tuned(&[10], &[6, 6], |_, spec| spec.hold = Duration::from_millis(500));
    desk.loaded(0);
    for _ in 0..2 {
        wait(&mut desk, 400);
        call(&mut desk, 0);
    }
    desk.ask(1);
    desk.surveyed(1);
    wait(&mut desk, 499);
    assert_eq!(desk.stopped(), []);
    wait(&mut desk, 1);
    assert_eq!(desk.stopped().len(), 1);
}

const STEP: u64 = 10;
const STOP: u64 = 50;
const ANSWER: u64 = 100;
const PAUSE: u64 = 300;

/// A client that calls its model, waits for the answer, and calls again after a pause.
#[derive(Debug, Default)]
struct Agent {
    request: Option<RequestId>,
    requested: u64,
    next: u64,
    answers: u64,
    longest: u64,
}

/// What becomes due, in milliseconds.
#[derive(Debug)]
enum Due {
    Ready(RunId),
    Gone(RunId),
    Answered(RequestId),
    Surveyed(u32),
}

fn follow(desk: &Desk, at: u64, load: u64, due: &mut VecDeque<(u64, Due)>) {
    due.extend(desk.started().map(|run| (at + load, Due::Ready(run))));
    due.extend(desk.dispatched().into_iter().map(|request| (at + ANSWER, Due::Answered(request))));
    due.extend(desk.stopped().into_iter().map(|(run, _)| (at + STOP, Due::Gone(run))));
    due.extend(desk.effects.iter().filter_map(|effect| match effect {
        SchedulerEffect::Survey { model, .. } => Some((at, Due::Surveyed(model.0))),
        _ => None,
    }));
}

/// Two agents for `seconds`, each with a model of its own, on a card for one.
fn two_agents(load: u64, hold: u64, seconds: u64) -> [Agent; 2] {
    let mut desk = Desk::tuned(&[10], &[6, 6], |_, spec| spec.hold = Duration::from_secs(hold));
    let mut agents = [Agent::default(), Agent::default()];
    let mut due = VecDeque::new();
    for at in (0..seconds * 1000).step_by(usize::try_from(STEP).unwrap()) {
        wait(&mut desk, STEP);
        follow(&desk, at, load, &mut due);
        let (now, later) = due.drain(..).partition(|(when, _)| *when <= at);
        due = later;
        let now: VecDeque<(u64, Due)> = now;
        for (_, event) in now {
            match event {
                Due::Ready(run) => {
                    desk.ready(run);
                }
                Due::Surveyed(model) => {
                    desk.surveyed(model);
                }
                Due::Answered(request) => {
                    desk.finish(request);
                    let agent = agents.iter_mut().find(|agent| agent.request == Some(request)).unwrap();
                    agent.answers += 1;
                    agent.longest = agent.longest.max(at - agent.requested);
                    (agent.request, agent.next) = (None, at + PAUSE);
                }
                Due::Gone(run) => {
                    desk.ended(run);
                    follow(&desk, at, load, &mut due);
                    desk.memory_returned(run);
                }
            }
            follow(&desk, at, load, &mut due);
        }
        for (model, agent) in (0..).zip(&mut agents) {
            if agent.request.is_none() && agent.next <= at {
                (agent.request, agent.requested) = (Some(desk.ask(model)), at);
                follow(&desk, at, load, &mut due);
            }
        }
    }
    agents
}

#[test]
fn two_agents_that_share_a_card_for_one_take_turns_in_proportion_to_their_loads() {
    let answers = |agents: &[Agent; 2]| agents.iter().map(|agent| agent.answers).sum::<u64>();
    assert!(answers(&two_agents(2000, 0, 240)) <= 240 * 6 / 10);
    for (load, tenths, longest) in [(2000, 18, 15_000), (8000, 14, 40_000)] {
        let agents = two_agents(load, 10, 480);
        assert!(answers(&agents) >= 480 * tenths / 10, "{agents:?}");
        let [a, b] = &agents;
        assert!(a.answers * 5 >= b.answers * 4 && b.answers * 5 >= a.answers * 4, "{agents:?}");
        assert!(agents.iter().all(|agent| agent.longest <= longest), "{agents:?}");
    }
}

/// Two models of which one fits. The first took 2 s to load and has just answered two clients.
fn loaded_for_two() -> (Desk, RunId) {
    let mut desk = Desk::new(&[10], &[6, 6]);
    let requests = [desk.ask(0), desk.ask(0)];
    desk.surveyed(0);
    let run = desk.started().unwrap();
    wait(&mut desk, 2000);
    desk.ready(run);
    for request in requests {
        desk.finish(request);
    }
    (desk, run)
}

#[test]
fn an_idle_model_waits_a_quarter_of_its_load_for_further_clients() {
    let (mut desk, run) = loaded_for_two();
    desk.ask(1);
    desk.surveyed(1);
    wait(&mut desk, 499);
    assert_eq!(desk.stopped(), []);
    wait(&mut desk, 1);
    assert_eq!(desk.stopped()[0].0, run);
}

#[test]
fn an_idle_model_leaves_at_once_when_every_client_waits_for_others() {
    let (mut desk, run) = loaded_for_two();
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), []);
    desk.ask(1);
    assert_eq!(desk.stopped()[0].0, run);
}

#[test]
fn a_turn_is_the_patience_and_the_time_of_a_swap() {
    let mut desk = Desk::new(&[10], &[6, 6]);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ask(1);
    desk.surveyed(1);
    wait(&mut desk, 2000);
    desk.ready(run);
    // The patience is five quarters of the load. The model that waits was never loaded, and is expected to
    // take as long as the other.
    wait(&mut desk, 2000 * 5 / 4 + 2 * 2000 - 1);
    assert_eq!(desk.state(0), ModelState::Ready);
    wait(&mut desk, 1);
    assert_eq!(desk.state(0), ModelState::Draining);
}

#[test]
fn the_model_whose_next_load_takes_least_leaves() {
    let mut desk = Desk::new(&[12], &[6, 6, 6]);
    for (model, load) in [(0, 5000), (1, 100)] {
        let request = desk.ask(model);
        desk.surveyed(model);
        let run = desk.started().unwrap();
        wait(&mut desk, load);
        desk.ready(run);
        desk.finish(request);
    }
    let quick = desk.view(1).run.unwrap();
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.stopped()[0].0, quick, "the other one was used longer ago");
}
