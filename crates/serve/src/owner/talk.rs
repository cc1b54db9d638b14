//! What the owner tells the operator: one line on stderr for each thing that costs or frees memory.
//!
//! Lines begin with what is done and to which model, so that `grep alpha` is its history. They are made from
//! the same effects and reasons that decide and refuse; nothing is worded twice. Requests are not logged:
//! `/metrics` counts them.

use std::cell::RefCell;
use std::time::Duration;

use plimsoll_base::{Card, CardId, End, Placement, Reason};
use plimsoll_scheduler::{Effect, ModelId, ModelView, Moment, Refusal, RunId, Scheduler, State};

use super::{Books, Owner};

/// The same complaint is heard once in this time: a client that asks in a loop must not fill a log.
const APART: Duration = Duration::from_secs(10);

/// What was said last, so that it is not said again.
#[derive(Debug, Default)]
pub(super) struct Talk {
    last: RefCell<Option<(String, Moment)>>,
}

impl Owner {
    /// Tells what is about to be done.
    pub(super) fn tell_operator(&self, effect: &Effect) {
        match effect {
            Effect::Start { model, placement, .. } => self.tell_start(*model, placement),
            Effect::Stop { run, .. } => self.tell_stop(*run),
            Effect::Refuse { refusal, .. } => self.tell_refusal(refusal),
            Effect::Changed {
                model,
                state: State::Failed,
            } => self.tell_failure(*model),
            _ => {}
        }
    }

    fn tell_start(&self, model: ModelId, placement: &Placement) {
        let books = self.state.borrow();
        let name = &books.roll.entry(model).name;
        let snapshot = books.scheduler.snapshot(self.now());
        let places = placement.shares.iter().map(|share| {
            let card = snapshot.cards.iter().find(|card| card.id == share.card);
            let held = card.map_or(String::new(), |card| {
                format!(" ({} of {} claimed)", card.claimed, card.capacity)
            });
            format!("{} on {}{held}", share.bytes, self.label(&share.card))
        });
        let places = places.collect::<Vec<_>>().join(", ");
        match placement {
            _ if places.is_empty() => tracing::info!("load {name}: it takes no card"),
            Placement { alone: true, .. } => {
                tracing::info!("load {name}: {places}, alone there: what it needs is not known");
            }
            _ => tracing::info!("load {name}: {places}"),
        }
    }

    fn tell_stop(&self, run: RunId) {
        let books = self.state.borrow();
        let Some(model) = books.runs.get(&run).map(|run| run.model) else {
            return;
        };
        let name = &books.roll.entry(model).name;
        let why = books.scheduler.why_stopped(run, self.now());
        let why = why.map_or_else(String::new, |reason| format!(": {}", in_a_line(&reason)));
        tracing::info!("stop {name}{}{why}", idle(&books, model, self.now()));
    }

    /// Tells why nothing runs, unless the end of the run has just said so.
    fn tell_failure(&self, model: ModelId) {
        let books = self.state.borrow();
        let failure = books
            .scheduler
            .view(model, self.now())
            .and_then(|view| view.last_failure);
        let Some(failure) = failure else { return };
        let told = self.notes.with(model, |note| note.told.replace(failure.clone()));
        if told.as_ref() != Some(&failure) && self.talk.is_news(&failure.text, self.now()) {
            tracing::warn!("{}", in_a_line(&failure));
        }
    }

    fn tell_refusal(&self, refusal: &Refusal) {
        if self.talk.is_news(&refusal.reason.text, self.now()) {
            tracing::info!("refuse: {}", in_a_line(&refusal.reason));
        }
    }

    /// Takes the context that a model will get instead of its own, and tells it where it is news.
    pub(super) fn lowered(&self, model: ModelId, context: Option<u64>) {
        let before = self
            .notes
            .with(model, |note| std::mem::replace(&mut note.lowered, context));
        if let Some(context) = context.filter(|_| before != context) {
            let name = &self.entry(model).name;
            tracing::warn!(
                "{name} does not fit at its own context; it gets the largest that does (-c {context})"
            );
        }
    }

    /// Tells what of a run's depth is watched.
    pub(super) fn tell_depth(&self, run: &super::Run) {
        let view = self.state.borrow().scheduler.view(run.model, self.now());
        let name = &run.entry.name;
        match view {
            Some(ModelView {
                depth: Some(depth), ..
            }) => tracing::info!(
                "{name} grows by {} a token; its claim covers {} of {} tokens, and requests are admitted by their depth",
                depth.bytes_per_token,
                depth.covered,
                depth.full
            ),
            Some(ModelView {
                depth_unwatched: Some(why),
                ..
            }) => tracing::debug!("{name} is not admitted by depth: {why}"),
            _ => {}
        }
    }

    pub(super) fn tell_ready(&self, run: &super::Run) {
        let took = run.age().as_millis();
        tracing::info!("ready {} in {took} ms", run.entry.name);
    }

    pub(super) fn tell_end(&self, run: &super::Run, end: &End) {
        match end {
            End::Expected => tracing::info!("gone {}", run.entry.name),
            End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason } => {
                self.notes
                    .with(run.model, |note| note.told = Some(reason.clone()));
                tracing::warn!("{}", in_a_line(reason));
            }
        }
    }

    /// A card as people know it: by its name, where that is no other's.
    fn label(&self, id: &CardId) -> String {
        let cards: Vec<_> = self.terms.cards().collect();
        label(&cards, id)
    }
}

impl Talk {
    fn is_news(&self, text: &str, now: Moment) -> bool {
        let mut last = self.last.borrow_mut();
        let said = last
            .as_ref()
            .is_some_and(|(said, at)| said == text && now.since(*at) < APART);
        if !said {
            *last = Some((text.to_owned(), now));
        }
        !said
    }
}

pub(super) fn label(cards: &[&Card], id: &CardId) -> String {
    let Some(card) = cards.iter().find(|card| card.id == *id) else {
        return id.to_string();
    };
    let namesakes = cards.iter().filter(|other| other.name == card.name).count();
    match namesakes {
        1 => card.name.clone(),
        _ => format!("{} {id}", card.name),
    }
}

fn idle(books: &Books, model: ModelId, now: Moment) -> String {
    let view = Scheduler::view(&books.scheduler, model, now);
    let used = view.and_then(|view| view.last_used.filter(|_| view.in_flight == 0));
    used.map_or_else(String::new, |used| {
        format!(" (idle {:.0} s)", now.since(used).as_secs_f64())
    })
}

/// A reason and what it comes of, the first at each branch.
pub(super) fn in_a_line(reason: &Reason) -> String {
    let mut text = reason.text.clone();
    let mut at = reason;
    while let Some(cause) = at.because.first() {
        text += ": ";
        text += &cause.text;
        at = cause;
    }
    text
}
