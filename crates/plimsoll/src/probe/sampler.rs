//! Reads the cards while the daemon serves, on a thread of its own: a call into the driver may take milliseconds.
//!
//! After an engine's end the driver gives its bytes back late (half a second is usual, `ollama` waits up to five),
//! so a newcomer that starts at once runs out of memory that is on its way. [`Sampler::returned`] waits for it.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use plimsoll_core::bytes::Bytes;
use plimsoll_core::place::CardId;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::nvml::Source;
use super::{Machine, Reading};

const PAUSE: Duration = Duration::from_millis(25);
/// The longest that anybody waits for bytes to come back.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread that reads the cards: {0}")]
pub struct StartSamplerError(#[source] io::Error);

/// A handle of the reading thread; clones share it, and it ends with the last one.
#[derive(Clone, Debug)]
pub struct Sampler {
    questions: mpsc::Sender<Question>,
}

#[derive(Debug)]
enum Question {
    Machine(oneshot::Sender<Machine>),
    Reading(oneshot::Sender<Reading>),
}

impl Sampler {
    /// Starts the thread, which loads the driver's library.
    pub fn start() -> Result<Self, StartSamplerError> {
        let (questions, inbox) = mpsc::channel();
        thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || answer(&inbox))
            .map_err(StartSamplerError)?;
        Ok(Self { questions })
    }

    /// Everything about the machine; `None` only if the thread died.
    pub async fn machine(&self) -> Option<Machine> {
        self.ask(Question::Machine).await
    }

    /// What is free now and who holds the rest; empty if the thread died.
    pub async fn read(&self) -> Reading {
        self.ask(Question::Reading).await.unwrap_or_default()
    }

    /// Waits until each card has at least this much free, or five seconds; returns the last reading.
    pub async fn returned(&self, at_least: &[(CardId, Bytes)]) -> Reading {
        let give_up = Instant::now() + LONGEST_WAIT;
        loop {
            let reading = self.read().await;
            let back = at_least
                .iter()
                .all(|(card, free)| reading.free_on(card).is_none_or(|now| now >= *free));
            if back || Instant::now() >= give_up {
                return reading;
            }
            sleep(PAUSE).await;
        }
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(question(reply)).ok()?;
        answer.await.ok()
    }
}

impl Reading {
    /// What is free on `card`; `None` where it does not answer.
    pub fn free_on(&self, card: &CardId) -> Option<Bytes> {
        self.free
            .iter()
            .find(|(other, _)| other == card)
            .map(|(_, free)| *free)
    }
}

fn answer(inbox: &mpsc::Receiver<Question>) {
    let source = Source::open();
    while let Ok(question) = inbox.recv() {
        match question {
            Question::Machine(reply) => drop(reply.send(source.machine())),
            Question::Reading(reply) => drop(reply.send(source.reading())),
        }
    }
}
