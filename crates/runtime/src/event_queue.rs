//! Queues the scheduler's events, and handles each only when the one before it is complete.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

// DECISION: the first caller drains the queue and returns when it is empty, instead of a task of its own. A
// request that need not wait is sent within the call that reports its arrival.
pub(super) struct EventQueue<E> {
    events: RefCell<VecDeque<E>>,
    is_drained: Cell<bool>,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { events: RefCell::default(), is_drained: Cell::new(false) }
    }
}

impl<E> EventQueue<E> {
    /// Hands `event` to `handle`, and all that come meanwhile, one after the other. Within `handle`, it only
    /// queues.
    pub(super) fn submit(&self, event: E, handle: impl Fn(E)) {
        if self.is_drained.replace(true) {
            self.events.borrow_mut().push_back(event);
            return;
        }
        let _ended = Drained(&self.is_drained);
        // Events are large, so one that need not wait is not copied into the queue. Events of a handler that
        // panicked come before it.
        while let Some(left) = self.next() {
            handle(left);
        }
        handle(event);
        while let Some(event) = self.next() {
            handle(event);
        }
    }

    fn next(&self) -> Option<E> {
        self.events.borrow_mut().pop_front()
    }
}

/// Ends the draining, also where a handler panics.
struct Drained<'a>(&'a Cell<bool>);

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands `event` to a handler that submits two more for each event above zero, and notes its begin and
    /// its end.
    fn submit(queue: &EventQueue<u32>, event: u32, log: &RefCell<Vec<String>>) {
        queue.submit(event, |event| {
            log.borrow_mut().push(format!("{event} begins"));
            for less in (0..event).rev().take(2) {
                submit(queue, less, log);
            }
            log.borrow_mut().push(format!("{event} ends"));
        });
    }

    #[test]
    fn an_event_that_comes_while_another_is_handled_waits_for_its_turn() {
        let (queue, log) = (EventQueue::default(), RefCell::default());
        submit(&queue, 2, &log);
        let order: Vec<String> =
            [2, 1, 0, 0].iter().flat_map(|n| [format!("{n} begins"), format!("{n} ends")]).collect();
        assert_eq!(*log.borrow(), order);
    }

    #[test]
    fn a_handler_that_panics_does_not_stop_the_queue() {
        let queue = EventQueue::default();
        let panics = || queue.submit(1, |_| panic!("a bug in a handler"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        let handled = Cell::new(0);
        queue.submit(2, |event| handled.set(handled.get() + event));
        assert_eq!(handled.get(), 2);
    }
}
