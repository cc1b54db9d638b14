//! Calls the scheduler when its next deadline is due.

use std::rc::Rc;

use plimsoll_scheduler::{Moment, SchedulerEvent};

use super::Runtime;

/// Sends the scheduler its ticks: one sleep, moved whenever another wake-up is requested.
pub(super) async fn tick(runtime: Rc<Runtime>) {
    let mut wake = runtime.driver.wake.subscribe();
    loop {
        let moment = *wake.borrow_and_update();
        // Taken anew in each round; a moment that has passed gives a sleep of zero.
        let left = moment.since(runtime.state.now());
        let changed = wake.changed();
        if moment == Moment::NEVER {
            let _ = changed.await;
        } else if tokio::time::timeout(left, changed).await.is_err() {
            // Cleared before the event, which may request the next wake-up.
            runtime.driver.wake.send_replace(Moment::NEVER);
            runtime.submit(SchedulerEvent::Tick);
        }
    }
}
