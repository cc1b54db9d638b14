//! Sends each new failure as a JSON document to a server that the operator chooses.
//!
//! A separate thread sends them, so neither requests nor the scheduler wait for that server.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use plimsoll_hub::{Address, post_json};

/// Failures that wait for delivery; what exceeds them is dropped.
const WAITING: usize = 32;
/// Time for one attempt, and the pauses before further ones.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(16)];

#[derive(Debug)]
pub(crate) struct Webhook(SyncSender<String>);

impl Webhook {
    pub(crate) fn start(address: Address) -> io::Result<Self> {
        let (sender, documents) = sync_channel(WAITING);
        let deliver = move || deliver(&documents, &PAUSES, |text| post_json(&address, text, PATIENCE));
        thread::Builder::new().name("webhook".to_owned()).spawn(deliver)?;
        Ok(Self(sender))
    }

    /// Hands a document over without waiting.
    pub(super) fn send(&self, document: String) {
        if let Err(TrySendError::Full(_)) = self.0.try_send(document) {
            tracing::debug!("a failure is not sent to the webhook: {WAITING} others are waiting to be sent");
        }
    }
}

/// Delivers until the sender is gone, each document after the one before it was taken or given up.
fn deliver<E: std::fmt::Display>(
    documents: &Receiver<String>,
    pauses: &[Duration],
    post: impl Fn(&str) -> Result<(), E>,
) {
    for document in documents {
        let mut left = pauses.iter();
        while let Err(error) = post(&document) {
            let Some(pause) = left.next() else {
                tracing::warn!(
                    "the webhook did not accept a failure report in {} attempts: {error}",
                    pauses.len() + 1
                );
                break;
            };
            thread::sleep(*pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn attempts_are_bounded_and_the_next_document_follows() {
        let (sender, documents) = sync_channel(4);
        for text in ["lost", "late", "taken"] {
            sender.send(text.to_owned()).unwrap();
        }
        drop(sender);
        let seen = RefCell::new(Vec::new());
        deliver(&documents, &[Duration::ZERO; 3], |text| {
            seen.borrow_mut().push(text.to_owned());
            let tries = seen.borrow().iter().filter(|one| *one == text).count();
            if text == "lost" || (text == "late" && tries < 3) { Err("no") } else { Ok(()) }
        });
        assert_eq!(seen.into_inner(), ["lost", "lost", "lost", "lost", "late", "late", "late", "taken"]);
    }

    #[test]
    fn a_receiver_that_takes_nothing_makes_nobody_wait() {
        let (sender, _kept) = sync_channel(WAITING);
        let webhook = Webhook(sender);
        (0..10_000).for_each(|number| webhook.send(number.to_string()));
    }
}
