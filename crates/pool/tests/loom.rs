//! Model test of the memory budget with loom: every order in which threads can use it.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test --release -p plimsoll-pool --test loom`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::thread;
use plimsoll_pool::Budget;

/// Runs the act on so many threads and here.
fn beside(others: usize, budget: &Arc<Budget>, act: impl Fn(&Budget) + Copy + Send + 'static) {
    let threads: Vec<_> = (0..others)
        .map(|_| {
            let budget = Arc::clone(budget);
            thread::spawn(move || act(&budget))
        })
        .collect();
    act(budget);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn threads_that_take_together_never_pass_the_limit() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(5));
        let granted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&granted);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (budget, granted) = (Arc::clone(&budget), Arc::clone(&granted));
                thread::spawn(move || {
                    if budget.take(3).is_ok() {
                        granted.fetch_add(3, SeqCst);
                    }
                    assert!(budget.taken() <= 5);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(
            (budget.taken(), count.load(SeqCst)),
            (3, 3),
            "exactly one of two was granted"
        );
    });
}

#[test]
fn what_is_taken_and_given_back_leaves_the_budget_as_it_was() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(3));
        beside(1, &budget, |budget| {
            if budget.take(2).is_ok() {
                assert!(budget.taken() <= 3);
                budget.give(2);
            }
        });
        assert_eq!((budget.taken(), budget.free()), (0, 3));
    });
}

#[test]
fn a_request_is_refused_only_if_it_would_pass_the_limit_at_some_moment() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(6));
        beside(2, &budget, |budget| assert!(budget.take(2).is_ok()));
        assert_eq!(budget.free(), 0);
    });
}

#[test]
fn a_limit_that_is_lowered_holds_for_all_that_come_after_it() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(4));
        let taker = Arc::clone(&budget);
        let thread = thread::spawn(move || taker.take(3).is_ok());
        budget.set_limit(2);
        let early = thread.join().unwrap();
        assert_eq!(budget.taken(), if early { 3 } else { 0 });
        assert!(budget.take(1).is_err() == early);
    });
}
