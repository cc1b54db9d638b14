//! Shows by scenarios why the store transaction that assigns a model to a host (a claim) needs each of its
//! conditions.
//!
//! Without any one of them, the checker of the history finds a violation.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    Affinity, Claim, ClaimGuard, Drain, FileDigest, FleetEffect, FleetEvent, FleetKey, FleetNode, FleetView,
    HostRecord, HostState, ModelOffer, NodeSettings, OfferList, Record, RunPhase, RunState, SeatCause,
    SeatDemand, SeatPurpose, Transaction, TransactionOutcome, Write, place,
};

use super::checker::{Faults, check};
use super::store::Store;

pub(super) const CAPACITY: Bytes = Bytes::gib(12);

pub(super) struct Scene {
    pub(super) store: Store,
    leases: Vec<u64>,
}

pub(super) fn seat(model: &str) -> FleetKey {
    FleetKey::Seat { model: model.to_owned(), number: 0 }
}

impl Scene {
    /// Two hosts, of which each has room for two models.
    pub(super) fn new(without: Option<ClaimGuard>) -> Self {
        let mut scene = Self { store: Store { without, ..Store::default() }, leases: Vec::new() };
        let offer = ModelOffer { file: None, need: Bytes::gib(6) };
        let models = ["a", "b", "c"].map(|name| (name.to_owned(), offer.clone())).into_iter().collect();
        scene.store.put(FleetKey::Offers("o".to_owned()), Some(Record::new(OfferList { models }).write()));
        for host in ["h1", "h2"] {
            scene.register(host, "1", Bytes::ZERO);
        }
        scene
    }

    fn register(&mut self, host: &str, life: &str, unseated: Bytes) {
        let lease = self.store.grant(Duration::MAX);
        let record = HostRecord {
            incarnation: format!("{host}-{life}"),
            machine: host.to_owned(),
            address: format!("{host}:1"),
            version: "1".to_owned(),
            capacity: CAPACITY,
            unseated,
            offers: "o".to_owned(),
        };
        let write = Write::put(FleetKey::Host(host.to_owned()), Record::new(record).write()).leased();
        let outcome = self.store.apply(&Transaction { compares: Vec::new(), writes: vec![write] }, lease);
        assert!(matches!(outcome, TransactionOutcome::Applied(_)));
        self.leases.push(lease);
    }

    pub(super) fn view(&self) -> FleetView {
        FleetView::at(self.store.revision, self.store.all())
    }

    pub(super) fn claim(&self, model: &str, host: &str) -> Claim {
        let demand = SeatDemand { only: Some(host), ..demand_for(model) };
        let view = self.view();
        Claim::new(&view, model, place(&view, &demand).unwrap(), "n".to_owned()).unwrap()
    }

    pub(super) fn seat(&mut self, model: &str, host: &str) {
        let claim = self.claim(model, host);
        assert!(matches!(self.store.apply(&claim.transaction, 0), TransactionOutcome::Applied(_)));
    }

    fn set_idle(&mut self, host: &str, model: &str) {
        let run = RunState { phase: RunPhase::Ready, idle: true };
        let state = HostState { runs: [(model.to_owned(), run)].into_iter().collect() };
        self.store.put(FleetKey::State(host.to_owned()), Some(Record::new(state).write()));
    }
}

/// A claim that is planned, then something happens, then the claim reaches the store.
fn play(guard: ClaimGuard, prepare: fn(&mut Scene), claimed: (&str, &str), happen: fn(&mut Scene)) {
    for without in [None, Some(guard)] {
        let mut scene = Scene::new(without);
        prepare(&mut scene);
        let claim = scene.claim(claimed.0, claimed.1);
        assert!(claim.transaction.compares.iter().any(|compare| compare.guard == guard), "{guard:?}");
        happen(&mut scene);
        let outcome = scene.store.apply(&claim.transaction, 0);
        let faults = check(&scene.store.history);
        match without {
            None => assert_eq!((outcome, faults), (TransactionOutcome::Conflict, Faults::default())),
            Some(_) => assert!(!faults.0.is_empty(), "the checker sees nothing without {guard:?}"),
        }
    }
}

#[test]
fn another_router_seats_the_model_first() {
    play(ClaimGuard::Seat, |_| {}, ("a", "h1"), |scene| scene.seat("a", "h2"));
}

#[test]
fn the_host_begins_another_life() {
    play(ClaimGuard::Host, |_| {}, ("a", "h1"), |scene| scene.register("h1", "2", Bytes::ZERO));
}

#[test]
fn the_host_comes_back_with_models_that_have_no_seat() {
    play(ClaimGuard::Host, |_| {}, ("a", "h1"), |scene| scene.register("h1", "1", Bytes::gib(8)));
}

#[test]
fn two_routers_want_the_last_memory_of_a_host() {
    let prepare = |scene: &mut Scene| scene.seat("a", "h1");
    play(ClaimGuard::Turn, prepare, ("b", "h1"), |scene| scene.seat("c", "h1"));
}

#[test]
fn the_former_host_comes_back() {
    let prepare = |scene: &mut Scene| {
        scene.seat("a", "h1");
        let lease = scene.leases[0];
        scene.store.revoke(lease);
    };
    play(ClaimGuard::FormerHost, prepare, ("a", "h2"), |scene| scene.register("h1", "1", Bytes::ZERO));
}

#[test]
fn an_operator_drains_the_host() {
    play(
        ClaimGuard::Drain,
        |_| {},
        ("a", "h1"),
        |scene| {
            let drain = Record::new(Drain { leave: true }).write();
            scene.store.put(FleetKey::Drain("h1".to_owned()), Some(drain));
        },
    );
}

#[test]
fn a_model_that_was_to_leave_has_left_and_sits_elsewhere() {
    let prepare = |scene: &mut Scene| {
        scene.seat("a", "h1");
        scene.seat("b", "h1");
        scene.set_idle("h1", "a");
    };
    play(ClaimGuard::Evicted, prepare, ("c", "h1"), |scene| {
        scene.store.put(seat("a"), None);
        scene.seat("a", "h2");
    });
}

#[test]
fn a_seat_that_a_later_version_wrote_is_not_written_over() {
    let mut scene = Scene::new(None);
    scene.seat("a", "h1");
    let mut later: Record<plimsoll_fleet::Seat> = scene.store.seat("a").unwrap().record;
    later.schema += 1;
    scene.store.put(seat("a"), Some(later.write()));
    let lease = scene.leases[0];
    scene.store.revoke(lease);
    let view = scene.view();
    let demand = demand_for("a");
    assert_eq!(Claim::new(&view, "a", place(&view, &demand).unwrap(), "n".to_owned()), None);
}

#[test]
fn a_refusal_names_every_host_with_its_reason() {
    let mut scene = Scene::new(None);
    scene.seat("a", "h1");
    scene.seat("b", "h1");
    scene.store.put(FleetKey::Drain("h2".to_owned()), Some(Record::new(Drain { leave: false }).write()));
    let demand = demand_for("c");
    let reason = place(&scene.view(), &demand).unwrap_err();
    let codes: Vec<&str> = reason.because.iter().map(|host| host.code).collect();
    assert_eq!((reason.code, codes), ("no_host", vec!["host_full", "host_drains"]));
}

#[test]
fn the_host_that_is_asked_takes_the_model_where_nothing_has_to_leave() {
    let mut scene = Scene::new(None);
    let demand = demand_for("a");
    let seated = |scene: &Scene, near: &str| {
        let drawn =
            (0..20).map(|random| place(&scene.view(), &SeatDemand { near: Some(near), random, ..demand }));
        let hosts = drawn.map(|plan| plan.unwrap().host);
        hosts.collect::<std::collections::BTreeSet<String>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!((seated(&scene, "h1"), seated(&scene, "h2")), (vec!["h1".to_owned()], vec!["h2".to_owned()]));
    scene.seat("b", "h1");
    scene.seat("c", "h1");
    assert_eq!(seated(&scene, "h1"), ["h2"], "it has no room, and the other has");
    // A named host that cannot is named with its own reason.
    scene.store.put(FleetKey::Drain("h2".to_owned()), Some(Record::new(Drain { leave: false }).write()));
    let reason = place(&scene.view(), &SeatDemand { only: Some("h2"), ..demand }).unwrap_err();
    assert_eq!(reason.text, "host 'h2' cannot take model 'a'");
    assert_eq!(
        reason.because.iter().map(|one| &*one.text).collect::<Vec<_>>(),
        ["'h2' is drained or cordoned, and accepts no more models"]
    );
}

#[test]
fn a_name_under_which_hosts_have_different_files_is_ambiguous() {
    let mut scene = Scene::new(None);
    let file = FileDigest { header: "1".to_owned(), size: Bytes::gib(5) };
    let offer = |header: &str| {
        let file = FileDigest { header: header.to_owned(), ..file.clone() };
        let offer = ModelOffer { file: Some(file), need: Bytes::gib(6) };
        OfferList { models: [("a".to_owned(), offer)].into_iter().collect() }
    };
    scene.store.put(FleetKey::Offers("p".to_owned()), Some(Record::new(offer("2")).write()));
    scene.store.put(FleetKey::Offers("o".to_owned()), Some(Record::new(offer("1")).write()));
    let demand = demand_for("a");
    assert!(place(&scene.view(), &demand).is_ok(), "both hosts have the same file");
    let mut host: Record<HostRecord> = scene.view().hosts["h2"].record.clone();
    host.body.offers = "p".to_owned();
    scene.store.put(FleetKey::Host("h2".to_owned()), Some(host.write()));
    let reason = place(&scene.view(), &demand).unwrap_err();
    assert_eq!((reason.code, reason.because.len()), ("ambiguous_model", 2));
    let named = SeatDemand { only: Some("h2"), ..demand };
    assert!(place(&scene.view(), &named).is_ok(), "an operator names the host");
}

/// A first seat for a model on any host.
fn demand_for(model: &str) -> SeatDemand<'_> {
    SeatDemand {
        model,
        only: None,
        near: None,
        purpose: SeatPurpose::Wanted,
        occupied: Bytes::ZERO,
        random: 0,
    }
}

pub(super) fn settings() -> NodeSettings {
    NodeSettings {
        name: "h1".to_owned(),
        life: "x".to_owned(),
        machine: "another machine".to_owned(),
        address: "x:1".to_owned(),
        version: "1".to_owned(),
        capacity: CAPACITY,
        seed: 1,
        wait: Duration::from_secs(1),
        watchers: usize::MAX,
    }
}

pub(super) fn read(scene: &Scene) -> FleetEvent {
    FleetEvent::Read { revision: scene.store.revision, records: scene.store.all() }
}

#[test]
fn a_second_host_of_a_name_writes_nothing_until_the_first_is_gone() {
    let mut scene = Scene::new(None);
    let (mut node, mut effects) = (FleetNode::new(settings()), Vec::new());
    node.on_event(Duration::ZERO, FleetEvent::Leased, &mut effects);
    let list = OfferList::default();
    node.on_event(Duration::ZERO, FleetEvent::Offers { digest: "q".to_owned(), list }, &mut effects);
    node.on_event(Duration::ZERO, read(&scene), &mut effects);
    assert!(effects.contains(&FleetEffect::NameTaken { address: "h1:1".to_owned() }), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, FleetEffect::Transact { .. })), "{effects:?}");
    let lease = scene.leases[0];
    scene.store.revoke(lease);
    effects.clear();
    node.on_event(Duration::from_secs(20), read(&scene), &mut effects);
    assert!(effects.iter().any(|effect| matches!(effect, FleetEffect::Transact { .. })), "{effects:?}");
}

/// Writes of the transactions among the effects.
pub(super) fn written(effects: &[FleetEffect]) -> Vec<Write> {
    let writes = effects.iter().filter_map(|effect| match effect {
        FleetEffect::Transact { transaction, .. } => Some(transaction.writes.clone()),
        _ => None,
    });
    writes.flatten().collect()
}

#[test]
fn former_offers_are_deleted_unless_another_host_has_the_same() {
    for (shared, deletes) in [(true, false), (false, true)] {
        let mut scene = Scene::new(None);
        if !shared {
            let lease = scene.leases[1];
            scene.store.revoke(lease);
        }
        let settings = NodeSettings { machine: "h1".to_owned(), ..settings() };
        let (mut node, mut effects) = (FleetNode::new(settings), Vec::new());
        node.on_event(Duration::ZERO, FleetEvent::Leased, &mut effects);
        let offers = FleetEvent::Offers { digest: "q".to_owned(), list: OfferList::default() };
        node.on_event(Duration::ZERO, offers, &mut effects);
        node.on_event(Duration::ZERO, read(&scene), &mut effects);
        let writes = written(&effects);
        let of = |digest: &str| writes.iter().find(|write| write.key == FleetKey::Offers(digest.to_owned()));
        assert!(of("q").is_some_and(|write| write.value.is_some()), "{writes:?}");
        assert_eq!(of("o").is_some_and(|write| write.value.is_none()), deletes, "{writes:?}");
    }
}

/// Carries out what the node wants of the store, until it wants nothing more.
pub(super) fn settle(node: &mut FleetNode, scene: &mut Scene, lease: u64, first: FleetEvent) {
    let mut events = vec![first];
    while let Some(event) = events.pop() {
        let mut effects = Vec::new();
        node.on_event(Duration::from_secs(1), event, &mut effects);
        for effect in effects {
            if let FleetEffect::Transact { operation, transaction } = effect {
                let outcome = scene.store.apply(&transaction, lease);
                events.push(FleetEvent::Transacted { operation, outcome });
            }
        }
    }
}

#[test]
fn a_loaded_model_without_a_seat_takes_one_though_there_is_room_for_it_only_once() {
    let mut scene = Scene::new(None);
    let mut node = FleetNode::new(NodeSettings { name: "h3".to_owned(), ..settings() });
    let lease = scene.store.grant(Duration::MAX);
    let need = Bytes::gib(8);
    let models = [("big".to_owned(), ModelOffer { file: None, need })].into_iter().collect();
    let offers = FleetEvent::Offers { digest: "q".to_owned(), list: OfferList { models } };
    let run = FleetEvent::Run { model: "big".to_owned(), run: Some((RunPhase::Ready, need)), idle: true };
    for event in [FleetEvent::Leased, offers, run.clone()] {
        settle(&mut node, &mut scene, lease, event);
    }
    let event = read(&scene);
    settle(&mut node, &mut scene, lease, event);
    assert_eq!(scene.view().host("h3").unwrap().unseated, need, "it is registered first");
    settle(&mut node, &mut scene, lease, run);
    let (view, seat) = (scene.view(), scene.store.seat("big").expect("it has a seat"));
    assert_eq!((seat.record.body.host.as_str(), view.host("h3").unwrap().unseated), ("h3", Bytes::ZERO));
    assert_eq!(node.occupied().collect::<Vec<_>>(), [("big", Some(seat.revision), need)]);
    assert_eq!(check(&scene.store.history), Faults::default());
}

#[test]
fn a_host_that_does_not_show_that_it_is_the_one_loses_its_seats_and_gets_none_for_a_minute() {
    let mut scene = Scene::new(None);
    scene.seat("a", "h1");
    let mut node = FleetNode::new(NodeSettings { name: "h3".to_owned(), ..settings() });
    let (mut effects, at) = (Vec::new(), Duration::from_secs);
    node.on_event(at(1), read(&scene), &mut effects);
    node.on_event(
        at(1),
        FleetEvent::Wanted { request: 1, model: "a".to_owned(), affinity: Affinity::default() },
        &mut effects,
    );
    let to = |effects: &[FleetEffect]| {
        effects.iter().rev().find_map(|effect| match effect {
            FleetEffect::Forward { host, .. } => Some(host.clone()),
            _ => None,
        })
    };
    assert_eq!(to(&effects).as_deref(), Some("h1"));
    node.on_event(at(1), FleetEvent::HostDistrusted { host: "h1".to_owned() }, &mut effects);
    effects.clear();
    let (model, host) = ("a".to_owned(), "h1".to_owned());
    node.on_event(at(1), FleetEvent::HostFailed { request: 1, model, host }, &mut effects);
    let claim = effects.iter().find_map(|effect| match effect {
        FleetEffect::Transact { operation, transaction } => Some((*operation, transaction.clone())),
        _ => None,
    });
    let (operation, transaction) = claim.expect("it is seated elsewhere");
    let outcome = scene.store.apply(&transaction, 0);
    node.on_event(at(1), FleetEvent::Transacted { operation, outcome }, &mut effects);
    assert_eq!(to(&effects).as_deref(), Some("h2"), "{effects:?}");
    assert_eq!(check(&scene.store.history), Faults::default());
    // A new reading of the store does not make it trusted, and time does.
    node.on_event(at(2), read(&scene), &mut effects);
    let demand = SeatDemand { only: Some("h1"), ..demand_for("b") };
    let codes: Vec<_> =
        place(&node.view, &demand).unwrap_err().because.iter().map(|host| host.code).collect();
    assert_eq!(codes, ["host_distrusted"], "of the host that is named");
    node.on_event(at(62), FleetEvent::Tick, &mut effects);
    assert!(place(&node.view, &demand).is_ok());
}

#[test]
fn a_second_seat_is_taken_from_a_host_that_is_not_trusted_and_the_host_is_notified() {
    let mut scene = Scene::new(None);
    scene.seat("a", "h2");
    let further = |view: &FleetView, host: Option<&str>| {
        let purpose = SeatPurpose::Further;
        place(
            view,
            &SeatDemand { model: "a", only: host, near: None, purpose, occupied: Bytes::ZERO, random: 0 },
        )
        .unwrap()
    };
    let view = scene.view();
    let plan = further(&view, Some("h1"));
    assert_eq!((plan.number, plan.cause), (1, SeatCause::Wanted), "no host had it");
    let claim = Claim::new(&view, "a", plan, "n".to_owned()).unwrap();
    assert!(matches!(scene.store.apply(&claim.transaction, 0), TransactionOutcome::Applied(_)));
    scene.register("h3", "1", Bytes::ZERO);
    let mut view = scene.view();
    view.distrusted.insert("h1".to_owned(), "h1-1".to_owned());
    let plan = further(&view, None);
    assert_eq!((plan.host.as_str(), plan.number, plan.cause), ("h3", 1, SeatCause::Moved));
}
