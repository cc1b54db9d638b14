//! Runs tasks on one thread, and blocking work on others.
//!
//! DECISION: both are boxed. Tokio compiles its task anew for each type of future. For a type that
//! `spawn_local` takes, it does so twice: for a `LocalSet` and for a local runtime. Eighty such types were 4
//! % of the program.
#![forbid(unsafe_code)]

mod event_loop;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::task::{self, JoinHandle};

pub use self::event_loop::{DaemonFuture, on_one_thread};

pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let future: DaemonFuture<T> = Box::pin(future);
    task::spawn_local(future)
}

/// Begins at once, whether or not the answer is awaited.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let (answer, answered) = oneshot::channel();
    let work: Box<dyn FnOnce() + Send> = Box::new(move || drop(answer.send(work())));
    drop(task::spawn_blocking(work));
    Answer(answered)
}

/// Result of blocking work.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<T>);

#[derive(Debug, thiserror::Error)]
#[error("a bug in plimsoll: the work ended without an answer; the log shows where")]
pub struct NoAnswer;

impl<T> Future for Answer<T> {
    type Output = Result<T, NoAnswer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| NoAnswer)
    }
}
