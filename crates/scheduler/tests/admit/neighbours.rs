//! Tests of requests to other processes under guard (the preloaded library) to release idle memory, before a
//! model is stopped.

use plimsoll_base::{Bytes, CardId};
use plimsoll_scheduler::{ModelId, ModelState, RequestRefusalKind, SchedulerEffect, SchedulerEvent};

use crate::runner::admit::desk::{Desk, gib};

/// The models for which the last event had neighbours asked.
fn requested(desk: &Desk) -> Vec<ModelId> {
    let requested = desk.effects.iter().filter_map(|effect| match effect {
        SchedulerEffect::AskNeighbours { model } => Some(*model),
        _ => None,
    });
    requested.collect()
}

fn free(desk: &mut Desk, bytes: Bytes) {
    desk.read(vec![(CardId::new("card0"), bytes)]);
}

#[test]
fn no_run_is_stopped_where_a_neighbour_frees_enough() {
    let mut desk = Desk::with_neighbours(&[20], &[8, 8]);
    let run = desk.loaded(0);
    // A stranger holds 8 GiB, of which some lie idle.
    desk.send(SchedulerEvent::Measured { run, used: vec![(CardId::new("card0"), gib(8))] });
    free(&mut desk, gib(4));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(requested(&desk), [ModelId(1)]);
    assert_eq!((desk.stopped(), desk.started()), (Vec::new(), None));
    free(&mut desk, gib(4));
    assert_eq!((desk.stopped(), requested(&desk)), (Vec::new(), Vec::new()), "once");
    free(&mut desk, gib(10));
    assert!(desk.started().is_some());
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.send(SchedulerEvent::NeighboursRequested { model: ModelId(1) });
    assert!(desk.effects.is_empty(), "the answer comes too late to matter");
}

#[test]
fn idle_runs_stop_where_no_neighbour_frees_enough() {
    let mut desk = Desk::with_neighbours(&[20], &[16, 16]);
    let run = desk.loaded(0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((requested(&desk), desk.stopped()), (vec![ModelId(1)], Vec::new()));
    desk.send(SchedulerEvent::NeighboursRequested { model: ModelId(1) });
    assert_eq!(desk.stopped().len(), 1);
    assert_eq!(requested(&desk), []);
    desk.gone(run);
    assert!(desk.started().is_some());
}

#[test]
fn neighbours_are_asked_before_no_room_and_not_before_never_fits() {
    let mut desk = Desk::with_neighbours(&[20], &[8, 30]);
    free(&mut desk, gib(1));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(requested(&desk), []);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NeverFits);
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!((requested(&desk), desk.refusals().len()), (vec![ModelId(0)], 0));
    desk.send(SchedulerEvent::NeighboursRequested { model: ModelId(0) });
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NoRoom);
}

#[test]
fn nobody_is_asked_for_what_fits_or_where_there_is_nobody() {
    let mut desk = Desk::with_neighbours(&[20], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!(requested(&desk), []);
    assert!(desk.started().is_some());
    let mut alone = Desk::new(&[20], &[16, 16]);
    alone.loaded(0);
    alone.ask(1);
    alone.surveyed(1);
    assert_eq!((requested(&alone), alone.stopped().len()), (Vec::new(), 1));
}
