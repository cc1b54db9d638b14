//! Scenarios with realistic times, each with the result of the best schedule.

use plimsoll_base::Priority;

use super::S;
use super::client::Client;
use super::engine::Life;
use super::machine::{Model, Scenario};

/// A GPU of 24 GiB, on which one model of 16 GiB fits, or two of 12.
pub(super) fn scenario(models: Vec<Model>, clients: Vec<Vec<Client>>, seconds: u64) -> Scenario {
    Scenario { cards: vec![24], models, clients: clients.concat(), until: seconds * S, forgets: false }
}

/// Two agents on two models of which one fits.
pub(super) fn two_agents(load: u64, unknown: bool) -> Scenario {
    let agent = |key| Client { unknown, ..Client::agent(u64::from(key), key, 100, 300) };
    scenario(vec![Model::new(16, load * S); 2], vec![vec![agent(0), agent(1)]], 240)
}

/// A client that gives up after 6 s, a load of 15 s, and a neighbour in use.
pub(super) fn gives_up_during_a_load() -> Scenario {
    let hasty = Client { gives_up: Some(6 * S), begins: 5 * S, ..Client::agent(1, 1, 500, S) };
    let models = vec![Model::new(16, 15 * S), Model::new(16, 15 * S)];
    scenario(models, vec![vec![Client::agent(0, 0, 2 * S, 500), Client { calls: 1, ..hasty }]], 120)
}

/// Ten clients in sessions of eight calls, over five models of which one fits.
pub(super) fn five_models() -> Scenario {
    let client = |place: u32| Client {
        models: (0..5).map(|session| (place + session * (1 + place % 4)) % 5).collect(),
        session: 8,
        begins: u64::from(place) * 100,
        ..Client::agent(u64::from(place), 0, 200, 400)
    };
    scenario(vec![Model::new(16, 6 * S); 5], vec![(0..10).map(client).collect()], 120)
}

/// Clients with a time-out, of an engine that hangs 20 s after it was ready; a neighbour may come at 40 s.
pub(super) fn hung(neighbour: bool) -> Scenario {
    let hasty = Client { gives_up: Some(10 * S), ..Client::agent(0, 0, S, 500) };
    let models = vec![
        Model::new(16, 8 * S).with(|model| model.lives = vec![Life::Hangs { after: 20 * S }, Life::Sound]),
        Model::new(16, 8 * S),
    ];
    let hasty = |key: u64| Client { key, answers: vec![S + key * 170], ..hasty.clone() };
    let other = Client { gives_up: Some(10 * S), ..Client::once(9, 1, S, 40 * S) };
    let others = if neighbour { vec![other] } else { Vec::new() };
    scenario(models, vec![(0..5).map(hasty).collect(), others], 130)
}

/// Forty requests of one key at an engine of four slots; one of another key, and one of another model.
pub(super) fn forty_of_one_key(concurrency: Option<u32>) -> Scenario {
    let batch = Client::once(0, 0, 6 * S, 5 * S).times(40);
    let others = [(9, 0, S, 0), (1, 0, 6 * S, 6 * S), (2, 1, S, 6 * S)];
    let others = others.map(|(key, model, answer, begins)| Client::once(key, model, answer, begins)).to_vec();
    let model = Model::new(16, 2 * S).with(|model| model.spec.concurrency = concurrency);
    scenario(vec![model; 2], vec![batch, others], 120)
}

/// A model that cannot load beside an agent.
pub(super) fn cannot_load(life: Life) -> Scenario {
    let Scenario { mut models, mut clients, .. } = cannot_load_alone();
    models.push(Model::new(16, S).with(|model| model.lives = vec![life]));
    clients.push(Client { begins: 20 * S, ..Client::agent(1, 1, S, S) });
    scenario(models, vec![clients], 300)
}

pub(super) fn cannot_load_alone() -> Scenario {
    scenario(vec![Model::new(16, 15 * S)], vec![vec![Client::agent(0, 0, 500, 500)]], 300)
}

/// A long answer and short ones, each on half of the cards; a third model needs either half.
pub(super) fn long_and_short(cards: Vec<u64>) -> Scenario {
    let size = if cards.len() > 1 { 16 } else { 12 };
    let models = vec![Model::new(size, S), Model::new(size, S), Model::new(size, 2 * S)];
    let long = Client::once(0, 0, 45 * S, 0);
    let short = Client::agent(1, 1, 2 * S, 0);
    let clients = vec![vec![long, short, Client::once(2, 2, 500, 5 * S)]];
    Scenario { cards, ..scenario(models, clients, 60) }
}

/// A large model needs two others gone: one answers for 40 s, the other is idle and asked once meanwhile.
pub(super) fn idle_alongside_a_long_answer() -> Scenario {
    let models = vec![Model::new(12, 6 * S), Model::new(12, 2 * S), Model::new(24, 6 * S)];
    let idle = Client { calls: 2, pause: 18 * S, ..Client::agent(1, 1, 200, 0) };
    let clients = vec![vec![Client::once(0, 0, 40 * S, 0), idle, Client::once(2, 2, 500, 10 * S)]];
    scenario(models, clients, 120)
}

/// A chat with a load of 20 s, asked every 13 s; a cheap model that is always busy, and one that comes now
/// and then.
pub(super) fn dear_alongside_cheap() -> Scenario {
    let models = vec![Model::new(12, 20 * S), Model::new(12, S), Model::new(12, S)];
    let chat = Client { calls: 20, ..Client::agent(0, 0, S, 12 * S) };
    let rare = Client { begins: 30 * S, ..Client::agent(2, 2, 500, 24 * S) };
    scenario(models, vec![vec![chat, Client::agent(1, 1, S, 0), rare]], 300)
}

/// Eight streams, and a client whose request kills the engine.
pub(super) fn poison() -> Scenario {
    let streams = Client { calls: 7, ..Client::agent(0, 0, 8 * S, 200) };
    let killer = Client { poison: true, tries: 6, ..Client::once(20, 0, S, 9 * S) };
    let model = Model::new(16, 3 * S).with(|model| model.slots = 16);
    scenario(vec![model], vec![streams.keys(8), vec![killer]], 180)
}

/// Plain requests to an engine that crashes four times before it is sound.
pub(super) fn crashes() -> Scenario {
    let plain = Client { streams: false, calls: 4, ..Client::agent(0, 0, 4 * S, 0) };
    let model = Model::new(16, 2 * S).with(|model| {
        model.lives = vec![Life::Crashes { after: 6 * S }; 4];
        model.lives.push(Life::Sound);
        model.slots = 32;
    });
    scenario(vec![model], vec![plain.keys(30)], 180)
}

/// A client with a time-out of 10 s, or a patient one, behind a model whose answers overlap.
pub(super) fn behind_a_busy_one(gives_up: Option<u64>) -> Scenario {
    let busy = |key: u64| Client { begins: key * 4 * S, ..Client::agent(key, 0, 12 * S, 200) };
    let hasty = Client { gives_up, begins: 20 * S, calls: 1, ..Client::agent(9, 1, 500, 0) };
    scenario(
        vec![Model::new(16, 4 * S), Model::new(16, 8 * S)],
        vec![(0..3).map(busy).collect(), vec![hasty]],
        120,
    )
}

/// Two crowds on two models of which one fits: agents that ask again at once.
pub(super) fn two_crowds(priorities: [Priority; 2]) -> Scenario {
    let crowd = |model: u32| {
        let priority = priorities[usize::try_from(model).unwrap()];
        Client { priority, ..Client::agent(u64::from(model) * 100, model, 5 * S, 200) }.keys(15)
    };
    let model = |place: usize| {
        Model::new(16, 3 * S).with(|model| {
            model.slots = 2;
            model.spec.concurrency = Some(2);
            model.spec.priority = priorities[place];
        })
    };
    scenario(vec![model(0), model(1)], vec![crowd(0), crowd(1)], 200)
}

/// Ten preloads from one cold disk; a client asks for one of them.
pub(super) fn cold_preloads() -> Scenario {
    let model = Model::new(2, 500).with(|model| (model.cold, model.spec.preload) = (4 * S, true));
    scenario(vec![model; 10], vec![vec![Client::once(0, 6, 200, 500)]], 120)
}

/// A request during the long preload of a model that does not fit beside.
pub(super) fn request_during_a_preload() -> Scenario {
    let models = vec![Model::new(16, 20 * S).with(|model| model.spec.preload = true), Model::new(16, 3 * S)];
    scenario(models, vec![vec![Client::once(1, 1, 100, 2 * S)]], 60)
}

/// The same; then the room is free again, and the preloaded model is asked for.
pub(super) fn preload_comes_back() -> Scenario {
    let Scenario { mut models, .. } = request_during_a_preload();
    models[1].spec.ttl = Some(std::time::Duration::from_secs(10));
    scenario(models, vec![vec![Client::once(1, 1, 100, 30 * S), Client::once(0, 0, 100, 90 * S)]], 120)
}

/// Twenty requests wait when a model with one slot is ready; one of another model comes then.
pub(super) fn queue_at_ready() -> Scenario {
    let narrow = Model::new(16, 4 * S).with(|model| (model.slots, model.spec.concurrency) = (1, Some(1)));
    let batch = Client::once(0, 0, 4 * S, 0).times(20);
    scenario(vec![narrow, Model::new(16, 8 * S)], vec![batch, vec![Client::once(1, 1, 500, 6 * S)]], 120)
}

/// Two models in turn whose engines ignore a polite stop.
pub(super) fn ignores_stops() -> Scenario {
    let model = Model::new(16, 3 * S).with(|model| model.ignores_stop = true);
    let client = Client { models: vec![0, 1], session: 1, ..Client::agent(0, 0, 200, 300) };
    scenario(vec![model; 2], vec![vec![client]], 120)
}

/// A request of 50 s when the shutdown comes, to an engine that ignores a polite stop.
pub(super) fn shutdown() -> Scenario {
    let model = Model::new(16, 2 * S).with(|model| model.ignores_stop = true);
    scenario(vec![model], vec![vec![Client::once(0, 0, 50 * S, 0)]], 10)
}

/// A long stream of a model that starts anew after three requests.
pub(super) fn starts_anew_behind_a_stream() -> Scenario {
    let model = Model::new(16, 3 * S).with(|model| model.spec.max_requests = Some(3));
    let others = Client { begins: 4 * S, ..Client::agent(1, 0, 500, 500) };
    scenario(vec![model], vec![vec![Client::once(0, 0, 40 * S, 0), others]], 60)
}
