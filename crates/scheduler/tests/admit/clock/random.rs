//! Generates random machines with realistic times, each from a seed: more models than fit, and clients with a
//! fixed amount of work.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_base::Priority;

use super::S;
use super::client::Client;
use super::engine::Life;
use super::machine::{Model, Scenario};

/// Time after which nobody waits any more.
const UNTIL: u64 = 2400 * S;

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// The world of a seed. Every fifth has engines with faults.
pub(super) fn world(seed: u64) -> Scenario {
    let random = &mut Random(seed);
    let size = [16, 24, 48, 80][usize::try_from(random.next() % 4).unwrap()];
    let cards = vec![size; if random.percent(30) { 2 } else { 1 }];
    let (total, rate) = (cards.iter().sum::<u64>(), random.within(500, 3000));
    let mut models: Vec<Model> = Vec::new();
    while models.len() < 2 || models.iter().map(|model| model.gib).sum::<u64>() < total * 5 / 4 {
        let gib = random.within(size / 4, size - 1);
        models.push(model(random, gib, rate, seed.is_multiple_of(5)));
    }
    let models_gib: Vec<u64> = models.iter().map(|model| model.gib).collect();
    let mut clients: Vec<Client> = Vec::new();
    let used = |clients: &[Client]| {
        let models: BTreeSet<u32> = clients.iter().flat_map(|client| client.models.clone()).collect();
        models.iter().map(|model| models_gib[usize::try_from(*model).unwrap()]).sum::<u64>()
    };
    let least = random.within(3, 8);
    // Those that are used do not fit at once.
    while used(&clients) <= total || clients.len() < usize::try_from(least).unwrap() {
        let key = u64::try_from(clients.len()).unwrap();
        clients.extend(client(random, key, u32::try_from(models.len()).unwrap()));
    }
    Scenario { cards, models, clients, until: UNTIL, forgets: random.percent(40) }
}

fn model(random: &mut Random, gib: u64, rate: u64, faults: bool) -> Model {
    let life = match random.next() % 6 {
        0 if faults => Life::Hangs { after: random.within(5, 60) * S },
        1 if faults => Life::Crashes { after: random.within(5, 60) * S },
        2 if faults => Life::FailsToLoad { after: random.within(1, 10) * S, lasts: false },
        _ => Life::Sound,
    };
    let slots = random.within(1, 4);
    // From the page cache, 8 GiB are read in a second.
    Model::new(gib, random.within(1, 4) * S + gib * S / 8).with(|model| {
        model.cold = gib * S * 1000 / rate;
        model.slots = usize::try_from(slots).unwrap();
        model.spec.concurrency = random.percent(50).then(|| u32::try_from(slots).unwrap());
        model.lives = vec![life, Life::Sound];
        if random.percent(20) {
            model.spec.hold = Duration::from_secs(random.within(0, 30));
        }
        model.ignores_stop = faults && random.percent(20);
    })
}

fn client(random: &mut Random, key: u64, models: u32) -> Vec<Client> {
    let pick = |random: &mut Random| u32::try_from(random.next() % u64::from(models)).unwrap();
    let model = pick(random);
    let base = Client { begins: random.within(0, 60) * S, ..Client::agent(key, model, 0, 0) };
    let priority =
        [Priority::High, Priority::Low].into_iter().find(|_| random.percent(10)).unwrap_or_default();
    let base = Client { unknown: random.percent(20), priority, ..base };
    let mut answers = |from, to| (0..5).map(|_| random.within(from, to)).collect::<Vec<u64>>();
    let (quick, usual, long) = (answers(200, 3 * S), answers(2 * S, 15 * S), answers(5 * S, 60 * S));
    match random.next() % 10 {
        // An agent in a loop.
        0..=2 => {
            let (calls, pause) = (random.within(10, 80), random.within(100, 2 * S));
            vec![Client { answers: quick, calls, pause, ..base }]
        }
        // Sessions with several models in turn.
        3..=4 => {
            let (calls, pause) = (random.within(10, 60), random.within(100, 2 * S));
            vec![Client {
                answers: quick,
                calls,
                pause,
                models: vec![model, pick(random)],
                session: 8,
                ..base
            }]
        }
        // Somebody who reads what was written.
        5..=6 => {
            let (calls, pause) = (random.within(3, 12), random.within(5 * S, 60 * S));
            vec![Client { answers: long, calls, pause, ..base }]
        }
        // A client that gives up.
        7..=8 => {
            let (calls, pause) = (random.within(3, 20), random.within(100, 10 * S));
            let gives_up = Some(random.within(6, 30) * S);
            vec![Client { answers: quick, calls, pause, gives_up, ..base }]
        }
        // A batch.
        _ => {
            let (lanes, calls) = (random.within(3, 8), random.within(1, 4));
            Client { answers: usual, calls, ..base }.times(usize::try_from(lanes).unwrap())
        }
    }
}
