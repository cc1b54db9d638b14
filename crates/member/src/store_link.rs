//! Renews this host's lease in the fleet's store, and carries out transactions on the store.

use std::rc::Rc;
use std::time::Duration;

use plimsoll_fleet::{FleetEvent, Transaction, TransactionOutcome};
use plimsoll_scheduler::ModelState;
use tokio::time::{sleep, timeout};

use super::FleetMember;
use plimsoll_route::ModelService;

/// Time for which the store keeps this host without a word, and the time between two words.
const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(500);
/// Longest time between two checks for idle models.
const TICK: Duration = Duration::from_secs(1);
/// Time for leaving the store at the end.
const LEAVE: Duration = Duration::from_secs(2);

impl FleetMember {
    /// Keeps a lease until the certificate of this host ends. A lost one is replaced; nothing else ends with
    /// it.
    pub(super) async fn keep_lease(self: Rc<Self>) {
        while !self.is_out() {
            if self.lease.get() == 0 {
                match self.store.grant(LEASE).await {
                    Ok(lease) => {
                        self.lease.set(lease);
                        self.submit(FleetEvent::Leased);
                    }
                    Err(_) => {
                        self.pause().await;
                        continue;
                    }
                }
            }
            let _ = timeout(RENEW, self.lease_given_up.notified()).await;
            if self.lease.get() == 0 {
                continue;
            }
            match self.store.keep_alive(self.lease.get()).await {
                Ok(answer) => {
                    if answer.seconds == 0 {
                        tracing::warn!(
                            "the fleet's store has ended this host's registration; the host registers again"
                        );
                        self.lease.set(0);
                    }
                    if self.is_following.get() && !self.node.borrow().store_answers() {
                        self.submit(FleetEvent::StoreAnswers);
                    }
                }
                // It may have been renewed, and the next attempt shows it. News of another host go on without
                // the store.
                Err(error) if self.is_following.get() => {
                    self.submit(FleetEvent::StoreSilent { cause: error.to_string() });
                }
                Err(_) => {}
            }
        }
    }

    /// Carries out a transaction. Records with a lease belong to the lease that this host has now.
    pub(super) async fn transact(&self, transaction: &Transaction) -> TransactionOutcome {
        let lease = self.lease.get();
        if !transaction.may_go_with(lease) {
            return TransactionOutcome::Unknown;
        }
        let outcome = self.store.transact(transaction, lease).await;
        transaction.outcome_of(outcome, lease, self.lease.get())
    }

    /// Waits before the store is asked again, each host for a time of its own.
    async fn pause(&self) {
        let pause = self.node.borrow_mut().share(AGAIN);
        sleep(pause).await;
    }

    /// Wakes the node at its time, and reports which models are idle.
    pub(super) async fn tick(self: Rc<Self>) {
        let mut reported = Vec::new();
        loop {
            let left = self.wake_at.get().map_or(TICK, |at| at.saturating_sub(self.now()).min(TICK));
            if timeout(left, self.wake.notified()).await.is_ok() {
                continue;
            }
            self.wake_at.set(None);
            self.submit(FleetEvent::Tick);
            let Some(runtime) = self.runtime() else { return };
            self.revise_offers(&runtime);
            let models = runtime.snapshot().models.into_iter();
            let ready = models.filter(|model| model.state == ModelState::Ready);
            let idle: Vec<_> = ready.map(|model| (model.id, model.in_flight == 0)).collect();
            // Only news: a store at rest is not written to.
            for (model, is_idle) in idle.iter().filter(|pair| !reported.contains(*pair)) {
                self.notify_run(&runtime, *model, ModelState::Ready, *is_idle);
            }
            reported = idle;
        }
    }

    /// Reports to the store that this host is gone.
    pub async fn leave(&self) {
        let lease = self.lease.replace(0);
        // Without an answer the lease ends by itself.
        let _ = timeout(LEAVE, self.store.revoke(lease)).await;
    }
}
