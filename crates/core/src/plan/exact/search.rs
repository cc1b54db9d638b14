//! The largest context that fits, by asking an engine and not by interpolating.
//!
//! Each question costs a run of the engine, so the search starts from the default plan's answer: if that fits and one
//! step more does not, two questions are enough. Else it walks away from there in doubling strides until the border
//! lies between two answers, and halves. It ends after a number of questions that it was given, without an answer.

use crate::plan::request::PlanRequest;
use crate::plan::reserve::CELLS;

/// A search in progress. Contexts are counted in steps of 256 tokens.
#[derive(Clone, Debug)]
pub struct Search {
    /// The largest step known to fit; 0 fits by definition.
    low: u64,
    /// The smallest step known not to fit.
    high: Option<u64>,
    most: u64,
    next: u64,
    stride: u64,
    questions: u32,
}

impl Search {
    /// `guess` is the default plan's answer; `context` and `fits` are what the engine said of the context asked for.
    pub fn new(
        request: &PlanRequest<'_>,
        guess: Option<u64>,
        context: u64,
        fits: bool,
        questions: u32,
    ) -> Self {
        let trained = u64::from(request.model.hyper.context_train);
        let most = trained.max(context).div_ceil(CELLS).max(1);
        let guess = guess.map_or(1, |tokens| tokens / CELLS);
        let mut search = Self {
            low: 0,
            high: None,
            most,
            next: guess.clamp(1, most),
            stride: 1,
            questions,
        };
        search.learn((context / CELLS).max(1), fits);
        search
    }

    /// The context to ask for next; `None` when there is nothing left to ask.
    pub fn question(&self) -> Option<u64> {
        (self.questions > 0 && !self.is_settled()).then_some(self.next * CELLS)
    }

    /// Takes an answer in.
    pub fn tell(&mut self, context: u64, fits: bool) {
        self.questions = self.questions.saturating_sub(1);
        self.learn(context / CELLS, fits);
    }

    /// The answer: `Ok(None)` where not even the smallest context fits; `Err` holds the largest that was seen to fit,
    /// where the questions ran out.
    pub fn answer(&self) -> Result<Option<u64>, Option<u64>> {
        let found = (self.low > 0).then_some(self.low * CELLS);
        if self.is_settled() { Ok(found) } else { Err(found) }
    }

    fn is_settled(&self) -> bool {
        self.low >= self.most || self.high == Some(self.low + 1)
    }

    fn learn(&mut self, step: u64, fits: bool) {
        if fits {
            self.low = self.low.max(step);
        } else {
            self.high = Some(self.high.map_or(step, |high| high.min(step)));
        }
        let end = self.high.unwrap_or(self.most + 1);
        if self.low < self.next && self.next < end {
            return;
        }
        self.next = self.onwards(end);
        self.stride = self.stride.saturating_mul(2);
    }

    /// Away from the last question by a stride, but not past the middle of what is left once both ends are known.
    fn onwards(&self, end: u64) -> u64 {
        let middle = self.low + (end - self.low) / 2;
        let step = if self.next <= self.low {
            let stride = self.low.saturating_add(self.stride);
            if self.high.is_some() {
                stride.min(middle)
            } else {
                stride.min(self.most)
            }
        } else {
            let stride = end.saturating_sub(self.stride);
            if self.low > 0 { stride.max(middle) } else { stride }
        };
        step.clamp(self.low + 1, end.saturating_sub(1).max(self.low + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(guess: u64, most: u64, asked: u64, border: u64) -> (Result<Option<u64>, Option<u64>>, u32) {
        let mut search = Search {
            low: 0,
            high: None,
            most,
            next: guess.clamp(1, most),
            stride: 1,
            questions: 40,
        };
        search.learn(asked, asked <= border);
        let mut asked = 0;
        while let Some(context) = search.question() {
            asked += 1;
            search.tell(context, context / CELLS <= border);
        }
        (search.answer(), asked)
    }

    #[test]
    fn a_guess_that_is_right_takes_two_questions() {
        assert_eq!(search(300, 512, 32, 300), (Ok(Some(300 * CELLS)), 2));
        assert_eq!(search(512, 512, 32, 512), (Ok(Some(512 * CELLS)), 1));
        assert_eq!(search(512, 512, 512, 512), (Ok(Some(512 * CELLS)), 0));
    }

    #[test]
    fn it_finds_every_border_from_every_guess() {
        for border in 0..=40 {
            for guess in 1..=40 {
                for asked in [1, 7, 40] {
                    let (answer, questions) = search(guess, 40, asked, border);
                    let expected = (border > 0).then_some(border * CELLS);
                    assert_eq!(
                        answer,
                        Ok(expected),
                        "border {border}, guess {guess}, asked {asked}"
                    );
                    assert!(questions <= 12, "{questions} for border {border}, guess {guess}");
                }
            }
        }
    }

    #[test]
    fn a_guess_that_is_near_takes_few() {
        let (answer, questions) = search(4000, 4096, 32, 3990);
        assert_eq!(answer, Ok(Some(3990 * CELLS)));
        assert!(questions <= 9, "{questions}");
    }

    #[test]
    fn without_questions_there_is_no_answer() {
        let mut search = Search {
            low: 0,
            high: None,
            most: 100,
            next: 50,
            stride: 1,
            questions: 0,
        };
        search.learn(3, true);
        assert_eq!((search.question(), search.answer()), (None, Err(Some(3 * CELLS))));
    }
}
