//! Range and step of a number that the search varies, such as the context, and the flags for each value.

use std::ops::RangeInclusive;

use super::answer::Dimension;
use super::change::{RequestChange, saturated};
use super::search::LargestSearch;
use crate::layout::wanted_layers;
use crate::reserve::MOST_SEQUENCES;
use crate::{CELLS, PlanRequest, Reserve};

/// Micro-batches are tried in whole tiles of the engine's matrix kernels.
const TILE: u64 = 128;
/// Largest micro-batch that is tried, unless a larger one was asked for: beyond it prompts are not processed
/// faster.
const LARGEST_MICRO_BATCH: u64 = 2048;

/// Numeric scale of a dimension, in steps of `unit`; more steps are better, and need more memory.
pub(crate) struct FitScale {
    pub(super) range: RangeInclusive<u64>,
    pub(super) unit: u64,
    /// The requested value, in the dimension's own measure.
    pub(super) requested: u64,
    /// The value without a step, where each step takes from it: experts in host memory.
    from: Option<u64>,
    /// The reason for the end of the range.
    pub(super) end: &'static str,
    dimension: Dimension,
    /// Tokens of one slot.
    per_slot: u64,
    batch: u32,
}

impl FitScale {
    /// Scale of a dimension; `None` if the dimension is not numeric or does not exist for the model.
    pub(crate) fn of(dimension: Dimension, request: &PlanRequest<'_>) -> Option<Self> {
        let params = request.params;
        let reserve = Reserve::of_model(request, u64::from(params.context));
        let hyper = &request.model.hyper;
        let layers = u64::from(hyper.layers);
        let scale = |range, unit, requested, end| Self {
            range,
            unit,
            requested,
            from: None,
            end,
            dimension,
            per_slot: reserve.per_sequence,
            batch: params.batch,
        };
        Some(match dimension {
            Dimension::Context => {
                // The engine rounds the context of every stream up to whole cells.
                let step = CELLS * reserve.streams;
                let trained = super::trained_context(request, reserve.streams);
                let end = if trained >= reserve.context {
                    "the model was not trained for a larger context"
                } else {
                    "this is the requested context, which is larger than the model was trained for"
                };
                let most = trained.max(reserve.context);
                scale(1..=most.div_ceil(step).max(1), step, reserve.context, end)
            }
            Dimension::MicroBatch => {
                // The engine cuts a micro-batch to the context.
                let most = LARGEST_MICRO_BATCH.max(reserve.micro_batch);
                let most = most.min(reserve.context).div_ceil(TILE).max(1);
                let end = "a larger micro-batch would not be faster, or would be longer than the context";
                scale(1..=most, TILE, reserve.micro_batch, end)
            }
            Dimension::Slots => {
                // Slots keep their tokens each, and -c takes 31 bits.
                let room = u64::from(i32::MAX.unsigned_abs()) / reserve.per_sequence.max(1);
                let most = u64::from(MOST_SEQUENCES).min(room).max(1);
                scale(1..=most, 1, reserve.sequences, "the engine allows no more slots")
            }
            Dimension::Layers => {
                let requested = u64::from(wanted_layers(params, hyper.layers));
                scale(0..=layers + 1, 1, requested.min(layers + 1), "the model has no more layers")
            }
            Dimension::Experts => {
                // Experts on the host cost time, so fewer of them are better.
                hyper.experts.as_ref()?;
                let requested = u64::from(params.experts_on_host).min(layers);
                Self {
                    from: Some(layers),
                    ..scale(0..=layers, 1, requested, "no expert is left in host memory")
                }
            }
            Dimension::Cache | Dimension::Split => return None,
        })
    }

    /// The part of the scale that takes no more memory than the request.
    pub(crate) fn up_to_requested(mut self) -> Self {
        let requested =
            self.from.map_or(self.requested, |all| all.saturating_sub(self.requested)) / self.unit;
        self.range = *self.range.start()..=requested.min(*self.range.end());
        self
    }

    /// Converts a number of steps to the change of flags.
    pub(crate) fn change(&self, steps: u64) -> RequestChange {
        let value = saturated(self.value(steps));
        match self.dimension {
            Dimension::Context => RequestChange::Context(value),
            Dimension::MicroBatch => RequestChange::micro_batch(value, self.batch),
            Dimension::Slots => {
                let context = saturated(steps.saturating_mul(self.per_slot));
                RequestChange::Slots { slots: value, context: Some(context) }
            }
            Dimension::Layers => RequestChange::Layers(value),
            _ => RequestChange::ExpertsOnHost(value),
        }
    }

    pub(super) fn value(&self, steps: u64) -> u64 {
        let value = steps.saturating_mul(self.unit);
        self.from.map_or(value, |all| all.saturating_sub(value))
    }

    /// Formats a value with its unit.
    pub(super) fn words(&self, value: u64) -> String {
        match self.dimension {
            // Slots with caches of their own share a context.
            Dimension::Context if self.unit > CELLS => {
                let each = value.saturating_mul(CELLS) / self.unit;
                format!("a context of {value} tokens ({each} a request)")
            }
            Dimension::Context => format!("a context of {value} tokens"),
            Dimension::MicroBatch => format!("a micro-batch of {value} tokens"),
            Dimension::Slots if value == 1 => format!("1 slot of {} tokens", self.per_slot),
            Dimension::Slots => format!("{value} slots of {} tokens each", self.per_slot),
            Dimension::Layers if value == 1 => "1 layer on the cards".to_owned(),
            Dimension::Layers => format!("{value} layers on the cards"),
            Dimension::Experts if value == 0 => "all experts on the cards".to_owned(),
            _ => format!("experts of {value} of {} layers in host memory", self.from.unwrap_or_default()),
        }
    }

    /// `1 slot fits`, `2 slots fit`.
    pub(super) fn fitting(&self, value: u64) -> String {
        let several = match self.dimension {
            Dimension::Slots | Dimension::Layers => value != 1,
            dimension => dimension == Dimension::Experts,
        };
        format!("{} {}", self.words(value), if several { "fit" } else { "fits" })
    }

    /// A search for the most steps.
    pub(super) fn search<F: FnMut(u64) -> Option<i64>>(&self, slack: F) -> LargestSearch<'_, F> {
        LargestSearch::new(self.range.clone(), slack)
    }

    /// True where a few more steps may fit again. Experts on the cards take memory layer by layer, without
    /// gaps.
    pub(super) fn has_gaps(&self) -> bool {
        self.from.is_none()
    }
}
