//! A round: the same requests as in the one before, shared out among the clients, and nothing in flight when
//! it ends.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tokio::task::JoinSet;

use super::answer::{Answer, Failure};
use super::client::Client;
use super::prompt::{Prompt, Request, Yardstick};

/// Different texts of one kind of failure that are kept.
const MOST_TEXTS: usize = 3;

/// The requests of each round.
#[derive(Clone, Debug)]
pub struct Round {
    pub depths: Vec<u64>,
    pub answer: u64,
    pub requests: u64,
    /// Each prompt begins with a number of its own, so that no cache of prompts fits.
    pub fresh: bool,
    pub yardstick: Yardstick,
}

/// Outcome of a set of requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub answered: u64,
    pub failed: BTreeMap<String, (u64, Vec<String>)>,
    pub prompt_tokens: u64,
    pub answer_tokens: u64,
    /// Answer tokens per second of one client, a number for each answer that had more than one.
    pub speeds: Vec<f64>,
    /// Milliseconds to the first token.
    pub first_tokens: Vec<f64>,
}

impl Round {
    /// The requests of round `number`.
    fn requests(&self, model: &str, number: u64) -> VecDeque<Request> {
        let depths = self.depths.iter().cycle();
        (0..self.requests)
            .zip(depths)
            .map(|(place, depth)| {
                let nonce = match self.fresh {
                    true => number * self.requests + place + 1,
                    false => 0,
                };
                let prompt = Prompt {
                    depth: *depth,
                    answer: self.answer,
                    number: place,
                    nonce,
                };
                prompt.request(model, self.yardstick)
            })
            .collect()
    }

    /// Holds one round; the clients are given back.
    pub async fn hold(
        &self,
        clients: Vec<Client>,
        model: &str,
        number: u64,
        most: u64,
    ) -> (Vec<Client>, Tally) {
        let mut waiting = self.requests(model, number);
        waiting.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let waiting = Rc::new(RefCell::new(waiting));
        let mut working = JoinSet::new();
        for mut client in clients {
            let waiting = Rc::clone(&waiting);
            working.spawn_local(async move {
                let mut tally = Tally::default();
                loop {
                    let Some(request) = waiting.borrow_mut().pop_front() else {
                        return (client, tally);
                    };
                    tally.note(client.ask(request.body).await);
                }
            });
        }
        let (mut back, mut all) = (Vec::new(), Tally::default());
        while let Some(done) = working.join_next().await {
            // A client that panicked is a defect of ours, and its work is missing.
            if let Ok((client, tally)) = done {
                back.push(client);
                all.add(tally);
            }
        }
        (back, all)
    }
}

impl Tally {
    pub fn note(&mut self, outcome: Result<Answer, Failure>) {
        match outcome {
            Ok(answer) => self.note_answer(&answer),
            Err(failure) => {
                let (count, texts) = self.failed.entry(failure.kind()).or_default();
                *count += 1;
                let text = failure.detail();
                if !text.is_empty() && texts.len() < MOST_TEXTS && !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
    }

    fn note_answer(&mut self, answer: &Answer) {
        self.answered += 1;
        let tokens = answer.answer_tokens.unwrap_or(answer.pieces);
        self.answer_tokens += tokens;
        self.prompt_tokens += answer.prompt_tokens.unwrap_or_default();
        self.first_tokens.push(answer.first_token.as_secs_f64() * 1000.0);
        if let Some(speed) = answer.speed() {
            self.speeds.push(speed);
        }
    }

    /// The longest wait for a first token, in milliseconds.
    pub fn slowest(&self) -> Option<f64> {
        self.first_tokens.iter().copied().max_by(f64::total_cmp)
    }

    pub fn failures(&self) -> u64 {
        self.failed.values().map(|(count, _)| count).sum()
    }

    pub fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.prompt_tokens += other.prompt_tokens;
        self.answer_tokens += other.answer_tokens;
        self.speeds.extend(other.speeds);
        self.first_tokens.extend(other.first_tokens);
        for (kind, (count, texts)) in other.failed {
            let (sum, kept) = self.failed.entry(kind).or_default();
            *sum += count;
            kept.extend(texts);
            // Equal texts are adjacent in practice, as one cause fails many requests in a row.
            kept.dedup();
            kept.truncate(MOST_TEXTS);
        }
    }
}

impl Answer {
    /// Tokens per second after the first; by the server's clock where it tells.
    pub fn speed(&self) -> Option<f64> {
        let tokens = self
            .answer_tokens
            .unwrap_or(self.pieces)
            .checked_sub(1)
            .filter(|tokens| *tokens > 0)?;
        let time = self.whole.checked_sub(self.first_token)?.as_secs_f64();
        let ours = u32::try_from(tokens)
            .ok()
            .map(f64::from)
            .filter(|_| time > 0.0)
            .map(|tokens| tokens / time);
        self.answer_speed.or(ours)
    }
}

/// Failures of one kind in a sentence, by an example.
pub fn failed_so(kind: &str, count: u64, texts: &[String]) -> String {
    match texts.first() {
        Some(text) => format!("{count} × {kind}: {text}"),
        None => format!("{count} × {kind}"),
    }
}

/// The middle of some numbers; `None` of none.
pub(super) fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}
