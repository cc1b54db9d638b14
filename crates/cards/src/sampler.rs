//! Runs a thread that reads the cards' memory for the daemon, because a call to the driver may take
//! milliseconds.
//!
//! It also waits until the driver has freed the memory of an ended engine ([`Sampler::returned`]).

use std::ffi::{OsStr, OsString};
use std::sync::mpsc;
use std::time::Duration;
use std::{io, thread};

use plimsoll_base::{Bytes, CardId};
use plimsoll_process::PLIMSOLL;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::lookout::{CardQuery, CardReader};
use super::{Holder, Machine, Reading};

/// Time limit for the driver's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Time after which a new helper process replaces one whose driver call hangs. NVML's first call after a boot
/// may take 10 s without persistence mode.
const DRIVER_WITHIN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(25);
/// The longest wait for bytes to come back.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Time without change after which the cards have released all that they will: an engine that died during its
/// load never held its whole claim.
const STILL: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread that reads the cards: {0}")]
pub struct StartSamplerError(#[source] io::Error);

/// Handle of the thread that reads the cards; clones share it, and the thread ends with the last one.
#[derive(Clone, Debug)]
pub struct Sampler {
    questions: mpsc::Sender<SampleQuestion>,
}

#[derive(Debug)]
enum SampleQuestion {
    Machine(oneshot::Sender<Machine>),
    Reading(CardQuery, oneshot::Sender<Reading>),
}

impl Sampler {
    /// Starts the thread, and with the first question the process that loads the driver's library.
    pub fn start() -> Result<Self, StartSamplerError> {
        Self::start_with(OsStr::new(PLIMSOLL))
    }

    /// Starts the thread for the host's memory alone.
    pub fn of_host() -> Result<Self, StartSamplerError> {
        Self::run(SamplerThread { plimsoll: OsString::new(), lookout: None, no_card: true })
    }

    /// The same with the lookout of another `plimsoll` program, for tests.
    pub fn start_with(plimsoll: &OsStr) -> Result<Self, StartSamplerError> {
        Self::run(SamplerThread { plimsoll: plimsoll.to_owned(), lookout: None, no_card: false })
    }

    fn run(eyes: SamplerThread) -> Result<Self, StartSamplerError> {
        let (questions, inbox) = mpsc::channel();
        thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || eyes.answer(&inbox))
            .map_err(StartSamplerError)?;
        Ok(Self { questions })
    }

    /// Everything about the machine; `None` only if the thread died. The thread begins at once, whether or
    /// not the answer is awaited.
    pub fn machine(&self) -> impl Future<Output = Option<Machine>> + use<> {
        self.ask(SampleQuestion::Machine)
    }

    /// Free memory now and the holders of the rest; empty if the thread died.
    pub async fn read(&self) -> Reading {
        self.ask(|reply| SampleQuestion::Reading(CardQuery::Reading, reply)).await.unwrap_or_default()
    }

    /// The same, and nothing of it older than the question.
    pub async fn read_fresh(&self) -> Reading {
        self.ask(|reply| SampleQuestion::Reading(CardQuery::Fresh, reply)).await.unwrap_or_default()
    }

    /// Waits until each card has at least this much free, nothing moves any more, or five seconds have
    /// passed; returns the last reading.
    pub async fn returned(&self, at_least: &[(CardId, Bytes)]) -> Reading {
        let give_up = Instant::now() + LONGEST_WAIT;
        let (mut moved, mut before) = (Instant::now(), Vec::new());
        loop {
            let reading = self.read().await;
            let free: Vec<_> = at_least.iter().map(|(card, _)| reading.free_on(card)).collect();
            let back =
                at_least.iter().zip(&free).all(|((_, expected), now)| now.is_none_or(|now| now >= *expected));
            let now = Instant::now();
            if free != before {
                (moved, before) = (now, free);
            }
            // A card that does not answer counts as back: waiting would not help.
            if back || now >= give_up || now - moved >= STILL {
                return reading;
            }
            sleep(PAUSE).await;
        }
    }

    fn ask<T, Q>(&self, question: Q) -> impl Future<Output = Option<T>> + use<T, Q>
    where
        Q: FnOnce(oneshot::Sender<T>) -> SampleQuestion,
    {
        let (reply, answer) = oneshot::channel();
        let sent = self.questions.send(question(reply));
        async move {
            sent.ok()?;
            // A late answer is dropped: the next question has a channel of its own.
            timeout(ANSWER_WITHIN, answer).await.ok()?.ok()
        }
    }
}

impl Reading {
    /// Free memory of `card`; `None` if it does not answer.
    pub fn free_on(&self, card: &CardId) -> Option<Bytes> {
        self.free.iter().find(|(other, _)| other == card).map(|(_, free)| *free)
    }

    /// Memory that these processes hold of `card`; `None` where the driver states none of it.
    pub fn used_by(&self, processes: &[u32], card: &CardId) -> Option<Bytes> {
        let ours = |holder: &&Holder| holder.card == *card && processes.contains(&holder.pid);
        let used: Vec<Bytes> = self.holders.iter().filter(ours).filter_map(|holder| holder.used).collect();
        (!used.is_empty()).then(|| used.into_iter().sum())
    }
}

/// State of the thread itself.
struct SamplerThread {
    plimsoll: OsString,
    lookout: Option<CardReader>,
    /// The machine was seen and has no card.
    no_card: bool,
}

impl SamplerThread {
    fn answer(mut self, inbox: &mpsc::Receiver<SampleQuestion>) {
        while let Ok(question) = inbox.recv() {
            // A reply fails where the question was given up; its answer is of no use then.
            match question {
                SampleQuestion::Machine(reply) => drop(reply.send(self.machine())),
                SampleQuestion::Reading(query, reply) => drop(reply.send(self.reading(query))),
            }
        }
    }

    fn machine(&mut self) -> Machine {
        if self.no_card {
            return Machine::of_host();
        }
        // An answer that failed says nothing of cards, and the next question may find them.
        let Some(machine) = self.ask::<Machine>(CardQuery::Machine) else {
            return Machine::of_host();
        };
        // A machine without a card keeps no process for asking.
        self.no_card = machine.cards.is_empty() && machine.kernel_cards.is_empty();
        if self.no_card {
            self.lookout = None;
        }
        machine
    }

    fn reading(&mut self, query: CardQuery) -> Reading {
        let seen = if self.no_card { None } else { self.ask(query) };
        // The host needs no driver, and engines on the CPU need its figures.
        seen.unwrap_or_else(|| {
            let mut reading = Reading::default();
            reading.add_host();
            reading
        })
    }

    fn ask<T: DeserializeOwned>(&mut self, question: CardQuery) -> Option<T> {
        match self.try_ask(question) {
            Ok(answer) => Some(answer),
            Err(cause) => {
                tracing::warn!("the cards cannot be read: {cause}");
                // Dropped, and so killed: its next answer would belong to this question.
                self.lookout = None;
                None
            }
        }
    }

    fn try_ask<T: DeserializeOwned>(&mut self, question: CardQuery) -> io::Result<T> {
        let lookout = match &mut self.lookout {
            Some(lookout) => lookout,
            // Started by the first question, so a daemon that asks nothing has no second process.
            empty => empty.insert(CardReader::start(&self.plimsoll)?),
        };
        lookout.ask(question, DRIVER_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use plimsoll_base::{Card, CardKind, Counting};

    use super::*;

    #[tokio::test]
    async fn one_failed_answer_does_not_make_the_machine_one_without_cards() {
        let folder = tempfile::tempdir().unwrap();
        let (program, failed) = (folder.path().join("look"), folder.path().join("failed"));
        let mut machine = Machine::of_host();
        machine.cards = vec![Card {
            id: CardId::new("GPU-a"),
            kind: CardKind::Cuda,
            name: "a card".to_owned(),
            uuid: Some("GPU-a".to_owned()),
            total: Bytes::gib(24),
            free: Bytes::gib(20),
            compute_capability: Some((8, 9)),
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: plimsoll_base::CardMaker::Nvidia,
            address: None,
        }];
        let answer = serde_json::to_string(&machine).unwrap();
        // The driver fails once, as after a boot or beside a reset, and then answers.
        let script = format!(
            "#!/bin/sh\n[ -e '{0}' ] || {{ touch '{0}'; exit 1; }}\nwhile read question; do echo '{answer}'; done\n",
            failed.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let sampler = Sampler::start_with(program.as_os_str()).unwrap();
        assert!(sampler.machine().await.unwrap().cards.is_empty());
        assert_eq!(sampler.machine().await.unwrap().cards, machine.cards);
    }
}
