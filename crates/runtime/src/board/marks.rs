//! Keeps a bounded history of events: loads and stops for the timeline, failures with causes and advice.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_base::{Hint, Order, Reason};
use plimsoll_scheduler::{ModelId, Moment};
use serde::Serialize;

/// Marks and failures that are kept.
const MARKS: usize = 512;
pub(super) const FAILURES: usize = 32;
/// Time within which an equal failure is counted instead of listed again.
const APART: Duration = Duration::from_secs(60);
/// Time within which a model's state follows the end of its engine, which has a mark already.
const MOMENT: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, Serialize)]
pub(super) struct Mark {
    /// Grows with each change of a mark, so that a reader can get the news alone.
    pub(super) number: u64,
    pub(super) at: Moment,
    /// `load`, `ready`, `stop`, `gone`, `failed` or `refused`.
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<ModelId>,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<MarkedFailure>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MarkedFailure {
    /// The number of the failure's first mark; equal failures share it.
    pub(super) id: u64,
    pub(super) times: u64,
    pub(super) reason: Reason,
    pub(super) hints: Vec<Hint>,
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    last: Cell<u64>,
    marks: RefCell<VecDeque<Mark>>,
    failures: RefCell<VecDeque<Mark>>,
}

impl Marks {
    /// The number of the newest mark.
    pub(super) fn last(&self) -> u64 {
        self.last.get()
    }

    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    pub(super) fn add(&self, at: Moment, kind: &'static str, model: Option<ModelId>, text: String) {
        push(&self.marks, MARKS, Mark { number: self.next(), at, kind, model, text, failure: None });
    }

    // DECISION: a reader takes the figures of a mark for those of its time, so that only an equal tree is
    // counted. The words of a refusal stay the same while the memory of other processes goes up and down, and
    // are no news each time.
    /// Adds a failure, or counts it if an equal one was added a moment ago; true for one in new words.
    pub(super) fn fail(
        &self,
        at: Moment,
        kind: &'static str,
        model: Option<ModelId>,
        reason: &Reason,
        hints: &[Hint],
    ) -> bool {
        let number = self.next();
        let mut failures = self.failures.borrow_mut();
        let is_recent =
            |mark: &Mark| mark.kind == kind && mark.text == reason.text && at.since(mark.at) < APART;
        let is_new = !failures.iter().any(is_recent);
        let is_equal = |mark: &Mark| mark.failure.as_ref().is_some_and(|failure| failure.reason == *reason);
        // A load and the requests that wait for it fail with the same words, and not all of them know the
        // remedy.
        let of_same =
            failures.iter_mut().filter(|mark| mark.text == reason.text && at.since(mark.at) < APART);
        let mut all = hints.to_vec();
        for failure in of_same.filter_map(|mark| mark.failure.as_mut()) {
            add(&mut all, &failure.hints);
            add(&mut failure.hints, hints);
        }
        if let Some(mark) = failures.iter_mut().find(|mark| is_recent(mark) && is_equal(mark)) {
            (mark.number, mark.at) = (number, at);
            mark.failure.iter_mut().for_each(|failure| failure.times += 1);
            return false;
        }
        drop(failures);
        let failure = MarkedFailure { id: number, times: 1, reason: reason.clone(), hints: all };
        let mark = Mark { number, at, kind, model, text: reason.text.clone(), failure: Some(failure) };
        push(&self.failures, FAILURES, mark);
        is_new
    }

    /// All failures, the oldest first.
    pub(super) fn failures(&self) -> Vec<Mark> {
        self.failures.borrow().iter().cloned().collect()
    }

    /// True if a failure of the last minute is the cause of this one, and is reported already.
    pub(super) fn caused(&self, now: Moment, reason: &Reason) -> bool {
        let failures = self.failures.borrow();
        let is_cause = |mark: &Mark| {
            now.since(mark.at) < APART && reason.because.iter().any(|cause| cause.text == mark.text)
        };
        failures.iter().any(is_cause)
    }

    /// The newest failure that reads like this one, unless the model was ready since.
    pub(super) fn standing(&self, model: ModelId, text: &str) -> Option<Mark> {
        let failures = self.failures.borrow();
        let failed = failures.iter().filter(|mark| mark.text == text).max_by_key(|mark| mark.at)?;
        let marks = self.marks.borrow();
        let was_ready =
            |mark: &Mark| mark.kind == "ready" && mark.model == Some(model) && mark.at > failed.at;
        (!marks.iter().any(was_ready)).then(|| failed.clone())
    }

    /// True if the model's last failure is of this moment and reads like this one.
    pub(super) fn just_reported(&self, now: Moment, model: ModelId, text: &str) -> bool {
        let failures = self.failures.borrow();
        let last = failures.iter().filter(|mark| mark.model == Some(model)).max_by_key(|mark| mark.at);
        last.is_some_and(|mark| mark.text == text && now.since(mark.at) < MOMENT)
    }

    /// Marks and failures that changed after mark `number`, oldest first.
    pub(super) fn after(&self, number: u64) -> Vec<Mark> {
        let (marks, failures) = (self.marks.borrow(), self.failures.borrow());
        let new = marks.iter().chain(failures.iter()).filter(|mark| mark.number > number);
        let mut new: Vec<Mark> = new.cloned().collect();
        new.order_by_key(|mark| mark.number);
        new
    }
}

fn add(hints: &mut Vec<Hint>, more: &[Hint]) {
    let new: Vec<Hint> = more.iter().filter(|hint| !hints.contains(hint)).cloned().collect();
    hints.extend(new);
}

fn push(ring: &RefCell<VecDeque<Mark>>, most: usize, mark: Mark) {
    let mut ring = ring.borrow_mut();
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(mark);
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Advice;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    #[test]
    fn a_client_that_fails_in_a_loop_is_one_failure_with_a_count() {
        let marks = Marks::default();
        let reason = Reason::new("queue_full", "9 requests are already waiting for a");
        for second in 0..1000 {
            marks.fail(at(second / 100), "refused", None, &reason, &[]);
        }
        let all = marks.after(0);
        assert_eq!((all.len(), all[0].number), (1, 1000));
        let failure = all[0].failure.as_ref().unwrap();
        assert_eq!((failure.id, failure.times), (1, 1000));
        let other = reason.clone().because(Reason::new("slow", "a answers 1 request"));
        marks.fail(at(10), "refused", None, &other, &[]);
        let last = marks.after(1000)[0].failure.clone().unwrap();
        assert_eq!((last.times, last.reason), (1, other), "it is another failure");
        marks.fail(at(200), "refused", None, &reason, &[]);
        assert_eq!(marks.after(1001).len(), 1, "minutes later it is another one");
    }

    #[test]
    fn other_figures_are_another_mark_and_no_news() {
        let (marks, text) = (Marks::default(), "a does not fit");
        let refusal = |free: u64| {
            let cause = Reason::new("on_card", format!("the card has {free} MiB available"));
            Reason::new("no_room", text).because(cause)
        };
        let is_news: Vec<bool> =
            [1, 2, 1, 2].map(|free| marks.fail(at(0), "refused", None, &refusal(free), &[])).to_vec();
        assert_eq!(is_news, [true, false, false, false]);
        let all = marks.after(0);
        let reported = all.iter().filter_map(|mark| mark.failure.as_ref());
        let reported: Vec<(u64, &Reason)> =
            reported.map(|failure| (failure.times, &failure.reason)).collect();
        assert_eq!(reported, [(2, &refusal(1)), (2, &refusal(2))]);
        assert!(marks.fail(at(90), "refused", None, &refusal(1), &[]), "it is news after a minute");
    }

    #[test]
    fn a_failure_has_the_hints_of_each_that_reads_like_it() {
        let marks = Marks::default();
        let (reason, hint) = (Reason::new("no_room", "a does not fit"), Hint::new(Advice::FewerSlots(1)));
        marks.fail(at(0), "failed", Some(ModelId(1)), &reason, &[]);
        marks.fail(at(1), "refused", None, &reason, std::slice::from_ref(&hint));
        marks.fail(at(2), "failed", Some(ModelId(1)), &reason, &[]);
        marks.fail(at(3), "refused", None, &Reason::new("no_room", "b does not fit"), &[]);
        let hints = |mark: &Mark| mark.failure.clone().unwrap().hints;
        let all = marks.failures();
        assert_eq!(all.iter().map(hints).collect::<Vec<_>>(), [vec![hint.clone()], vec![hint], vec![]]);
    }

    #[test]
    fn a_failure_that_follows_from_another_is_reported_already_and_a_later_load_ends_it() {
        let (marks, model) = (Marks::default(), ModelId(1));
        let died = Reason::new("engine_died", "a died");
        let refused = Reason::new("load_failed", "a could not be loaded").because(died.clone());
        assert!(!marks.caused(at(1), &refused));
        marks.fail(at(1), "failed", Some(model), &died, &[]);
        assert!(marks.caused(at(2), &refused) && !marks.caused(at(100), &refused));
        assert!(!marks.caused(at(2), &Reason::new("no_room", "no room")));
        let stands = |text| marks.standing(model, text).map(|mark| mark.at);
        assert_eq!((stands("a died"), stands("b died")), (Some(at(1)), None));
        marks.add(at(3), "ready", Some(ModelId(2)), String::new());
        assert!(stands("a died").is_some());
        marks.add(at(4), "ready", Some(model), String::new());
        assert!(stands("a died").is_none());
        marks.fail(at(5), "failed", Some(model), &died, &[]);
        assert_eq!(stands("a died"), Some(at(5)));
    }

    #[test]
    fn the_rings_are_bounded_and_give_only_what_is_new() {
        let marks = Marks::default();
        for number in 0..2000_u32 {
            marks.add(at(1), "load", Some(ModelId(number)), String::new());
            marks.fail(at(1), "failed", Some(ModelId(number)), &Reason::new("x", number.to_string()), &[]);
        }
        assert_eq!(marks.after(0).len(), MARKS + FAILURES);
        let new = marks.after(marks.last() - 2);
        assert_eq!(new.iter().map(|mark| mark.kind).collect::<Vec<_>>(), ["load", "failed"]);
        let reported = |second, text| marks.just_reported(at(second), ModelId(1999), text);
        assert!(reported(1, "1999") && !reported(1, "1998") && !reported(10, "1999"));
    }
}
