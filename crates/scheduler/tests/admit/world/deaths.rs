//! Ends simulated engines, and handles the requests that they leave unanswered.

use plimsoll_base::{End, RunId};
use plimsoll_scheduler::{RequestId, SchedulerEvent};

use super::{Life, Where, World};

impl World {
    pub(super) fn ends(&mut self, run: RunId, end: End) {
        let engine = self.engines.get_mut(&run).unwrap();
        if engine.stage == Life::Ended {
            return;
        }
        engine.stage = Life::Ended;
        self.budget_requests.remove(&run);
        let cut: Vec<RequestId> = std::mem::take(&mut engine.requests).into_iter().collect();
        let early = run.0.is_multiple_of(2);
        if early {
            self.cut_off(&cut);
        }
        self.engines.get_mut(&run).unwrap().buried = true;
        self.notify(SchedulerEvent::Ended { run, end });
        if !early {
            self.cut_off(&cut);
        }
    }

    /// What an engine leaves unanswered: some clients had seen part of it already.
    fn cut_off(&mut self, cut: &[RequestId]) {
        for request in cut {
            let index = usize::try_from(request.0).unwrap();
            if request.0.is_multiple_of(3) {
                self.over(index);
                self.notify(SchedulerEvent::Finished { request: *request, tokens: None, failed: true });
            } else {
                self.bounces(*request);
            }
        }
    }

    pub(super) fn bounces(&mut self, request: RequestId) {
        let index = usize::try_from(request.0).unwrap();
        if let Where::InFlight(run) = self.requested[index].place {
            if let Some(diver) = &mut self.engines.get_mut(&run).unwrap().diver {
                diver.leave(request);
            }
            self.requested[index].place = Where::Waiting { since: self.now };
            self.notify(SchedulerEvent::Bounced { request });
        }
    }
}
