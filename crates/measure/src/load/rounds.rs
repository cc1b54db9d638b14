//! Runs the rounds of a load test: several clients send a fixed set of requests, until all are answered.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use plimsoll_base::Order;
use tokio::task::JoinSet;

use super::answer::{LoadAnswer, LoadFailure};
use super::client::Client;
use super::prompt::{LoadPrompt, WordLength};

/// Number of different texts kept per kind of failure.
const MOST_TEXTS: usize = 3;

/// Description of the requests in each round.
#[derive(Clone, Debug)]
pub struct Round {
    pub depths: Vec<u64>,
    pub answer: u64,
    pub requests: u64,
    /// True to start each prompt with a unique number, so that no prompt cache matches.
    pub fresh: bool,
    pub yardstick: WordLength,
}

/// Results of the requests so far.
#[derive(Clone, Debug, Default)]
pub struct RoundTally {
    pub answered: u64,
    pub failed: BTreeMap<String, (u64, Vec<String>)>,
    pub prompt_tokens: u64,
    pub answer_tokens: u64,
    /// Answer tokens per second for one client, one value per answer of more than one token.
    pub speeds: Vec<f64>,
    /// Milliseconds to the first token, one value per answer.
    pub first_tokens: Vec<f64>,
}

impl Round {
    /// The requests of the round with this number.
    fn requests(&self, model: &str, number: u64) -> VecDeque<Bytes> {
        let depths = self.depths.iter().cycle();
        (0..self.requests)
            .zip(depths)
            .map(|(place, depth)| {
                // Never 0, which stands for no nonce; unique over all rounds of a run.
                let nonce = if self.fresh { number * self.requests + place + 1 } else { 0 };
                let prompt = LoadPrompt { depth: *depth, answer: self.answer, number: place, nonce };
                prompt.request(model, self.yardstick)
            })
            .collect()
    }

    /// Runs one round of at most `most` requests, and returns the clients for the next.
    pub async fn hold(
        &self,
        clients: Vec<Client>,
        model: &str,
        number: u64,
        most: u64,
    ) -> (Vec<Client>, RoundTally) {
        let mut waiting = self.requests(model, number);
        waiting.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        // One queue instead of fixed shares: a client with short prompts takes the next request meanwhile.
        let waiting = Rc::new(RefCell::new(waiting));
        let mut working = JoinSet::new();
        for mut client in clients {
            let waiting = Rc::clone(&waiting);
            // Everything runs on one thread, which keeps the load generator cheap and free of locks.
            working.spawn_local(async move {
                let mut tally = RoundTally::default();
                loop {
                    let Some(request) = waiting.borrow_mut().pop_front() else {
                        return (client, tally);
                    };
                    tally.note(client.ask(request).await);
                }
            });
        }
        let (mut back, mut all) = (Vec::new(), RoundTally::default());
        while let Some(done) = working.join_next().await {
            // Only a panic ends a task early. Its results are lost, but the round still ends.
            if let Ok((client, tally)) = done {
                back.push(client);
                all.add(tally);
            }
        }
        (back, all)
    }
}

impl RoundTally {
    pub fn note(&mut self, outcome: Result<LoadAnswer, LoadFailure>) {
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

    fn note_answer(&mut self, answer: &LoadAnswer) {
        self.answered += 1;
        // Without a count, one event is taken as one token: llama-server streams that way.
        let tokens = answer.answer_tokens.unwrap_or(answer.pieces);
        self.answer_tokens += tokens;
        self.prompt_tokens += answer.prompt_tokens.unwrap_or_default();
        self.first_tokens.push(answer.first_token.as_secs_f64() * 1000.0);
        if let Some(speed) = answer.speed() {
            self.speeds.push(speed);
        }
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

impl LoadAnswer {
    /// Tokens per second after the first one, by the server's own clock if it reports one; `None` for an
    /// answer that is too short for a rate.
    pub fn speed(&self) -> Option<f64> {
        /// The time of one or two tokens is that of the clock's reading.
        const FEWEST: u64 = 4;
        // The first token's time is mostly prompt processing, so it is left out of both counts.
        let tokens = self.answer_tokens.unwrap_or(self.pieces).checked_sub(1);
        let tokens = tokens.filter(|tokens| *tokens >= FEWEST)?;
        let time = self.whole.checked_sub(self.first_token)?.as_secs_f64();
        let ours =
            u32::try_from(tokens).ok().map(f64::from).filter(|_| time > 0.0).map(|tokens| tokens / time);
        self.answer_speed.or(ours)
    }
}

/// One kind of failure in a sentence, with an example.
pub fn failed_so(kind: &str, count: u64, texts: &[String]) -> String {
    match texts.first() {
        Some(text) => format!("{count} × {kind}: {text}"),
        None => format!("{count} × {kind}"),
    }
}

/// The median; `None` of no numbers.
pub(super) fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.order_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}
