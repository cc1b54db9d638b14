//! Simulated engines, clients and faults, as parts of the simulated fleet.

use plimsoll_base::Bytes;
use plimsoll_fleet::{
    Affinity, Claim, Drain, FleetEvent, FleetKey, FleetView, Record, RunPhase, SeatDemand, SeatPurpose, place,
};

use super::{Engine, Happening, PATIENCE, Request, World, ms};

impl World {
    pub(super) fn serve(&mut self, daemon: usize, request: u64) {
        let Some(model) = self.requests.get(&request).filter(|it| it.ended == 0).map(|it| it.model.clone())
        else {
            return;
        };
        let token = self.daemons[daemon]
            .node
            .occupied()
            .find(|(occupied, ..)| *occupied == model)
            .and_then(|(_, token, _)| token);
        if !self.daemons[daemon].engines.contains_key(&model) {
            self.load(daemon, &model, token);
        }
        let (life, pause) = (self.daemons[daemon].life, ms(10 + self.draw(100)));
        let Some(engine) = self.daemons[daemon].engines.get_mut(&model) else { return self.refuse(request) };
        engine.in_flight.push(request);
        engine.used += 1;
        if engine.is_ready {
            self.after(pause, Happening::Answered { daemon, life, model: model.clone(), request });
            self.notify_run(daemon, &model);
        }
    }

    /// Loads a model as its host would: what has no seat leaves first, and what is beyond the card is
    /// refused.
    pub(super) fn load(&mut self, daemon: usize, model: &str, token: Option<u64>) {
        let host = &mut self.daemons[daemon];
        if let Some(token) = token
            && host.loaded.insert(model.to_owned(), token).is_some_and(|before| before >= token)
        {
            self.faults.count("a model loaded twice under one token");
        }
        let seated: Vec<&str> = host
            .node
            .occupied()
            .filter(|(_, token, _)| token.is_some())
            .map(|(occupied, ..)| occupied)
            .collect();
        let stays = |(name, engine): &(&String, &Engine)| {
            seated.contains(&name.as_str()) || !engine.in_flight.is_empty()
        };
        let need = Self::need(model);
        let kept: Bytes = host.engines.iter().filter(stays).map(|(_, engine)| engine.need).sum();
        let is_busy = host
            .engines
            .iter()
            .any(|(name, engine)| !seated.contains(&name.as_str()) && !engine.in_flight.is_empty());
        if kept + need > Bytes::gib(12) {
            // A busy model that has to leave is waited for in truth; here the request asks again.
            if !is_busy {
                self.faults.count("a seat for which the card has no room");
            }
            return self.event(daemon, FleetEvent::Run { model: model.to_owned(), run: None, idle: true });
        }
        let leave: Vec<String> =
            host.engines.iter().filter(|pair| !stays(pair)).map(|(name, _)| name.clone()).collect();
        for name in leave {
            self.unload(daemon, &name);
        }
        self.daemons[daemon].engines.insert(model.to_owned(), Engine { need, ..Engine::default() });
        let (life, pause) = (self.daemons[daemon].life, ms(50 + self.draw(150)));
        self.after(pause, Happening::Loaded { daemon, life, model: model.to_owned() });
    }

    pub(super) fn loaded(&mut self, daemon: usize, model: &str) {
        let life = self.daemons[daemon].life;
        let Some(engine) = self.daemons[daemon].engines.get_mut(model) else { return };
        engine.is_ready = true;
        for request in engine.in_flight.clone() {
            let pause = ms(10 + self.draw(100));
            self.after(pause, Happening::Answered { daemon, life, model: model.to_owned(), request });
        }
        self.notify_run(daemon, model);
    }

    pub(super) fn notify_run(&mut self, daemon: usize, model: &str) {
        let Some(engine) = self.daemons[daemon].engines.get(model) else { return };
        let phase = if engine.is_ready { RunPhase::Ready } else { RunPhase::Loading };
        let (need, idle) = (engine.need, engine.in_flight.is_empty() && engine.is_ready);
        self.event(daemon, FleetEvent::Run { model: model.to_owned(), run: Some((phase, need)), idle });
    }

    pub(super) fn finish(&mut self, daemon: usize, model: &str, request: u64) {
        let Some(engine) = self.daemons[daemon].engines.get_mut(model) else { return };
        engine.in_flight.retain(|other| *other != request);
        let (used, is_idle, is_released) = (engine.used, engine.in_flight.is_empty(), engine.is_released);
        if let Some(request) = self.requests.get_mut(&request) {
            // The client may have gone with its daemon.
            if request.ended == 0 {
                request.ended = 1;
                self.answered += 1;
            }
            request.answers += 1;
            if request.answers > 1 {
                self.faults.count("a request answered twice");
            }
        }
        let origin = self.requests.get(&request).map(|request| request.origin);
        for origin in origin.into_iter().filter(|origin| self.daemons[*origin].alive).collect::<Vec<_>>() {
            self.event(origin, FleetEvent::Ended { request });
        }
        let life = self.daemons[daemon].life;
        if is_idle && is_released {
            self.unload(daemon, model)
        } else {
            self.notify_run(daemon, model);
            let idle = ms(300 + self.draw(3000));
            self.after(idle, Happening::Retire { daemon, life, model: model.to_owned(), used });
        }
    }

    pub(super) fn unload(&mut self, daemon: usize, model: &str) {
        self.daemons[daemon].engines.remove(model);
        self.event(daemon, FleetEvent::Run { model: model.to_owned(), run: None, idle: true });
    }

    pub(super) fn client(&mut self) {
        let pause = ms(50 + self.draw(2000));
        self.after(pause, Happening::Client);
        let (model, origin) =
            (self.draw(self.settings.models), self.draw(self.settings.hosts as u64) as usize);
        if !self.daemons[origin].alive {
            return;
        }
        self.next_request += 1;
        let model = format!("m{model}");
        let request = Request { model, origin, requested: self.now, at: None, ended: 0, answers: 0 };
        self.requests.insert(self.next_request, request);
        self.ask(self.next_request);
    }

    pub(super) fn ask(&mut self, request: u64) {
        let Some(requested) = self.requests.get_mut(&request).filter(|it| it.ended == 0) else { return };
        requested.at = None;
        let (origin, model) = (requested.origin, requested.model.clone());
        if self.daemons[origin].alive {
            self.event(origin, FleetEvent::Wanted { request, model, affinity: Affinity::default() })
        } else {
            requested.ended += 1
        }
    }

    /// A refusal ends the request, if it has waited long enough; else it is asked again.
    pub(super) fn refuse(&mut self, request: u64) {
        let pause = ms(40 + self.draw(100));
        let Some(requested) = self.requests.get_mut(&request).filter(|it| it.ended == 0) else { return };
        requested.at = None;
        if self.now > requested.requested + PATIENCE / 2 {
            requested.ended += 1;
            self.refused += 1;
        } else {
            self.after(pause, Happening::Ask { request });
        }
    }

    pub(super) fn fault(&mut self) {
        let pause = ms(1 + self.draw(self.settings.pause));
        self.after(pause, Happening::Fault);
        let daemon = self.draw(self.settings.hosts as u64) as usize;
        match self.draw(6) {
            0 => self.kill(daemon),
            1 => self.daemons[daemon].cut_until = self.now + ms(500 + self.draw(10_000)),
            // The store revokes a lease whose owner renews it.
            2 | 3 => self.store.revoke(self.daemons[daemon].lease),
            4 => {
                let key = FleetKey::Drain(format!("h{daemon}"));
                let drain = (!self.store.records.contains_key(&key))
                    .then(|| Record::new(Drain { leave: false }).write());
                self.store.put(key, drain);
            }
            _ => {
                let model = format!("m{}", self.draw(self.settings.models));
                let host = format!("h{}", self.draw(self.settings.hosts as u64));
                self.move_model(&model, &host);
            }
        }
    }

    /// Moves a model as an operator does.
    fn move_model(&mut self, model: &str, host: &str) {
        let view = FleetView::at(self.store.revision, self.store.all());
        let random = self.draw(1000);
        let demand = SeatDemand {
            model,
            only: Some(host),
            near: None,
            purpose: SeatPurpose::Moved,
            occupied: Bytes::ZERO,
            random,
        };
        let is_there = view.seat(model).is_some_and(|seat| seat.record.body.host == host);
        let plan = place(&view, &demand).ok().filter(|_| !is_there);
        if let Some(claim) = plan.and_then(|plan| Claim::new(&view, model, plan, format!("move-{random}"))) {
            self.store.apply(&claim.transaction, 0);
        }
    }

    pub(super) fn kill(&mut self, daemon: usize) {
        if !std::mem::replace(&mut self.daemons[daemon].alive, false) {
            return;
        }
        self.daemons[daemon].engines.clear();
        let pause = ms(200 + self.draw(8000));
        self.after(pause, Happening::Restart { daemon });
        // Connections to it break, and its own clients are gone.
        let mut broken = Vec::new();
        for (request, requested) in self.requests.iter_mut().filter(|(_, requested)| requested.ended == 0) {
            if requested.origin == daemon {
                requested.ended += 1;
            } else if requested.at.take_if(|(to, _)| *to == daemon).is_some() {
                // Once: its next life, which may break as well, was not asked.
                broken.push((*request, requested.origin, requested.model.clone()));
            }
        }
        for (request, origin, model) in broken {
            let event = FleetEvent::HostFailed { request, model, host: format!("h{daemon}") };
            let life = self.daemons[origin].life;
            self.after(ms(5), Happening::Event { daemon: origin, life, event });
        }
    }

    pub(super) fn restart(&mut self, daemon: usize) {
        let life = self.daemons[daemon].life + 1;
        let node = self.node(daemon, life);
        let host = &mut self.daemons[daemon];
        (host.node, host.life, host.alive, host.lease) = (node, life, true, 0);
        host.loaded.clear();
        self.boot(daemon);
    }
}
