//! Memory test of the copy of the fleet's records that a daemon keeps, for a large fleet, by the kernel's
//! figures for this process.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    FileDigest, FleetKey, FleetView, HostRecord, HostState, ModelOffer, OfferList, Record, RunPhase,
    RunState, Seat, SeatCause, SeatDemand, SeatPurpose, StoreChange, Turn, place,
};

/// Hosts that have the same files.
const KIND: u64 = 100;

fn models(host: u64, a_host: u64) -> impl Iterator<Item = String> {
    (host * a_host..(host + 1) * a_host).map(|model| format!("vendor/model-{model:06}-instruct:q4_k_m"))
}

/// The records of a whole fleet, one after the other, as a reading of the store brings them.
fn records(hosts: u64, a_host: u64) -> impl Iterator<Item = StoreChange> {
    let of = |key: FleetKey, value: Vec<u8>| StoreChange { key, revision: 1_234_567, value: Some(value) };
    let offers = (0..hosts / KIND).map(move |kind| {
        let file = FileDigest { header: format!("{kind:016x}"), size: Bytes::gib(5) };
        let offer = ModelOffer { file: Some(file), need: Bytes::gib(6) };
        let all = (kind * KIND..(kind + 1) * KIND).flat_map(move |host| models(host, a_host));
        let list = OfferList { models: all.map(|name| (name, offer.clone())).collect() };
        of(FleetKey::Offers(format!("{kind:016x}")), Record::new(list).write())
    });
    let hosts = (0..hosts).flat_map(move |host| {
        let (name, life) = (format!("gpu-box-{host:05}"), format!("18a1b2c3d4e5f6a7-{host:x}"));
        let record = HostRecord {
            incarnation: life.clone(),
            machine: format!("0123456789abcdef0123456789abcdef 10.0.0.1:{host}"),
            address: format!("10.0.{}.{}:8080", host / 250, host % 250),
            version: "0.1.0".to_owned(),
            capacity: Bytes::gib(8 * 80),
            unseated: Bytes::ZERO,
            offers: format!("{:016x}", host / KIND),
        };
        let run = RunState { phase: RunPhase::Ready, idle: true };
        let state =
            HostState { runs: models(host, a_host).map(|model| (model, run)).collect::<BTreeMap<_, _>>() };
        let first = [
            of(FleetKey::Host(name.clone()), Record::new(record).write()),
            of(FleetKey::State(name.clone()), Record::new(state).write()),
            of(FleetKey::Turn(name.clone()), Record::new(Turn {}).write()),
        ];
        let seats = models(host, a_host).map(move |model| {
            let seat = Seat {
                host: name.clone(),
                incarnation: life.clone(),
                need: Bytes::gib(6),
                nonce: format!("{life}-0123456789abcdef"),
                cause: SeatCause::Wanted,
                evicts: Vec::new(),
            };
            of(FleetKey::Seat { model, number: 0 }, Record::new(seat).write())
        });
        first.into_iter().chain(seats)
    });
    offers.chain(hosts)
}

/// Memory of this process, by the kernel.
fn resident() -> Bytes {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    Bytes::kib(pages * 4)
}

#[allow(clippy::print_stdout, reason = "figures of the run")]
fn measured(hosts: u64, a_host: u64) -> Bytes {
    let before = resident();
    let began = std::time::Instant::now();
    let view = FleetView::at(1_234_567, records(hosts, a_host));
    let (taken, read) = (resident().saturating_sub(before), began.elapsed());
    assert_eq!(view.hosts.len() as u64, hosts);
    assert_eq!(view.seats.len() as u64, hosts * a_host);
    let began = std::time::Instant::now();
    let model = models(0, a_host).next().unwrap();
    let demand = SeatDemand {
        model: &model,
        only: None,
        near: None,
        purpose: SeatPurpose::Moved,
        occupied: Bytes::ZERO,
        random: 5,
    };
    place(&view, &demand).unwrap();
    println!(
        "{hosts} hosts, {} models: {taken} of memory, read in {read:?}, one placement in {:?}",
        hosts * a_host,
        began.elapsed()
    );
    taken
}

#[test]
fn the_state_of_a_thousand_hosts_and_ten_thousand_models_takes_at_most_20_mib() {
    let taken = measured(1000, 10);
    assert!(taken <= Bytes::mib(20), "{taken}");
}

#[test]
fn the_state_of_ten_thousand_hosts_takes_at_most_200_mib() {
    let taken = measured(10_000, 10);
    assert!(taken <= Bytes::mib(200), "{taken}");
}
