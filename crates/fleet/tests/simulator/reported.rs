//! Tests of one daemon that gets the fleet's records from another host, late or false, and of a daemon whose
//! store was restored.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    Affinity, Drain, FleetEffect, FleetEvent, FleetKey, FleetNode, FleetView, HostRecord, ModelOffer,
    NewsSource, NodeSettings, OfferList, Record, RunPhase, StoreChange, Transaction, TransactionOutcome,
};

use super::scripted::{Scene, read, seat, settings, settle, written};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn host(name: &str) -> NewsSource {
    NewsSource::Host { name: name.to_owned(), address: format!("{name}:1") }
}

fn notify(node: &mut FleetNode, now: Duration, event: FleetEvent) -> Vec<FleetEffect> {
    let mut effects = Vec::new();
    node.on_event(now, event, &mut effects);
    effects
}

/// A daemon that no host of the scene is, with the news of this source.
fn follower(scene: &Scene, name: &str, source: NewsSource) -> FleetNode {
    let wait = Duration::from_secs(60);
    let mut node = FleetNode::new(NodeSettings { name: name.to_owned(), watchers: 1, wait, ..settings() });
    notify(&mut node, at(0), FleetEvent::NewsFrom(source));
    notify(&mut node, at(0), read(scene));
    node
}

fn doubted(effects: &[FleetEffect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        FleetEffect::NewsDoubted { host } => Some(host.as_str()),
        _ => None,
    })
}

/// The first transaction that is asked for.
fn requested(effects: &[FleetEffect]) -> Option<(u64, Transaction)> {
    effects.iter().find_map(|effect| match effect {
        FleetEffect::Transact { operation, transaction } => Some((*operation, transaction.clone())),
        _ => None,
    })
}

/// Conflicts of the claims for a request until the source is left, and at most thirty.
fn conflicts_until_left(scene: &mut Scene, node: &mut FleetNode) -> usize {
    let (model, affinity) = ("a".to_owned(), Affinity::default());
    let (mut now, mut conflicts) = (at(1), 0);
    let mut effects = notify(node, now, FleetEvent::Wanted { request: 1, model, affinity });
    while conflicts < 30 && doubted(&effects).is_none() {
        assert!(now < at(60), "no claim after {conflicts} conflicts");
        effects = match requested(&effects) {
            Some((operation, transaction)) => {
                let outcome = scene.store.apply(&transaction, 0);
                assert_eq!(outcome, TransactionOutcome::Conflict);
                conflicts += 1;
                notify(node, now, FleetEvent::Transacted { operation, outcome })
            }
            None => {
                now += Duration::from_millis(5);
                notify(node, now, FleetEvent::Tick)
            }
        };
    }
    conflicts
}

#[test]
fn a_host_whose_news_let_claims_conflict_is_left_for_the_store() {
    for source in [host("h2"), NewsSource::Store] {
        let mut scene = Scene::new(None);
        let mut node = follower(&scene, "h3", source.clone());
        // It is told nothing of what happens from now on.
        for name in ["h1", "h2"] {
            let record = scene.view().hosts[name].record.write();
            scene.store.put(FleetKey::Host(name.to_owned()), Some(record));
        }
        let conflicts = conflicts_until_left(&mut scene, &mut node);
        match source {
            NewsSource::Store => assert_eq!(conflicts, 30, "the store is not doubted"),
            NewsSource::Host { .. } => {
                assert_eq!(conflicts, 8);
                let source = |node: &mut FleetNode, seconds| node.source(at(seconds), 0);
                assert_eq!(source(&mut node, 1), NewsSource::Store);
                assert_eq!(source(&mut node, 3500), NewsSource::Store);
            }
        }
    }
}

#[test]
fn a_claim_that_conflicts_again_and_again_waits_longer_each_time() {
    let mut scene = Scene::new(None);
    let mut node = follower(&scene, "h3", NewsSource::Store);
    for name in ["h1", "h2"] {
        let record = scene.view().hosts[name].record.write();
        scene.store.put(FleetKey::Host(name.to_owned()), Some(record));
    }
    let (model, affinity) = ("a".to_owned(), Affinity::default());
    let mut requested = 0;
    let mut effects = notify(&mut node, at(1), FleetEvent::Wanted { request: 1, model, affinity });
    for tick in 0..1000 {
        let now = at(1) + Duration::from_millis(tick);
        let transactions: Vec<u64> = effects
            .iter()
            .filter_map(|effect| match effect {
                FleetEffect::Transact { operation, .. } => Some(*operation),
                _ => None,
            })
            .collect();
        requested += transactions.len();
        effects = notify(&mut node, now, FleetEvent::Tick);
        for operation in transactions {
            let outcome = TransactionOutcome::Conflict;
            effects.extend(notify(&mut node, now, FleetEvent::Transacted { operation, outcome }));
        }
    }
    assert!((4..=20).contains(&requested), "{requested} transactions in a second");
}

/// A host with a model under a seat, and its lease.
fn holder(scene: &mut Scene) -> (FleetNode, u64) {
    let need = Bytes::gib(6);
    let mut node = FleetNode::new(NodeSettings { name: "h3".to_owned(), ..settings() });
    let lease = scene.store.grant(Duration::MAX);
    let models = [("big".to_owned(), ModelOffer { file: None, need })].into_iter().collect();
    let offers = FleetEvent::Offers { digest: "q".to_owned(), list: OfferList { models } };
    let run = FleetEvent::Run { model: "big".to_owned(), run: Some((RunPhase::Ready, need)), idle: true };
    for event in [FleetEvent::Leased, offers, run.clone()] {
        settle(&mut node, scene, lease, event);
    }
    let event = read(scene);
    settle(&mut node, scene, lease, event);
    settle(&mut node, scene, lease, run);
    let event = read(scene);
    settle(&mut node, scene, lease, event);
    assert!(node.occupied().all(|(_, token, _)| token.is_some()));
    (node, lease)
}

fn change(scene: &Scene, key: FleetKey, value: Option<Vec<u8>>) -> FleetEvent {
    FleetEvent::Changed(vec![StoreChange { key, revision: scene.store.revision, value }])
}

/// Answers what the daemon asks of its seats with what the store has.
fn confirm(node: &mut FleetNode, scene: &Scene, now: Duration, effects: &[FleetEffect]) -> Vec<FleetEffect> {
    let requested = effects.iter().filter_map(|effect| match effect {
        FleetEffect::ReadSeat { operation, model } => Some((*operation, model.clone())),
        _ => None,
    });
    let requested: Vec<(u64, String)> = requested.collect();
    let seats = |model: &str| Some(scene.store.seats(model));
    let answer = |(operation, model): &(u64, String)| FleetEvent::SeatRead {
        operation: *operation,
        seats: seats(model),
    };
    requested.iter().flat_map(|requested| notify(node, now, answer(requested))).collect()
}

fn releases(effects: &[FleetEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, FleetEffect::Release { .. }))
}

#[test]
fn a_host_that_reports_lost_seats_unloads_nothing_and_is_left() {
    let mut scene = Scene::new(None);
    let (mut node, _) = holder(&mut scene);
    notify(&mut node, at(1), FleetEvent::NewsFrom(host("h2")));
    notify(&mut node, at(1), read(&scene));
    let occupied: Vec<(String, Option<u64>)> =
        node.occupied().map(|(model, token, _)| (model.to_owned(), token)).collect();
    // It is told once, and the daemon looks again and again.
    let mut effects = notify(&mut node, at(2), change(&scene, seat("big"), None));
    let mut left = None;
    for second in 2..10 {
        assert!(!releases(&effects), "{effects:?}");
        let answered = confirm(&mut node, &scene, at(second), &effects);
        assert!(!releases(&answered), "{answered:?}");
        if doubted(&answered) == Some("h2") && answered.contains(&FleetEffect::LeaveSource) {
            left = Some(second);
            break;
        }
        effects = notify(&mut node, at(second + 1), FleetEvent::Tick);
    }
    assert_eq!(left, Some(4), "after three confirmations");
    // The store itself is read, and all is as before.
    notify(&mut node, at(5), FleetEvent::NewsFrom(NewsSource::Store));
    let effects = notify(&mut node, at(5), read(&scene));
    assert!(!releases(&effects), "{effects:?}");
    let now: Vec<(String, Option<u64>)> =
        node.occupied().map(|(model, token, _)| (model.to_owned(), token)).collect();
    assert_eq!(now, occupied);
}

#[test]
fn a_seat_that_was_lost_in_truth_is_lost_by_the_news_of_a_host_too() {
    let mut scene = Scene::new(None);
    let (mut node, _) = holder(&mut scene);
    notify(&mut node, at(1), FleetEvent::NewsFrom(host("h2")));
    notify(&mut node, at(1), read(&scene));
    scene.store.put(seat("big"), None);
    let requested = notify(&mut node, at(2), change(&scene, seat("big"), None));
    assert!(!releases(&requested), "{requested:?}");
    let answered = confirm(&mut node, &scene, at(2), &requested);
    assert!(releases(&answered) && doubted(&answered).is_none(), "{answered:?}");
    assert!(node.occupied().all(|(_, token, _)| token.is_none()));
}

#[test]
fn a_seat_that_only_a_host_reports_is_neither_adopted_nor_given_up() {
    let mut scene = Scene::new(None);
    let (mut node, lease) = holder(&mut scene);
    let mine = scene.store.seat("big").unwrap().record;
    notify(&mut node, at(1), FleetEvent::NewsFrom(host("h2")));
    notify(&mut node, at(1), read(&scene));
    let key = FleetKey::Seat { model: "other".to_owned(), number: 0 };
    let lie = StoreChange { key, revision: u64::MAX, value: Some(mine.write()) };
    let mut effects = notify(&mut node, at(2), FleetEvent::Changed(vec![lie]));
    let mut is_left = false;
    for second in 2..30 {
        assert!(written(&effects).iter().all(|write| write.value.is_some()), "{effects:?}");
        let answered = confirm(&mut node, &scene, at(second), &effects);
        is_left |= doubted(&answered) == Some("h2");
        effects = notify(&mut node, at(second + 1), FleetEvent::Tick);
    }
    assert!(is_left);
    // The model can be seated here later: no token of the lie is burnt.
    notify(&mut node, at(31), FleetEvent::NewsFrom(NewsSource::Store));
    let event = read(&scene);
    settle(&mut node, &mut scene, lease, event);
    assert_eq!(node.occupied().count(), 1);
}

#[test]
fn a_reading_of_another_history_is_that_of_a_restored_store() {
    let scene = Scene::new(None);
    let mut node = follower(&scene, "h3", NewsSource::Store);
    let before = node.incarnation().to_owned();
    let again = notify(&mut node, at(1), read(&scene));
    assert!(!again.contains(&FleetEffect::StoreRestored), "the same reading is none");
    // The store is restored without the last record, and has written others since, as many and more.
    let lost = scene.view().host("h2").cloned().unwrap();
    let mut records = scene.store.all();
    records.retain(|record| record.key != FleetKey::Host("h2".to_owned()));
    let revision = scene.store.revision;
    let other = Record::new(HostRecord { incarnation: "another".to_owned(), ..lost }).write();
    records.push(StoreChange { key: FleetKey::Host("h2".to_owned()), revision, value: Some(other) });
    let effects = notify(&mut node, at(2), FleetEvent::Read { revision: revision + 9, records });
    assert!(effects.contains(&FleetEffect::StoreRestored), "{effects:?}");
    assert_ne!(node.incarnation(), before, "tokens of the former life are worth nothing");
    assert_eq!(node.view.host("h2").unwrap().incarnation, "another");
}

#[test]
fn an_answer_of_a_former_life_reports_nothing_of_the_restored_store() {
    let mut scene = Scene::new(None);
    let mut node = follower(&scene, "h3", NewsSource::Store);
    let (model, affinity) = ("a".to_owned(), Affinity::default());
    let effects = notify(&mut node, at(1), FleetEvent::Wanted { request: 1, model, affinity });
    let (operation, transaction) = requested(&effects).expect("a claim");
    let TransactionOutcome::Applied(revision) = scene.store.apply(&transaction, 0) else { panic!() };
    notify(&mut node, at(1), FleetEvent::StoreWentBack);
    let outcome = TransactionOutcome::Applied(revision);
    notify(&mut node, at(2), FleetEvent::Transacted { operation, outcome });
    assert_eq!(node.applied(), 0);
    // In its own life it does: an earlier reading is none of this store.
    notify(&mut node, at(3), read(&scene));
    let (model, affinity) = ("b".to_owned(), Affinity::default());
    let effects = notify(&mut node, at(3), FleetEvent::Wanted { request: 2, model, affinity });
    let (operation, transaction) = requested(&effects).expect("a claim");
    let outcome = scene.store.apply(&transaction, 0);
    notify(&mut node, at(3), FleetEvent::Transacted { operation, outcome });
    assert_eq!(node.applied(), scene.store.revision);
}

#[test]
fn of_two_hosts_that_contradict_each_other_the_store_reports_which_one_lied() {
    let scene = Scene::new(None);
    let mut lies = scene.store.all();
    let revision = scene.store.revision;
    let drain = Record::new(Drain { leave: true }).write();
    lies.push(StoreChange { key: FleetKey::Drain("h1".to_owned()), revision, value: Some(drain) });
    lies.retain(|record| record.key != FleetKey::Host("h2".to_owned()));
    let mut node = FleetNode::new(NodeSettings { name: "h3".to_owned(), ..settings() });
    notify(&mut node, at(0), FleetEvent::NewsFrom(host("h1")));
    notify(&mut node, at(0), FleetEvent::Read { revision, records: lies.clone() });
    notify(&mut node, at(1), FleetEvent::NewsFrom(host("h2")));
    let effects = notify(&mut node, at(1), read(&scene));
    assert_eq!((doubted(&effects), effects.contains(&FleetEffect::LeaveSource)), (None, true), "{effects:?}");
    assert!(node.view.drains("h1"), "neither is believed yet");
    notify(&mut node, at(2), FleetEvent::NewsFrom(NewsSource::Store));
    let before = node.incarnation().to_owned();
    let effects = notify(&mut node, at(2), read(&scene));
    assert_eq!(doubted(&effects), Some("h1"));
    assert!(!node.view.drains("h1") && node.incarnation() == before, "its own life goes on");
    // What contradicts the store itself is not taken at all.
    notify(&mut node, at(3), FleetEvent::NewsFrom(host("h4")));
    let effects = notify(&mut node, at(3), FleetEvent::Read { revision, records: lies });
    assert_eq!((doubted(&effects), node.view.drains("h1")), (Some("h4"), false));
}

#[test]
fn news_from_before_a_restore_is_doubted_only_without_an_outage_of_the_store() {
    let scene = Scene::new(None);
    let mut later = scene.store.all();
    let revision = scene.store.revision + 1;
    let drain = Record::new(Drain { leave: true }).write();
    later.push(StoreChange { key: FleetKey::Drain("h1".to_owned()), revision, value: Some(drain) });
    let mut records = scene.store.all();
    let stays = Record::new(Drain { leave: false }).write();
    records.push(StoreChange { key: FleetKey::Drain("h1".to_owned()), revision, value: Some(stays) });
    let restored = FleetEvent::Read { revision: revision + 1, records };
    for is_silent in [true, false] {
        let mut node = FleetNode::new(NodeSettings { name: "h3".to_owned(), ..settings() });
        notify(&mut node, at(0), FleetEvent::NewsFrom(host("h1")));
        notify(&mut node, at(0), FleetEvent::Read { revision, records: later.clone() });
        if is_silent {
            notify(&mut node, at(1), FleetEvent::StoreSilent { cause: "no connection".to_owned() });
            // Meanwhile the host tells its news again.
            notify(&mut node, at(1), FleetEvent::NewsFrom(host("h1")));
            notify(&mut node, at(1), FleetEvent::Read { revision, records: later.clone() });
        }
        let before = node.incarnation().to_owned();
        notify(&mut node, at(2), FleetEvent::NewsFrom(NewsSource::Store));
        let effects = notify(&mut node, at(2), restored.clone());
        let is_restored = effects.contains(&FleetEffect::StoreRestored);
        assert_eq!((is_restored, node.incarnation() != before), (is_silent, is_silent), "{effects:?}");
        assert_eq!(doubted(&effects), (!is_silent).then_some("h1"));
    }
}

#[test]
fn a_state_that_only_this_host_writes_and_that_has_gone_back_shows_a_restored_store() {
    let mut scene = Scene::new(None);
    let (mut node, _) = holder(&mut scene);
    notify(&mut node, at(2), FleetEvent::NewsFrom(host("h2")));
    notify(&mut node, at(2), read(&scene));
    notify(&mut node, at(3), FleetEvent::NewsFrom(NewsSource::Store));
    let mut records = scene.store.all();
    let own = FleetKey::State("h3".to_owned());
    let state = records.iter_mut().find(|record| record.key == own).expect("the state is published");
    state.revision -= 1;
    let effects = notify(&mut node, at(3), FleetEvent::Read { revision: scene.store.revision, records });
    assert!(effects.contains(&FleetEffect::StoreRestored) && doubted(&effects).is_none(), "{effects:?}");
}

#[test]
fn a_seat_that_was_given_up_and_came_back_with_a_backup_is_given_up_again_at_once() {
    let mut scene = Scene::new(None);
    let (mut node, lease) = holder(&mut scene);
    let backup = scene.store.all();
    settle(&mut node, &mut scene, lease, FleetEvent::Run { model: "big".to_owned(), run: None, idle: false });
    assert!(scene.store.seat("big").is_none(), "it was given up");
    // A view that was late when the store was restored shows no contradiction.
    node.view = FleetView::default();
    let restored = FleetEvent::Read { revision: scene.store.revision + 1, records: backup };
    let effects = notify(&mut node, at(2), restored);
    assert!(!effects.contains(&FleetEffect::StoreRestored), "{effects:?}");
    let effects = notify(&mut node, at(4), FleetEvent::Tick);
    let key = FleetKey::Seat { model: "big".to_owned(), number: 0 };
    let deletes = |effect: &FleetEffect| matches!(effect, FleetEffect::Transact { transaction, .. } if transaction.writes.iter().any(|write| write.key == key && write.value.is_none()));
    assert!(effects.iter().any(deletes), "{effects:?}");
}

#[test]
fn only_the_store_itself_takes_a_hosts_name() {
    let mut scene = Scene::new(None);
    let (mut node, _) = holder(&mut scene);
    let mut record = scene.view().hosts["h3"].record.clone();
    record.body.machine = "a stranger".to_owned();
    for (source, is_taken) in [(host("h2"), false), (NewsSource::Store, true)] {
        notify(&mut node, at(1), FleetEvent::NewsFrom(source));
        notify(&mut node, at(1), read(&scene));
        let key = FleetKey::Host("h3".to_owned());
        let value = Some(record.write());
        let revision = scene.store.revision;
        notify(&mut node, at(1), FleetEvent::Changed(vec![StoreChange { key, revision, value }]));
        let effects = notify(&mut node, at(20), FleetEvent::Leased);
        let taken = effects.iter().any(|effect| matches!(effect, FleetEffect::NameTaken { .. }));
        assert_eq!((taken, doubted(&effects)), (is_taken, (!is_taken).then_some("h2")), "{effects:?}");
    }
}
