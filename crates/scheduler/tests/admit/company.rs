//! Tests of groups and sets: models that may not run together load one after the other, however much memory
//! is free.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_base::{Company, ModelGroup};
use plimsoll_scheduler::{ModelId, RequestRefusalKind, Stopping};

use crate::runner::admit::desk::Desk;

fn group(name: &str, swap: bool, exclusive: bool, persistent: bool) -> Company {
    Company { group: Some(ModelGroup { name: name.into(), swap, exclusive, persistent }), sets: None }
}

/// A large card and four small models: two that swap, one that unloads the others, and one of no group.
fn desk(persistent: bool) -> Desk {
    Desk::tuned(&[80], &[1, 1, 1, 1], move |id, spec| {
        spec.company = match id {
            0 | 1 => group("pair", true, false, persistent),
            2 => group("lone", false, true, false),
            _ => Company::default(),
        };
    })
}

#[test]
fn a_model_of_a_group_that_swaps_leaves_for_the_next_and_says_why() {
    for persistent in [false, true] {
        let mut desk = desk(persistent);
        let first = desk.loaded(0);
        let free = desk.loaded(3);
        assert!(first != free && desk.stopped().is_empty());
        desk.ask(1);
        desk.surveyed(1);
        assert_eq!(desk.stopped(), [(first, Stopping::Graceful)], "persistent: {persistent}");
        let why = desk.scheduler.at(desk.now).stop_reason(first).unwrap().to_string();
        assert!(why.starts_with("m1 is to be loaded, and both may not run at once"), "{why}");
        let (_, wait) = desk.scheduler.state().wait_reason(ModelId(1)).unwrap();
        assert!(wait.to_string().starts_with("the model waits until m0 is unloaded"), "{wait}");
        let line = desk.scheduler.at(desk.now).wait_line(ModelId(1)).unwrap();
        assert!(line.starts_with("waiting until m0 is unloaded"), "{line}");
        desk.ended(first);
        assert!(desk.started().is_some());
    }
}

#[test]
fn an_exclusive_group_unloads_all_others_but_persistent_ones() {
    let mut desk = desk(false);
    let (swapped, free) = (desk.loaded(0), desk.loaded(3));
    desk.ask(2);
    desk.surveyed(2);
    let mut stopped = desk.stopped();
    stopped.sort_by_key(|(run, _)| run.0);
    assert_eq!(stopped, [(swapped, Stopping::Graceful), (free, Stopping::Graceful)]);

    let mut desk = self::desk(true);
    let (kept, free) = (desk.loaded(0), desk.loaded(3));
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.stopped(), [(free, Stopping::Graceful)]);
    assert_ne!(kept, free);
}

#[test]
fn nothing_outside_a_persistent_group_has_its_models_leave_for_memory() {
    let mut desk = Desk::tuned(&[4], &[3, 3, 3], |id, spec| {
        spec.company = if id < 2 { group("kept", true, false, true) } else { Company::default() };
    });
    let first = desk.loaded(0);
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NoRoom);
    assert_eq!(desk.stopped(), []);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(first, Stopping::Graceful)]);
}

#[test]
fn two_of_a_group_that_come_at_once_load_one_after_the_other() {
    let mut desk = desk(false);
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(0);
    let first = desk.started().unwrap();
    desk.surveyed(1);
    assert_eq!((desk.started(), desk.stopped()), (None, vec![]));
    desk.ready(first);
    assert_eq!(desk.started(), None);
}

#[test]
fn a_model_leaves_that_is_in_no_set_with_the_newcomer() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let sets: Arc<[_]> = [set(&["m0", "m1"]), set(&["m1", "m2"])].into();
    let mut desk = Desk::tuned(&[80], &[1, 1, 1], move |_, spec| {
        spec.company = Company { group: None, sets: Some(Arc::clone(&sets)) };
    });
    let (first, second) = (desk.loaded(0), desk.loaded(1));
    assert!(first != second && desk.stopped().is_empty());
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.stopped(), [(first, Stopping::Graceful)]);
}
