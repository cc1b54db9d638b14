//! Records statistics of a model's answers: tokens, time to the first token, and speed.

use std::time::Duration;

use plimsoll_scheduler::ModelId;

use plimsoll_route::{AnswerTokens, Exposition, Histogram, MetricKind};

/// Weight of the last answer in the speed.
const WEIGHT: f64 = 0.3;
/// A shorter answer says little of the speed.
const LEAST_TOKENS: u64 = 4;

#[derive(Clone, Debug)]
pub(super) struct AnswerTally {
    first_token: Histogram,
    prompt: Histogram,
    created: Histogram,
    /// Tokens a second of the last streams, as they reached the client.
    speed: Option<f64>,
}

impl Default for AnswerTally {
    fn default() -> Self {
        let [prompt, created] = [const { Histogram::of_tokens() }; 2];
        Self { first_token: Histogram::of_seconds(), prompt, created, speed: None }
    }
}

impl AnswerTally {
    /// Adds an answer. `first` is the time to the first piece of a stream, and from there to its end.
    pub(super) fn add(&mut self, tokens: Option<AnswerTokens>, first: Option<(Duration, Duration)>) {
        if let Some((until_first, _)) = first {
            self.first_token.add(until_first.as_secs_f64());
        }
        let Some((tokens, created)) = tokens.and_then(|tokens| Some((tokens, tokens.created?))) else {
            return;
        };
        self.prompt.add(float(tokens.total.saturating_sub(created)));
        self.created.add(float(created));
        // The first piece brought the first token.
        let rest =
            first.map(|(_, rest)| rest.as_secs_f64()).filter(|rest| *rest > 0.0 && created >= LEAST_TOKENS);
        if let Some(rest) = rest {
            let last = float(created - 1) / rest;
            self.speed = Some(self.speed.map_or(last, |before| before + WEIGHT * (last - before)));
        }
    }

    pub(super) fn speed(&self) -> Option<f64> {
        self.speed
    }

    pub(super) fn write(page: &mut Exposition, models: &[(ModelId, String)], of: impl Fn(ModelId) -> Self) {
        type Figures = fn(&AnswerTally) -> &Histogram;
        let families: [(&str, &str, Figures); 3] = [
            (
                "plimsoll_first_token_seconds",
                "Time from a whole request to the first token of its stream",
                |all| &all.first_token,
            ),
            ("plimsoll_prompt_tokens", "Tokens of a prompt, as the engine counts them", |all| &all.prompt),
            ("plimsoll_answer_tokens", "Tokens of an answer, as the engine counts them", |all| &all.created),
        ];
        for (name, help, figures) in families {
            page.family(name, MetricKind::Histogram, help);
            for (model, model_name) in models {
                let all = of(*model);
                // A model without an answer has no series, which keeps the page short for many models.
                if !figures(&all).is_empty() {
                    page.histogram(name, &[("model", model_name)], figures(&all));
                }
            }
        }
    }
}

/// Counts of tokens are far below the whole numbers that a float holds.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_by_its_parts_and_a_stream_by_its_speed() {
        let mut tally = AnswerTally::default();
        let tokens = |created| Some(AnswerTokens { total: 130, created });
        tally.add(tokens(Some(30)), None);
        tally.add(None, Some((Duration::from_millis(40), Duration::from_secs(1))));
        tally.add(tokens(None), None);
        assert_eq!(tally.speed(), None);
        tally.add(tokens(Some(101)), Some((Duration::from_secs(2), Duration::from_secs(4))));
        assert_eq!(tally.speed(), Some(25.0));
        tally.add(tokens(Some(2)), Some((Duration::ZERO, Duration::ZERO)));
        assert_eq!(tally.speed(), Some(25.0), "too short to tell");
        let mut page = Exposition::default();
        AnswerTally::write(&mut page, &[(ModelId(0), "a".to_owned())], |_| tally.clone());
        let page = page.finish();
        for line in [
            "plimsoll_first_token_seconds_count{model=\"a\"} 3",
            "plimsoll_prompt_tokens_sum{model=\"a\"} 257",
            "plimsoll_answer_tokens_bucket{model=\"a\",le=\"32\"} 2",
            "plimsoll_answer_tokens_count{model=\"a\"} 3",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        let mut none = Exposition::default();
        AnswerTally::write(&mut none, &[(ModelId(0), "a".to_owned())], |_| AnswerTally::default());
        assert!(!none.finish().contains("{model"));
    }
}
