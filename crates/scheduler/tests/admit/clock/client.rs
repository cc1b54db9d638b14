//! Simulated clients: agents in a loop, sessions, batches, and clients that give up and ask again.
//!
//! A call is what the client wants: it ends with its answer, over as many requests as that takes.

use plimsoll_base::Priority;
use plimsoll_scheduler::{ClientId, ModelId, RequestId, RequestTraits, SchedulerEvent};

use super::S;
use super::engine::Place;
use super::machine::{Happening, Machine, moment};

/// Time until a client asks again after a refusal without a time, a lost answer or a time-out.
const AGAIN: u64 = 500;
/// The time that `serve` lets a request wait.
const DEADLINE: u64 = 600 * S;

/// A client with one request at a time; several with one key make a batch.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) key: u64,
    /// Each call comes over a connection of its own, so that nothing shows whose it is.
    pub(super) unknown: bool,
    /// The models that it uses in turn, and the calls in a row to each.
    pub(super) models: Vec<u32>,
    pub(super) session: u64,
    pub(super) calls: u64,
    /// From the end of a call to the next one.
    pub(super) pause: u64,
    /// Times of its answers, in turn.
    pub(super) answers: Vec<u64>,
    pub(super) begins: u64,
    /// It gives up if it has seen nothing for this long.
    pub(super) gives_up: Option<u64>,
    pub(super) priority: Priority,
    /// It sees its answer from the beginning, not only the whole of it.
    pub(super) streams: bool,
    /// Its requests kill the engine.
    pub(super) poison: bool,
    /// Requests for one call, until it stops for good.
    pub(super) tries: u64,
}

impl Client {
    /// An agent in a loop on one model.
    pub(super) fn agent(key: u64, model: u32, answer: u64, pause: u64) -> Self {
        Self {
            key,
            unknown: false,
            models: vec![model],
            session: u64::MAX,
            calls: u64::MAX,
            pause,
            answers: vec![answer],
            begins: 0,
            gives_up: None,
            priority: Priority::Normal,
            streams: true,
            poison: false,
            tries: u64::MAX,
        }
    }

    /// A client with one call.
    pub(super) fn once(key: u64, model: u32, answer: u64, begins: u64) -> Self {
        Self { calls: 1, begins, ..Self::agent(key, model, answer, 0) }
    }

    pub(super) fn times(&self, count: usize) -> Vec<Self> {
        vec![self.clone(); count]
    }

    /// So many clients, each with a key of its own.
    pub(super) fn keys(&self, count: u64) -> Vec<Self> {
        (0..count).map(|place| Self { key: self.key + place, ..self.clone() }).collect()
    }
}

/// One call, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) model: u32,
    pub(super) requested: u64,
    pub(super) answer: u64,
    pub(super) answered: Option<u64>,
    tries: u64,
    /// Engines that died under its body, as far as the driver knows.
    pub(super) kills: u32,
}

impl Machine {
    fn client_of(&self, call: usize) -> &Client {
        &self.clients[self.calls[call].client]
    }

    /// The client's next call.
    pub(super) fn call(&mut self, index: usize) {
        let client = &self.clients[index];
        let created = self.created[index];
        if created == client.calls || self.now >= self.until {
            return;
        }
        let pick = |length: usize, place: u64| usize::try_from(place).unwrap() % length;
        let model = client.models[pick(client.models.len(), created / client.session)];
        let answer = client.answers[pick(client.answers.len(), created)];
        self.created[index] += 1;
        self.calls.push(Call {
            client: index,
            model,
            requested: self.now,
            answer,
            answered: None,
            tries: 0,
            kills: 0,
        });
        self.ask(self.calls.len() - 1);
    }

    /// Sends a request for the call.
    pub(super) fn ask(&mut self, call: usize) {
        let client = self.client_of(call).clone();
        let created = &mut self.calls[call];
        if self.now >= self.until || created.tries == client.tries {
            return;
        }
        created.tries += 1;
        if created.kills >= 3 {
            // The driver refuses the body.
            self.refused += 1;
            return self.unanswered(call, None);
        }
        let traits = RequestTraits { kills: created.kills, ..RequestTraits::default() };
        let model = ModelId(created.model);
        let request = self.request(call);
        let identity = if client.unknown { 1_000_000 + request.0 } else { client.key };
        if let Some(after) = client.gives_up {
            self.later(self.now + after, Happening::GivesUp(request));
        }
        self.notify(SchedulerEvent::Arrived {
            request,
            model,
            client: ClientId(identity),
            priority: client.priority,
            deadline: moment(self.now + DEADLINE),
            traits,
        });
    }

    pub(super) fn answered(&mut self, call: usize) {
        let (index, pause) = (self.calls[call].client, self.client_of(call).pause);
        if self.now < self.until {
            self.calls[call].answered = Some(self.now);
        }
        self.later(self.now + pause, Happening::Call(index));
    }

    /// The client got no answer, and asks again after this time.
    pub(super) fn unanswered(&mut self, call: usize, after: Option<u64>) {
        self.later(self.now + after.unwrap_or(0).max(AGAIN), Happening::Ask(call));
    }

    pub(super) fn gives_up(&mut self, request: RequestId) {
        let (place, call) = self.look_up(request);
        let seen = |run| self.has_begun(request, run) && !self.engines[&run].hung;
        let seen = matches!(place, Place::Sent(run) if seen(run));
        if place != Place::Over && !seen {
            self.over(request);
            self.gave_up += 1;
            self.unanswered(call, None);
            // An engine that works sends bytes to others meanwhile.
            let is_silent = matches!(place, Place::Sent(run) if self.engines[&run].hung);
            self.notify(if is_silent {
                SchedulerEvent::GaveUp { request }
            } else {
                SchedulerEvent::Abandoned { request }
            });
        }
    }
}
