//! What was found in one direction: the best that fits, why no more, and what it becomes if something else changes.

use plimsoll_base::{Bytes, CardId, Fact, Hint};
use plimsoll_model::{TensorType, types};
use serde::{Serialize, Serializer};

use super::super::hints;
use super::super::outcome::EngineInfo;
use super::super::request::PlanRequest;
use super::change::{Change, changed};
use super::outline::QuickEstimate;
use super::price::{Price, Priced, headroom};
use super::scale::FitScale;
use super::search::FitBound;
use super::split;

/// A direction in which more may fit.
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
    pub const ALL: [Self; 7] = [
        Self::Context,
        Self::MicroBatch,
        Self::Slots,
        Self::Cache,
        Self::Split,
        Self::Layers,
        Self::Experts,
    ];

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

/// A card with a plan on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardLine {
    pub id: CardId,
    pub total: Bytes,
    pub free: Bytes,
    pub peak: Bytes,
    pub headroom: i64,
}

/// The step above the best, and by how much it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    pub value: u64,
    /// `None` where the engine refuses it whatever is free.
    pub card: Option<CardId>,
    pub short: Option<Bytes>,
}

/// The best of `dimension` if something else changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trade {
    pub flags: String,
    pub dimension: Dimension,
    /// `None` where nothing fits any more.
    pub best: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub dimension: Dimension,
    pub asked: Fact,
    /// False where the model or the machine has nothing of the kind.
    pub applicable: bool,
    /// `None` where nothing in this direction fits.
    pub best: Option<Fact>,
    /// What to write; serialised as flags.
    #[serde(rename = "flags", serialize_with = "as_flags")]
    pub change: Option<Change>,
    /// The cards with the best.
    pub cards: Vec<CardLine>,
    pub next: Option<Next>,
    pub trades: Vec<Trade>,
    pub text: String,
}

fn as_flags<S: Serializer>(change: &Option<Change>, serializer: S) -> Result<S::Ok, S::Error> {
    change
        .as_ref()
        .map(|change| change.flags().join(" "))
        .serialize(serializer)
}

/// All that was asked (`plimsoll.fit/1`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    pub schema: &'static str,
    pub model: String,
    pub engine: EngineInfo,
    /// As it was asked for.
    pub fits: bool,
    pub cards: Vec<CardLine>,
    pub answers: Vec<Answer>,
    /// What would help, where it does not fit as it was asked for.
    pub hints: Vec<Hint>,
}

/// A request, who prices it, and what it costs as it is.
pub(super) struct FitQuestion<'a, P> {
    pub(super) request: &'a PlanRequest<'a>,
    pub(super) price: &'a P,
    pub(super) asked: Priced,
    outline: Option<QuickEstimate<'a>>,
}

/// Said where whoever prices stopped answering.
const OPEN: &str = "it is not known: not everything was answered that had to be asked";

/// Cache types from the best to the smallest.
const CACHE_TYPES: [TensorType; 3] = [types::F16, types::Q8_0, types::Q4_0];

impl<'a, P: Price> FitQuestion<'a, P> {
    pub(super) fn new(request: &'a PlanRequest<'a>, price: &'a P, asked: Priced) -> Self {
        Self {
            request,
            price,
            outline: QuickEstimate::new(request, &asked),
            asked,
        }
    }

    pub(super) fn priced(&self, changes: &[Change]) -> Result<Priced, P::Error> {
        self.price.price(changes, self.request.cards)
    }

    fn slack(&self, changes: &[Change]) -> Option<i64> {
        Some(self.priced(changes).ok()?.slack(self.request.cards))
    }

    pub(super) fn lines(&self, priced: &Priced) -> Vec<CardLine> {
        let line = |(card, terms): (&plimsoll_base::Card, _)| CardLine {
            id: card.id.clone(),
            total: card.total,
            free: card.free,
            peak: super::super::cost::peak(terms),
            headroom: headroom(card, terms),
        };
        self.request.cards.iter().zip(&priced.cards).map(line).collect()
    }

    /// The answer, and what it becomes if something else changes; none where questions were left open.
    pub(super) fn answer(&self, dimension: Dimension) -> Answer {
        let answer = match dimension {
            Dimension::Cache => self.cache(),
            Dimension::Split => split::answer(self),
            _ => match FitScale::of(dimension, self.request) {
                Some(scale) => self.number(dimension, &scale),
                None => inapplicable(dimension, "the model has no experts"),
            },
        };
        if answer.applicable && self.is_open() {
            return nothing(dimension, OPEN);
        }
        Answer {
            trades: self.trades(&answer),
            ..answer
        }
    }

    pub(super) fn finish(self, answers: Vec<Answer>) -> Fit {
        Fit {
            schema: "plimsoll.fit/1",
            model: super::super::name(self.request),
            engine: EngineInfo {
                kind: self.request.engine.kind.name(),
                build: self.request.engine.build,
            },
            fits: self.asked.fits(self.request.cards),
            cards: self.lines(&self.asked),
            hints: hints::hints(self.request, self.price, &self.asked),
            answers,
        }
    }

    fn number(&self, dimension: Dimension, scale: &FitScale) -> Answer {
        let at = |steps: u64| vec![scale.change(steps)];
        let found = self.best(scale, true, &[]);
        let worst = if scale.fewer {
            *scale.range.end()
        } else {
            *scale.range.start()
        };
        let best = found.map(|found| scale.value(found.at));
        let change = found.map(|found| scale.change(found.at));
        let failing = match found {
            Some(found) => found.above,
            None => Some(worst),
        };
        let next = failing.map(|steps| self.next(scale.value(steps), &at(steps)));
        let lines = change
            .as_ref()
            .and_then(|change| self.priced(std::slice::from_ref(change)).ok());
        let cards = lines.map_or(Vec::new(), |priced| self.lines(&priced));
        Answer {
            dimension,
            asked: scale.asked.into(),
            applicable: true,
            text: text(scale, best, &cards, next.as_ref()),
            best: best.map(Fact::from),
            change,
            cards,
            next,
            trades: Vec::new(),
        }
    }

    /// The best on a scale, beside other changes.
    fn best(&self, scale: &FitScale, guarded: bool, beside: &[Change]) -> Option<FitBound> {
        let with = |steps: u64| {
            beside
                .iter()
                .cloned()
                .chain([scale.change(steps)])
                .collect::<Vec<_>>()
        };
        let outline = self.outline.as_ref().filter(|_| scale.has_steps());
        let estimate = |steps| {
            let changes = with(steps);
            let slack = self.price.estimate(&changes);
            slack.or_else(|| outline?.slack(&changes))
        };
        let guess = scale.best(false, None, None, estimate).map(|guess| guess.at);
        let foresee = |steps: &[u64]| {
            let questions: Vec<Vec<Change>> = steps.iter().map(|&steps| with(steps)).collect();
            self.price.foresee(&questions);
        };
        scale.best(guarded, guess, Some(Box::new(foresee)), |steps| {
            self.slack(&with(steps))
        })
    }

    /// True where what was found so far cannot be relied on, because questions were left open.
    fn is_open(&self) -> bool {
        self.price.is_spent()
    }

    /// How `changes` fail.
    fn next(&self, value: u64, changes: &[Change]) -> Next {
        let lines = self.priced(changes).map(|priced| self.lines(&priced));
        let tightest = lines.ok().and_then(|lines| tightest(&lines).cloned());
        Next {
            value,
            short: tightest
                .as_ref()
                .map(|line| Bytes::new(line.headroom.unsigned_abs())),
            card: tightest.map(|line| line.id),
        }
    }

    /// The best of a dimension for each thing that is asked otherwise; of a cache type, the context.
    fn trades(&self, answer: &Answer) -> Vec<Trade> {
        let (dimension, turns) = match answer.dimension {
            _ if !answer.applicable => return Vec::new(),
            Dimension::Split => return Vec::new(),
            Dimension::Cache => (Dimension::Context, CACHE_TYPES.map(Change::Cache).to_vec()),
            dimension => (dimension, self.turns(dimension)),
        };
        let each: Vec<Vec<Change>> = turns.iter().map(|turn| vec![turn.clone()]).collect();
        self.price.foresee(&each);
        turns
            .into_iter()
            .filter_map(|turn| self.trade(dimension, turn))
            .collect()
    }

    fn trade(&self, dimension: Dimension, turn: Change) -> Option<Trade> {
        let turn = [turn];
        self.priced(&turn).ok()?;
        let wish = changed(self.request.wish, &turn);
        let request = PlanRequest {
            wish: &wish,
            ..*self.request
        };
        let scale = FitScale::of(dimension, &request)?;
        let found = self.best(&scale, false, &turn);
        if self.is_open() {
            return None;
        }
        Some(Trade {
            flags: turn.iter().flat_map(Change::flags).collect::<Vec<_>>().join(" "),
            dimension,
            best: found.map(|found| scale.value(found.at)),
        })
    }

    /// What may be asked otherwise: twice the context, the micro-batch, the slots; half the context; a smaller cache.
    fn turns(&self, dimension: Dimension) -> Vec<Change> {
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let reserve =
            super::super::reserve::Reserve::of_model(self.request, u64::from(self.request.wish.context));
        let wish = self.request.wish;
        let mut turns = Vec::new();
        if dimension != Dimension::Context {
            turns.push(Change::Context(number(reserve.context.saturating_mul(2))));
            turns.push(Change::Context(number((reserve.context / 2).max(1))));
        }
        if dimension != Dimension::MicroBatch {
            let twice = number(reserve.micro_batch.saturating_mul(2));
            turns.push(Change::micro_batch(twice, wish.batch));
        }
        if dimension != Dimension::Slots {
            let slots = reserve.sequences.saturating_mul(2);
            let context = number(slots.saturating_mul(reserve.per_sequence));
            turns.push(Change::Slots {
                slots: number(slots),
                context: (dimension != Dimension::Context).then_some(context),
            });
        }
        if self.request.model.hyper.cached && !wish.cache_key.quantised() {
            turns.push(Change::Cache(types::Q8_0));
        }
        turns
    }

    /// The best cache type with which the context that is asked for fits, and the largest context with each.
    fn cache(&self) -> Answer {
        let hyper = &self.request.model.hyper;
        if !hyper.cached {
            return inapplicable(Dimension::Cache, "the model keeps no cache of keys and values");
        }
        self.price
            .foresee(&CACHE_TYPES.map(|kind| vec![Change::Cache(kind)]));
        let allowed: Vec<(TensorType, Priced)> = CACHE_TYPES
            .into_iter()
            .filter_map(|kind| Some((kind, self.priced(&[Change::Cache(kind)]).ok()?)))
            .collect();
        let cards = self.request.cards;
        let best = allowed.iter().find(|(_, priced)| priced.fits(cards));
        let lines = best.map_or(Vec::new(), |(_, priced)| self.lines(priced));
        let text = match best {
            Some((kind, _)) => format!("a cache in {} fits{}", kind.name, spare(&lines)),
            None => "no cache type makes it fit".to_owned(),
        };
        Answer {
            asked: self.request.wish.cache_key.name.into(),
            best: best.map(|(kind, _)| kind.name.into()),
            change: best.map(|(kind, _)| Change::Cache(*kind)),
            cards: lines,
            text,
            ..nothing(Dimension::Cache, "")
        }
    }
}

pub(super) fn inapplicable(dimension: Dimension, why: &str) -> Answer {
    Answer {
        applicable: false,
        ..nothing(dimension, why)
    }
}

pub(super) fn nothing(dimension: Dimension, why: &str) -> Answer {
    Answer {
        dimension,
        asked: "".into(),
        applicable: true,
        best: None,
        change: None,
        cards: Vec::new(),
        next: None,
        trades: Vec::new(),
        text: why.to_owned(),
    }
}

pub(super) fn tightest(lines: &[CardLine]) -> Option<&CardLine> {
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

fn text(scale: &FitScale, best: Option<u64>, cards: &[CardLine], next: Option<&Next>) -> String {
    let next = next.map(|next| failing(scale, next));
    match (best, next) {
        (Some(best), Some(next)) => format!("{}{}; {next}", scale.fitting(best), spare(cards)),
        (Some(best), None) => format!("{}{}; {}", scale.fitting(best), spare(cards), scale.end),
        (None, Some(next)) => format!("nothing fits: {next}"),
        (None, None) => "nothing fits".to_owned(),
    }
}

fn failing(scale: &FitScale, next: &Next) -> String {
    let words = scale.words(next.value);
    match (&next.card, next.short) {
        (Some(card), Some(short)) => format!("{words} would be {short} too much on {card}"),
        _ => format!("{words} is what the engine refuses"),
    }
}
