//! Result of the search for one setting, such as the context: the largest value that fits, and what limits
//! it.

use plimsoll_base::{Bytes, Card, CardId, Fact, Hint, Reason};
use plimsoll_model::{TensorType, types};
use serde::{Serialize, Serializer};

use super::change::{RequestChange, changed, saturated};
use super::price::{CostModel, PlanPrice};
use super::scale::FitScale;
use super::search::FitBound;
use crate::fit::split;
use crate::{EngineBuild, PlanRequest, Reserve, Terms, default_context, hints, model_name};

/// Search dimension: a setting of which the largest value that fits is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Context,
    MicroBatch,
    Slots,
    Layers,
    Cache,
    Split,
    Experts,
}

impl Dimension {
    pub const ALL: [Self; 7] =
        [Self::Context, Self::MicroBatch, Self::Slots, Self::Cache, Self::Split, Self::Layers, Self::Experts];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Context => "ctx",
            Self::MicroBatch => "ub",
            Self::Slots => "np",
            Self::Layers => "ngl",
            Self::Cache => "kv",
            Self::Split => "split",
            Self::Experts => "moe",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.name() == name)
    }
}

impl Serialize for Dimension {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Memory of one card under one plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardLine {
    pub id: CardId,
    pub total: Bytes,
    pub free: Bytes,
    pub peak: Bytes,
    pub headroom: i64,
}

/// The next step above the best value, and the memory that it lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    pub value: u64,
    /// The card that lacks memory; `None` if the engine refuses the step for another reason.
    pub card: Option<CardId>,
    pub short: Option<Bytes>,
}

/// Best value of `dimension` under another change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TradeOff {
    pub flags: String,
    pub dimension: Dimension,
    /// The best value; `None` if nothing fits.
    pub best: Option<u64>,
}

/// Best value of one dimension, with the reason and alternatives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitAnswer {
    pub dimension: Dimension,
    pub requested: Fact,
    /// False if the dimension does not exist for this model or machine.
    pub applicable: bool,
    /// The best value; `None` if none fits in this dimension.
    pub best: Option<Fact>,
    /// The change to make; serialised as flags.
    #[serde(rename = "flags", serialize_with = "as_flags")]
    pub change: Option<RequestChange>,
    /// The cards under the best.
    pub cards: Vec<CardLine>,
    pub next: Option<NextStep>,
    pub trades: Vec<TradeOff>,
    pub text: String,
}

fn as_flags<S: Serializer>(change: &Option<RequestChange>, serializer: S) -> Result<S::Ok, S::Error> {
    change.as_ref().map(RequestChange::line).serialize(serializer)
}

/// Results for all requested dimensions (`plimsoll.fit/1`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    pub schema: &'static str,
    pub model: String,
    pub engine: EngineBuild,
    /// The unchanged request fits.
    pub fits: bool,
    /// The model's own context, where the flags give none.
    pub default_context: Option<u64>,
    /// Doubts about the unchanged request, which the caller adds: a price model knows none.
    pub warnings: Vec<Reason>,
    pub cards: Vec<CardLine>,
    pub answers: Vec<FitAnswer>,
    /// Advice, where the unchanged request does not fit.
    pub hints: Vec<Hint>,
}

/// A request, its price model, and its memory without changes.
pub(crate) struct FitQuestion<'a, P> {
    pub(crate) request: &'a PlanRequest<'a>,
    pub(crate) price: &'a P,
    pub(crate) requested: PlanPrice,
}

/// The text of an answer after the price model has stopped answering.
const OPEN: &str = "unknown, because the limit on engine runs was reached";

/// Cache types from the best to the smallest.
const CACHE_TYPES: [TensorType; 3] = [types::F16, types::Q8_0, types::Q4_0];

impl<P: CostModel> FitQuestion<'_, P> {
    pub(crate) fn priced(&self, changes: &[RequestChange]) -> Option<PlanPrice> {
        self.price.price(changes, self.request.cards).ok()
    }

    pub(super) fn lines(&self, priced: &PlanPrice) -> Vec<CardLine> {
        let line = |(card, terms): (&Card, &Terms)| CardLine {
            id: card.id.clone(),
            total: card.total,
            free: card.free,
            peak: terms.peak(),
            headroom: terms.headroom(card.free),
        };
        self.request.cards.iter().zip(&priced.cards).map(line).collect()
    }

    /// The answer with its alternatives; an empty one if the price model could not evaluate enough.
    pub(super) fn answer(&self, dimension: Dimension) -> FitAnswer {
        let answer = self.bare_answer(dimension);
        // An unanswered question looks like a refusal, so nothing that was found after it can be relied on.
        if answer.applicable && self.price.is_spent() {
            return nothing(dimension, OPEN);
        }
        FitAnswer { trades: self.trades(&answer), ..answer }
    }

    /// The answer without its alternatives, which cost most of the search.
    pub(super) fn bare_answer(&self, dimension: Dimension) -> FitAnswer {
        match dimension {
            Dimension::Cache => self.cache(),
            Dimension::Split => split::answer(self),
            _ => FitScale::of(dimension, self.request).map_or_else(
                || inapplicable(dimension, "the model has no experts"),
                |scale| self.number(dimension, &scale),
            ),
        }
    }

    pub(super) fn finish(self, answers: Vec<FitAnswer>) -> Fit {
        Fit {
            schema: "plimsoll.fit/1",
            model: model_name(self.request),
            engine: self.request.engine,
            fits: self.requested.fits(self.request.cards),
            default_context: default_context(self.request),
            warnings: Vec::new(),
            cards: self.lines(&self.requested),
            hints: hints::hints(&self),
            answers,
        }
    }

    fn number(&self, dimension: Dimension, scale: &FitScale) -> FitAnswer {
        let found = self.best(scale, true, &[]);
        let change = found.map(|found| scale.change(found.at));
        // Where nothing fits, the answer shows by how much the least of all fails.
        let failing = found.map_or(Some(*scale.range.start()), |found| found.above);
        let next = failing.map(|steps| self.next(scale.value(steps), &[scale.change(steps)]));
        let priced = change.clone().and_then(|change| self.priced(&[change]));
        let cards = priced.map_or(Vec::new(), |priced| self.lines(&priced));
        let best = found.map(|found| scale.value(found.at));
        FitAnswer {
            requested: scale.requested.into(),
            text: text(scale, best, &cards, next.as_ref()),
            best: best.map(Fact::from),
            change,
            cards,
            next,
            ..nothing(dimension, "")
        }
    }

    /// The best on a scale, with other changes made as well.
    pub(crate) fn best(
        &self,
        scale: &FitScale,
        guarded: bool,
        alongside: &[RequestChange],
    ) -> Option<FitBound> {
        let with = |&steps: &u64| [alongside, &[scale.change(steps)]].concat();
        let estimate = |steps| self.price.estimate(&with(&steps));
        let guess = scale.search(estimate).largest().map(|guess| guess.at);
        let foresee = |steps: &[u64]| self.price.foresee(&steps.iter().map(with).collect::<Vec<_>>());
        let slack = |steps| Some(self.priced(&with(&steps))?.slack(self.request.cards));
        let mut search = scale.search(slack).guess(guess).foreseen(foresee);
        if guarded && scale.has_gaps() { search.largest_guarded() } else { search.largest() }
    }

    /// The failure of `changes` on the tightest card.
    fn next(&self, value: u64, changes: &[RequestChange]) -> NextStep {
        let lines = self.priced(changes).map(|priced| self.lines(&priced));
        let tightest = lines.and_then(|lines| tightest(&lines).cloned());
        let short = tightest.as_ref().map(|line| line.headroom.unsigned_abs());
        NextStep { value, short: short.map(Bytes::new), card: tightest.map(|line| line.id) }
    }

    /// The best of a dimension under each other change; for a cache type, the largest context.
    fn trades(&self, answer: &FitAnswer) -> Vec<TradeOff> {
        let (dimension, turns) = match answer.dimension {
            Dimension::Split => return Vec::new(),
            _ if !answer.applicable => return Vec::new(),
            Dimension::Cache => (Dimension::Context, CACHE_TYPES.map(RequestChange::Cache).to_vec()),
            dimension => (dimension, self.turns(dimension)),
        };
        // An engine answers the announced questions in parallel.
        let each: Vec<Vec<RequestChange>> = turns.into_iter().map(|turn| vec![turn]).collect();
        self.price.foresee(&each);
        each.iter().filter_map(|turn| self.trade(dimension, turn)).collect()
    }

    fn trade(&self, dimension: Dimension, turn: &[RequestChange]) -> Option<TradeOff> {
        self.priced(turn)?;
        let params = changed(self.request.params, turn);
        let request = PlanRequest { params: &params, ..*self.request };
        // The change may move the ends of the scale: half the context leaves room for more slots.
        let scale = FitScale::of(dimension, &request)?;
        let found = self.best(&scale, false, turn);
        let flags: Vec<String> = turn.iter().map(RequestChange::line).collect();
        (!self.price.is_spent()).then(|| TradeOff {
            flags: flags.join(" "),
            dimension,
            best: found.map(|found| scale.value(found.at)),
        })
    }

    /// Changes to trade against: half and twice the context, twice the micro-batch or the slots, a smaller
    /// cache.
    fn turns(&self, dimension: Dimension) -> Vec<RequestChange> {
        let params = self.request.params;
        let reserve = Reserve::of_model(self.request, u64::from(params.context));
        let twice = |value: u64| value.saturating_mul(2);
        let slots = twice(reserve.sequences);
        // More slots keep their tokens each, unless the context itself is searched for.
        let context = saturated(slots.saturating_mul(reserve.per_sequence));
        let context = (dimension != Dimension::Context).then_some(context);
        let shrinks = self.request.model.hyper.cached && !params.cache_key.quantised();
        let turns = [
            (context.is_some(), RequestChange::Context(saturated(twice(reserve.context)))),
            (context.is_some(), RequestChange::Context(saturated((reserve.context / 2).max(1)))),
            (
                dimension != Dimension::MicroBatch,
                RequestChange::micro_batch(saturated(twice(reserve.micro_batch)), params.batch),
            ),
            (dimension != Dimension::Slots, RequestChange::Slots { slots: saturated(slots), context }),
            (shrinks, RequestChange::Cache(types::Q8_0)),
        ];
        turns.into_iter().filter(|(applies, _)| *applies).map(|(_, turn)| turn).collect()
    }

    /// The best cache type with which the requested context fits.
    fn cache(&self) -> FitAnswer {
        if !self.request.model.hyper.cached {
            return inapplicable(Dimension::Cache, "the model has no KV cache");
        }
        self.price.foresee(&CACHE_TYPES.map(|kind| vec![RequestChange::Cache(kind)]));
        let priced = |kind| Some((kind, self.priced(&[RequestChange::Cache(kind)])?));
        // All types are priced, so that a refusal of one is remembered for the trades.
        let allowed: Vec<(TensorType, PlanPrice)> = CACHE_TYPES.into_iter().filter_map(priced).collect();
        let fits = |(_, priced): &&(_, PlanPrice)| priced.fits(self.request.cards);
        let requested = self.request.params.cache_key.name.into();
        let Some((kind, priced)) = allowed.iter().find(fits) else {
            return FitAnswer { requested, ..nothing(Dimension::Cache, "no cache type makes the model fit") };
        };
        let lines = self.lines(priced);
        FitAnswer {
            requested,
            best: Some(kind.name.into()),
            change: Some(RequestChange::Cache(*kind)),
            text: format!("a cache in {} fits{}", kind.name, spare(&lines)),
            cards: lines,
            ..nothing(Dimension::Cache, "")
        }
    }
}

pub(super) fn inapplicable(dimension: Dimension, why: &str) -> FitAnswer {
    FitAnswer { applicable: false, ..nothing(dimension, why) }
}

pub(super) fn nothing(dimension: Dimension, why: &str) -> FitAnswer {
    FitAnswer {
        dimension,
        requested: "".into(),
        applicable: true,
        best: None,
        change: None,
        cards: Vec::new(),
        next: None,
        trades: Vec::new(),
        text: why.to_owned(),
    }
}

fn tightest(lines: &[CardLine]) -> Option<&CardLine> {
    lines.iter().min_by_key(|line| line.headroom)
}

/// `, with 12 MiB to spare on H200`.
pub(super) fn spare(lines: &[CardLine]) -> String {
    let spare = |line: &CardLine| {
        let bytes = Bytes::new(line.headroom.unsigned_abs());
        format!(", with {bytes} to spare on {}", line.id)
    };
    tightest(lines).map_or(String::new(), spare)
}

fn text(scale: &FitScale, best: Option<u64>, cards: &[CardLine], next: Option<&NextStep>) -> String {
    let failing = |next: &NextStep| {
        let words = scale.words(next.value);
        match (&next.card, next.short) {
            (Some(card), Some(short)) => format!("{words} would exceed {card} by {short}"),
            _ => format!("the engine refuses {words}"),
        }
    };
    let next = next.map(failing);
    match best {
        // Without a step above, the scale says why it ends.
        Some(best) => {
            let end = next.as_deref().unwrap_or(scale.end);
            format!("{}{}; {end}", scale.fitting(best), spare(cards))
        }
        None => next.map_or("nothing fits".to_owned(), |next| format!("nothing fits: {next}")),
    }
}
