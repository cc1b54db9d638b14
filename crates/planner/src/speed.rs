//! Predicts tokens per second from the placement of a model's tensors and the measured rates of the cards.
//!
//! The time of a token is the sum over its devices of the time of their kernels, of the steps of their
//! matrices and of the attention to their caches. What no calibration measures widens the range, or leaves it
//! out.

mod decode;
mod formats;
mod known;
mod layer;
mod prefill;
mod rates;
mod shipped;
mod work;

use std::borrow::Cow;

use plimsoll_base::Source;
use serde::{Serialize, Serializer};

use self::known::KnownRates;
use self::work::{DeviceWork, TokenWork};
use crate::{EngineKind, PlanCalculator, PlanError, PlanRequest, Reserve, reserve};

pub use rates::{AttentionRates, HostRates, PrefillRates, SpeedRates};

/// Halves of the widths of ranges, in percent: where a kernel, a format or several cards were not measured,
const UNMEASURED: u64 = 40;
/// of an answer with weights on the host, because hosts with the same card differ,
const HOST: u64 = 50;
/// of a prompt,
const PROMPT: u64 = 30;
/// and of a prompt with experts or host memory. The synthetic models send all tokens to the same few
/// experts; a real prompt reads every one.
const WIDE_PROMPT: u64 = 65;
/// Tokens below which a prompt is short.
const SHORT_PROMPT: u64 = 512;

/// Femtoseconds of a second.
const SECOND: u128 = 1_000_000_000_000_000;

/// Tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRate {
    thousandths: u64,
}

impl TokenRate {
    /// The rate of so many tokens in a time of femtoseconds.
    fn new(tokens: u64, time: u128) -> Self {
        let thousandths = u128::from(tokens) * 1000 * SECOND / time.max(1);
        Self { thousandths: u64::try_from(thousandths).unwrap_or(u64::MAX) }
    }

    /// A part of it, in percent.
    fn percent(self, percent: u64) -> Self {
        Self { thousandths: self.thousandths.saturating_mul(percent) / 100 }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate has far fewer digits than a float")]
    pub fn per_second(self) -> f64 {
        self.thousandths as f64 / 1000.0
    }
}

impl Serialize for TokenRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.per_second())
    }
}

/// A predicted speed, in tokens per second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpeedRange {
    /// Tokens of the context in use.
    pub depth: u64,
    pub low: TokenRate,
    pub likely: TokenRate,
    pub high: TokenRate,
    pub source: Source,
}

/// The speed of a model with its placement; what cannot be said is `None`, and `unknown` says why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlannedSpeed {
    /// Tokens of an answer, at the start of a conversation.
    pub decode: Option<SpeedRange>,
    /// The same at the depth that was asked for, or where the context is full.
    pub decode_at_depth: Option<SpeedRange>,
    /// Tokens of a prompt as long as a micro-batch, or of 512.
    pub prefill: Option<SpeedRange>,
    /// The same of a prompt as long as that depth.
    pub prefill_at_depth: Option<SpeedRange>,
    /// Why something is left out.
    pub unknown: Option<&'static str>,
}

impl PlannedSpeed {
    /// The speed of a model that does not fit.
    pub fn unusable() -> Self {
        Self::left_out("unusable: the model does not fit, so it would not start, or be paged")
    }

    fn left_out(why: &'static str) -> Self {
        Self { unknown: Some(why), ..Self::default() }
    }
}

/// Predicts the speed of a request, also once `depth` tokens of its context are in use. Whether it fits is
/// not asked.
pub fn speed(request: &PlanRequest<'_>, depth: u64) -> Result<PlannedSpeed, PlanError> {
    let calculator = PlanCalculator::new(request)?;
    let reserve = Reserve::of_model(request, u64::from(request.params.context));
    Ok(at_depth(&calculator, &reserve, depth))
}

/// Predicts the speed of a request whose memory has been planned, also where its context is full.
pub(super) fn planned(of: &PlanCalculator<'_>, reserve: &Reserve, fits: bool) -> PlannedSpeed {
    if fits { at_depth(of, reserve, reserve.per_sequence) } else { PlannedSpeed::unusable() }
}

fn at_depth(of: &PlanCalculator<'_>, reserve: &Reserve, depth: u64) -> PlannedSpeed {
    let prediction = match Prediction::new(of, reserve) {
        Ok(prediction) => prediction,
        Err(why) => return PlannedSpeed::left_out(why),
    };
    let prefill = prediction.prefill(reserve.micro_batch.max(SHORT_PROMPT));
    PlannedSpeed {
        decode: Some(prediction.decode(1)),
        decode_at_depth: Some(prediction.decode(depth)),
        prefill_at_depth: prediction.prefill(depth).ok(),
        unknown: prefill.as_ref().err().copied(),
        prefill: prefill.ok(),
    }
}

/// All that a speed at any depth depends on.
struct Prediction<'a> {
    work: TokenWork,
    rates: KnownRates<'a>,
    micro_batch: u64,
    /// The cards compute prompts with weights of the host.
    op_offload: bool,
}

impl<'a> Prediction<'a> {
    fn new(of: &PlanCalculator<'a>, reserve: &Reserve) -> Result<Self, &'static str> {
        let (request, main) = (of.request, of.main());
        if request.engine.kind != EngineKind::LlamaCpp {
            return Err("no rates of this engine were measured");
        }
        if request.draft.is_some() || reserve::speculates(request) {
            return Err("the speed with a draft depends on how many of its tokens are accepted");
        }
        let hyper = &main.model.hyper;
        if !hyper.known || !hyper.cached || hyper.mla.is_some() || !main.graph.flash.on {
            return Err("no model with such attention was measured");
        }
        let cards = main.layout.devices.iter().map(|&card| &request.cards[card]);
        let rates = KnownRates::of(request, cards).ok_or("no rates of this card were measured")?;
        let work = TokenWork::of(main.model, &main.layout, main.graph.cache);
        let op_offload = request.params.op_offload;
        Ok(Self { work, rates, micro_batch: reserve.micro_batch, op_offload })
    }

    /// The speed of an answer at a depth.
    fn decode(&self, depth: u64) -> SpeedRange {
        self.range(depth, TokenRate::new(1, self.token_time(depth)), self.spread())
    }

    /// Femtoseconds of one token at a depth.
    fn token_time(&self, depth: u64) -> u128 {
        let (work, rates) = (&self.work, self.rates.first());
        let cards = work.cards.iter().zip(&self.rates.cards);
        let cards = cards.map(|(work, rates)| rates.card(work, depth, self.micro_batch));
        let others = [
            rates.token,
            work.vocabulary.saturating_mul(rates.entry),
            rates.host.host(&work.host, depth),
            work.crossings.saturating_mul(rates.host.crossing),
        ];
        cards.chain(others).map(u128::from).sum()
    }

    /// The speed of a prompt from the start of the context.
    fn prefill(&self, tokens: u64) -> Result<SpeedRange, &'static str> {
        if tokens < SHORT_PROMPT {
            return Err("a short prompt takes the time of its kernels, which was not measured");
        }
        let has_host = self.work.host != DeviceWork::default();
        if has_host && (!self.op_offload || self.work.cards.is_empty()) {
            return Err("the speed of a prompt that the host computes was not measured");
        }
        let has_experts = self.work.devices().any(|work| work.routed > 0);
        let least = if has_experts || has_host { WIDE_PROMPT } else { PROMPT };
        Ok(self.range(tokens, TokenRate::new(tokens, self.prompt_time(tokens)), self.spread().max(least)))
    }

    /// Femtoseconds of a prompt from the start of the context.
    fn prompt_time(&self, tokens: u64) -> u128 {
        let cards = self.work.cards.iter().zip(&self.rates.cards);
        let cards = cards.map(|(work, rates)| u128::from(rates.prompt(work, tokens, self.micro_batch)));
        cards.chain([u128::from(self.rates.first().hosted(&self.work.host, tokens, self.micro_batch))]).sum()
    }

    /// Half of the width of a range, in percent.
    fn spread(&self) -> u64 {
        let of_host = self.work.host != DeviceWork::default();
        let mut attention = self.work.devices().flat_map(|work| &work.attention);
        let unmeasured = self.work.has_unmeasured_format
            || self.work.cards.len() > 1
            || attention.any(|of| !of.is_measured());
        let floors = [(of_host, HOST), (unmeasured, UNMEASURED)];
        let floors = floors.into_iter().filter(|(applies, _)| *applies).map(|(_, floor)| floor);
        floors.fold(self.rates.first().spread, u64::max)
    }

    fn range(&self, depth: u64, likely: TokenRate, spread: u64) -> SpeedRange {
        SpeedRange {
            depth,
            low: likely.percent(100_u64.saturating_sub(spread)),
            likely,
            high: likely.percent(100 + spread),
            source: Source::Calibration(Cow::Owned(self.rates.label.clone())),
        }
    }
}
