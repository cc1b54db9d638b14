//! Simulated engines: a load from disk, a start, slots with a queue before them, and their faults.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_base::{End, Placement, Reason, RunId};
use plimsoll_scheduler::{RequestId, SchedulerEvent};

use super::machine::{Happening, Machine};

/// An answer's first bytes are seen after this part of it.
const FIRST_BYTES: u64 = 20;
/// A poisonous request kills after this time.
const POISON: u64 = 1500;

/// How one life of an engine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Sound,
    /// Its process ends so long after its start.
    FailsToLoad {
        after: u64,
        lasts: bool,
    },
    /// From so long after it is ready on it answers nothing, not even a health check.
    Hangs {
        after: u64,
    },
    /// It crashes so long after it is ready.
    Crashes {
        after: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Reading,
    Starting,
    Ready,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Waiting,
    Sent(RunId),
    Over,
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) model: u32,
    pub(super) stage: Stage,
    pub(super) life: Life,
    pub(super) placement: Placement,
    pub(super) started: u64,
    pub(super) ready: Option<u64>,
    pub(super) stopping: bool,
    pub(super) hung: bool,
    /// The scheduler knows that it has ended.
    pub(super) noticed: bool,
    pub(super) answers: u64,
    /// Requests in slots, and the time at which each entered.
    slots: BTreeMap<RequestId, u64>,
    queue: VecDeque<RequestId>,
}

impl Engine {
    pub(super) fn new(model: u32, life: Life, placement: Placement, started: u64) -> Self {
        Self {
            model,
            stage: Stage::Reading,
            life,
            placement,
            started,
            ready: None,
            stopping: false,
            hung: false,
            noticed: false,
            answers: 0,
            slots: BTreeMap::new(),
            queue: VecDeque::new(),
        }
    }

    pub(super) fn lives(&self) -> bool {
        self.stage != Stage::Ended
    }

    pub(super) fn requests(&self) -> usize {
        self.slots.len() + self.queue.len()
    }

    pub(super) fn take(&mut self, request: RequestId) {
        self.queue.push_back(request);
    }

    pub(super) fn leave(&mut self, request: RequestId) {
        self.slots.remove(&request);
        self.queue.retain(|queued| *queued != request);
    }
}

impl Machine {
    pub(super) fn has_begun(&self, request: RequestId, run: RunId) -> bool {
        let call = &self.calls[self.look_up(request).1];
        let since = self.engines[&run].slots.get(&request);
        let client = &self.clients[call.client];
        // A poisonous request kills before its first byte.
        let streams = client.streams && !client.poison;
        streams && since.is_some_and(|since| self.now >= since + call.answer / FIRST_BYTES)
    }

    /// The engine begins to answer queued requests, as far as it has slots.
    pub(super) fn fill_slots(&mut self, run: RunId) {
        let engine = &self.engines[&run];
        let slots = self.models[usize::try_from(engine.model).unwrap()].slots;
        if engine.hung {
            return;
        }
        while let Some(request) = {
            let engine = self.engines.get_mut(&run).unwrap();
            (engine.slots.len() < slots).then(|| engine.queue.pop_front()).flatten()
        } {
            let call = &self.calls[self.look_up(request).1];
            let (answer, poison) = (call.answer, self.clients[call.client].poison);
            self.engines.get_mut(&run).unwrap().slots.insert(request, self.now);
            if poison {
                self.later(self.now + POISON, Happening::Ends(run, crash()))
            } else {
                self.later(self.now + answer, Happening::Answered(request, run))
            }
        }
    }

    pub(super) fn answer(&mut self, request: RequestId, run: RunId) {
        let (place, call) = self.look_up(request);
        if place != Place::Sent(run) || self.engines[&run].hung {
            return;
        }
        self.engines.get_mut(&run).unwrap().answers += 1;
        self.over(request);
        self.answered(call);
        self.notify(SchedulerEvent::Finished { request, tokens: None, failed: false });
    }

    /// Goes on with loads whose files are read.
    pub(super) fn files_read(&mut self) {
        let read = |(run, engine): (&RunId, &Engine)| {
            let model = usize::try_from(engine.model).unwrap();
            (engine.stage == Stage::Reading && self.disk.is_warm(model))
                .then_some((*run, self.models[model].load))
        };
        let read: Vec<(RunId, u64)> = self.engines.iter().filter_map(read).collect();
        for (run, load) in read {
            self.engines.get_mut(&run).unwrap().stage = Stage::Starting;
            self.later(self.now + load, Happening::Ready(run));
        }
    }

    pub(super) fn becomes_ready(&mut self, run: RunId) {
        let now = self.now;
        let engine = self.engines.get_mut(&run).unwrap();
        if engine.stage != Stage::Starting || engine.stopping {
            return;
        }
        engine.stage = Stage::Ready;
        engine.ready = Some(now);
        match engine.life {
            Life::Hangs { after } => self.later(now + after, Happening::Hangs(run)),
            Life::Crashes { after } => self.later(now + after, Happening::Ends(run, crash())),
            Life::Sound | Life::FailsToLoad { .. } => {}
        }
        self.notify(SchedulerEvent::Ready { run });
    }

    /// The process is gone; whoever had a connection to it waits for that news.
    pub(super) fn ends(&mut self, run: RunId, end: End) {
        let now = self.now;
        let engine = self.engines.get_mut(&run).unwrap();
        if !engine.lives() {
            return;
        }
        if engine.answers == 0 && self.now < self.until {
            self.thrown += engine.ready.unwrap_or(now) - engine.started;
        }
        let model = usize::try_from(engine.model).unwrap();
        let requests: Vec<RequestId> = engine.slots.keys().chain(&engine.queue).copied().collect();
        let (lost, bounced): (Vec<RequestId>, Vec<RequestId>) =
            requests.into_iter().partition(|request| self.has_begun(*request, run));
        self.engines.get_mut(&run).unwrap().stage = Stage::Ended;
        self.reads_change(|disk| disk.leave(model));
        self.engines.get_mut(&run).unwrap().noticed = true;
        self.lasting[model] |= matches!(end, End::Unstartable { lasts: true, .. });
        self.notify(SchedulerEvent::Ended { run, end });
        for request in lost.iter().chain(&bounced) {
            if let Some(kills) = self.suspects.remove(request) {
                let call = self.look_up(*request).1;
                self.calls[call].kills = kills;
            }
        }
        for request in lost {
            let call = self.look_up(request).1;
            self.lost_streams += 1;
            self.over(request);
            self.unanswered(call, None);
            self.notify(SchedulerEvent::Finished { request, tokens: None, failed: true });
        }
        for request in bounced {
            self.bounces(request, run);
        }
    }

    pub(super) fn bounces(&mut self, request: RequestId, run: RunId) {
        if self.look_up(request).0 == Place::Sent(run) {
            self.engines.get_mut(&run).unwrap().leave(request);
            self.put(request, Place::Waiting);
            self.notify(SchedulerEvent::Bounced { request });
        }
    }
}

pub(super) fn crash() -> End {
    End::Crashed { reason: Reason::new("signal", "signal 11") }
}
