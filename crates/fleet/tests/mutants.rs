//! Fuzz tests of the readers of the fleet's records, with mutated records from the store and from other
//! hosts: none may panic.

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    FleetKey, FleetView, HostRecord, KeySpace, NewsLine, Record, Seat, SeatCause, SeatDemand, SeatPurpose,
    StoreChange, place, source,
};
use plimsoll_fuzz::mutants;

fn host() -> Vec<u8> {
    let text = str::to_owned;
    let (incarnation, machine, address) = (text("i"), text("m"), text("10.0.0.1:7079"));
    let (capacity, unseated) = (Bytes::gib(80), Bytes::ZERO);
    let host = HostRecord {
        incarnation,
        machine,
        address,
        version: text("1"),
        capacity,
        unseated,
        offers: text("o"),
    };
    Record::new(host).write()
}

fn seat() -> Vec<u8> {
    let (host, incarnation, nonce) = ("a".to_owned(), "i".to_owned(), "n".to_owned());
    let (need, cause) = (Bytes::gib(6), SeatCause::Wanted);
    Record::new(Seat { host, incarnation, need, nonce, cause, evicts: vec![1, 2] }).write()
}

const OFFERS: &[u8] = br#"{"schema":1,"models":{"m":{"file":null,"need":6}}}"#;
const STATE: &[u8] = br#"{"schema":1,"runs":{"m":{"phase":"ready","idle":true}}}"#;

/// A view with this value in every kind of record.
fn view(value: &[u8]) -> FleetView {
    let name = || "a".to_owned();
    let keys = [
        FleetKey::Host(name()),
        FleetKey::Offers("o".to_owned()),
        FleetKey::State(name()),
        FleetKey::Seat { model: "m".to_owned(), number: 0 },
        FleetKey::Turn(name()),
        FleetKey::Drain(name()),
        FleetKey::Revoked("01".to_owned()),
    ];
    let change = |key| StoreChange { key, revision: 5, value: Some(value.to_vec()) };
    let mut records: Vec<StoreChange> = keys.map(change).to_vec();
    records.push(StoreChange { key: FleetKey::Host("b".to_owned()), revision: 5, value: Some(host()) });
    FleetView::at(5, records)
}

#[test]
fn million_records_of_a_fleet() {
    mutants(
        &[&host(), &seat(), OFFERS, STATE],
        &[b"\"schema\":", b"\"need\":", b"\"incarnation\":"],
        |mutant| {
            let view = view(mutant);
            let (only, occupied) = (None, Bytes::ZERO);
            let demand = SeatDemand {
                model: "m",
                only,
                purpose: SeatPurpose::Wanted,
                occupied,
                random: 3,
                near: None,
            };
            let _ = place(&view, &demand);
            let _ = source(&view, "b", 1, 0, 7);
            // What cannot be read is told on as such.
            let again = FleetView::at(5, view.records());
            assert_eq!(
                (again.hosts.len(), again.unreadable.len()),
                (view.hosts.len(), view.unreadable.len())
            );
        },
    );
}

#[test]
fn million_lines_of_news() {
    let keys = KeySpace::of("lab").unwrap();
    let all = NewsLine::all(&keys, &view(&seat()), 7, 8, 1);
    let beat = NewsLine::Beat { revision: 9, depth: 2 }.write();
    let lines: Vec<&[u8]> = all.split_inclusive(|byte| *byte == b'\n').chain([&*beat]).collect();
    mutants(&lines, &[b"\"changes\":", b"\"begin\":", b"\"beat\":", b"/plimsoll/lab/1/seats/"], |mutant| {
        match NewsLine::read(mutant.trim_ascii_end()) {
            Some(NewsLine::Changes(reported)) => {
                let changes: Vec<StoreChange> =
                    reported.into_iter().filter_map(|reported| reported.change(&keys)).collect();
                let mut view = FleetView::default();
                changes.iter().for_each(|change| view.apply(change));
                assert!(view.records().count() <= changes.len());
            }
            Some(line) => assert_eq!(NewsLine::read(line.write().trim_ascii_end()), Some(line)),
            None => {}
        }
    });
}
