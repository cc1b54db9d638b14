//! Adds up weights, start-up peak and cache on a card, and decides whether vLLM starts and what then fits.
//!
//! Mirrors `vllm/v1/worker/gpu_worker.py:determine_available_memory @ 0.21`: the cache takes what the
//! utilisation leaves of the whole card after weights, activations, CUDA graphs and memory outside of
//! PyTorch. vLLM before 0.21 captured its graphs beyond the utilisation.

use std::fmt;
use std::str::FromStr;

use plimsoll_base::{Bytes, Card, Source};
use serde::{Serialize, Serializer};

use crate::cache::{CacheLayout, CacheSettings};
use crate::command::ServeCommand;
use crate::company::CONTEXT;
use crate::config::ModelConfig;
use crate::header::Tensor;
use crate::profile::{Profile, Range};
use crate::weights::weights;

/// Share of a card's memory, in ten-thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utilisation(u64);

impl Utilisation {
    /// vLLM's own: `vllm/config/cache.py:CacheConfig`, 0.92 in 2026; it was 0.9 before.
    pub const DEFAULT: Self = Self(9_200);
    const WHOLE: u64 = 10_000;

    /// This share in millionths.
    pub const fn millionths(self) -> u64 {
        self.0 * 100
    }

    /// This share of a card's memory.
    pub fn of(self, total: Bytes) -> Bytes {
        total.scaled(self.0, Self::WHOLE)
    }

    /// The smallest share, in hundredths, of at least this much memory; `None` if the card is too small.
    pub(crate) fn for_at_least(bytes: Bytes, total: Bytes) -> Option<Self> {
        let share = Bytes::new(bytes.get()).scaled(Self::WHOLE, total.get().max(1)).get();
        Some(Self((share + 1).next_multiple_of(100))).filter(|share| share.0 <= Self::WHOLE)
    }

    /// The shares, in hundredths, of at least `least` and at most `most`; `None` if there is none.
    pub(crate) fn between(least: Bytes, most: Bytes, total: Bytes) -> Option<(Self, Self)> {
        let (from, to) = (Self::for_at_least(least, total)?, Self::for_at_most(most, total));
        (from <= to).then_some((from, to))
    }

    /// One of `parts` equal steps from this share to a larger one, in hundredths.
    pub(crate) fn towards(self, to: Self, parts: u64) -> Self {
        Self((self.0 + to.0.saturating_sub(self.0) / parts.max(1)) / 100 * 100)
    }

    /// The largest share, in hundredths, of at most this much memory.
    fn for_at_most(bytes: Bytes, total: Bytes) -> Self {
        Self(bytes.scaled(Self::WHOLE, total.get().max(1)).get().min(Self::WHOLE) / 100 * 100)
    }
}

/// Reads `0.9`: digits after the point, at most four.
impl FromStr for Utilisation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let part = part.trim_end_matches('0');
        if part.len() > 4 || !part.chars().all(|digit| digit.is_ascii_digit()) {
            return Err(());
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| ())? };
        let part: u64 = format!("{part:0<4}").parse().map_err(|_| ())?;
        let share = whole.checked_mul(Self::WHOLE).and_then(|whole| whole.checked_add(part)).ok_or(())?;
        if (100..=Self::WHOLE).contains(&share) { Ok(Self(share)) } else { Err(()) }
    }
}

impl fmt::Display for Utilisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / Self::WHOLE, self.0 % Self::WHOLE);
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Serialize for Utilisation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A part of the memory on a card, with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Term {
    pub name: &'static str,
    pub bytes: Range,
    pub source: Source,
}

/// The memory of one vLLM on each of its cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VllmPlan {
    pub card: String,
    pub total: Bytes,
    pub free: Bytes,
    /// Cards that share each layer.
    pub cards: u64,
    pub utilisation: Utilisation,
    /// Memory that the utilisation allows, of the whole card.
    pub allowed: Bytes,
    pub terms: Vec<Term>,
    /// What is left for the cache.
    pub cache: Range,
    /// Longest context that was asked for, in tokens.
    pub context: u64,
    /// Cache that one sequence of it takes.
    pub needed: Bytes,
    /// Bytes of a token in all layers that keep all tokens.
    pub token_bytes: Bytes,
    /// Tokens of a block.
    pub block: u64,
    pub answers: Answers,
    /// True if vLLM starts with these flags, by the likely values.
    pub fits: bool,
}

/// What a user asks before a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// `GPU KV cache size`: low, likely and high, in tokens.
    pub tokens: (u64, u64, u64),
    /// `Maximum concurrency` for the context, in hundredths: low, likely and high.
    pub concurrency: (u64, u64, u64),
    /// Longest context that fits: low, likely and high, in tokens.
    pub longest: (u64, u64, u64),
    /// Smallest utilisation that starts with the context even at the high end; `None` if none does.
    pub utilisation_from: Option<Utilisation>,
    /// Largest utilisation that the card's free memory allows.
    pub utilisation_to: Utilisation,
    /// What the utilisation leaves for others, of the card's free memory.
    pub left: Bytes,
}

/// Error: a plan is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("no layer of this model keeps a cache, so vLLM's cache for it is not known")]
    NoCache,
    #[error(
        "a tensor parallel size of {asked} needs as many cards, and {given} are given\nhint: --card {asked}xNAME"
    )]
    Cards { asked: u64, given: usize },
    #[error("no card is given")]
    NoCard,
}

impl VllmPlan {
    /// Plans a model for the first of these cards; with tensor parallelism, the smallest decides.
    pub fn new(
        config: &ModelConfig,
        tensors: &[Tensor],
        command: &ServeCommand,
        cards: &[Card],
    ) -> Result<Self, PlanError> {
        let number = command.tensor_parallel.unwrap_or(1);
        let used = usize::try_from(number).unwrap_or(usize::MAX);
        let given = cards.get(..used).ok_or(PlanError::Cards { asked: number, given: cards.len() })?;
        let card = given.iter().min_by_key(|card| card.free).ok_or(PlanError::NoCard)?;
        let asked = command.longest.unwrap_or(config.longest);
        let steps = Steps::of(command, card, asked);
        let layout = CacheLayout::new(config, steps.cache(command, number)).ok_or(PlanError::NoCache)?;
        let utilisation = command.utilisation.unwrap_or(Utilisation::DEFAULT);
        let allowed = utilisation.of(card.total);
        let terms = terms(config, tensors, command, &steps.profile(command, number));
        let cache = match command.cache {
            Some(bytes) => Range::exactly(bytes),
            None => Range::rest(allowed, &terms.iter().map(|term| term.bytes).collect::<Vec<_>>()),
        };
        let likely = layout.blocks(cache.likely);
        let context = if asked == 0 { layout.longest(likely, config.longest).max(1) } else { asked };
        let needed = layout.memory_of(context);
        let high: Bytes = terms.iter().map(|term| term.bytes.high).sum();
        let answers = Answers {
            utilisation_from: Utilisation::for_at_least(high + needed, card.total),
            utilisation_to: Utilisation::for_at_most(card.free, card.total),
            left: card.free.saturating_sub(allowed + CONTEXT),
            ..of_cache(&layout, cache, context, config.longest.max(asked))
        };
        let fits = allowed <= card.free && needed <= cache.likely;
        Ok(Self {
            card: card.name.clone(),
            total: card.total,
            free: card.free,
            cards: number,
            utilisation,
            allowed,
            terms,
            cache,
            context,
            needed,
            token_bytes: layout.token_bytes,
            block: layout.block,
            answers,
            fits,
        })
    }
}

/// Tokens, concurrency and context for each end of the cache's range.
fn of_cache(layout: &CacheLayout, cache: Range, context: u64, longest: u64) -> Answers {
    let of = |answer: &dyn Fn(u64) -> u64| {
        let at = |bytes: Bytes| answer(layout.blocks(bytes));
        (at(cache.low), at(cache.likely), at(cache.high))
    };
    Answers {
        tokens: of(&|blocks| layout.tokens(blocks, context)),
        concurrency: of(&|blocks| blocks.saturating_mul(100) / layout.blocks_of(context).max(1)),
        longest: of(&|blocks| layout.longest(blocks, longest)),
        utilisation_from: None,
        utilisation_to: Utilisation(0),
        left: Bytes::ZERO,
    }
}

/// Hopper has FlashMLA (`vllm/v1/attention/ops/flashmla.py:is_flashmla_dense_supported @ 055e47c28003`).
/// Blackwell for servers has the kernel of FlashInfer. Other cards take any block. A card that is not known
/// counts as one of servers.
fn has_latent_blocks(card: &Card) -> bool {
    card.compute_capability.is_none_or(|(major, _)| matches!(major, 9 | 10))
}

fn terms(config: &ModelConfig, tensors: &[Tensor], command: &ServeCommand, profile: &Profile) -> Vec<Term> {
    let held = weights(tensors, config, profile.tensor_parallel, command.loaded_as);
    let term = |name, bytes, source| Term { name, bytes, source };
    vec![
        term("weights", Range::exactly(held.saturating_sub(command.offloaded)), Source::Header),
        term("activations", profile.activations(config), Profile::source_of_activations()),
        term("CUDA graphs", profile.graphs(), Profile::source_of_graphs()),
        term("outside of PyTorch", profile.outside(), Profile::source_of_outside()),
    ]
}

/// The largest step, by the flags or by vLLM's defaults for a card.
struct Steps {
    batched: u64,
    sequences: u64,
    has_latent_blocks: bool,
}

impl Steps {
    /// `vllm/engine/arg_utils.py:get_batch_defaults @ 0.15`: larger steps from 70 GiB on, but not on an A100.
    /// `_set_default_max_num_seqs_and_batched_tokens_args`: no more tokens than all sequences have, and no
    /// more sequences than tokens. `longest` is the longest context, 0 where vLLM chooses it.
    fn of(command: &ServeCommand, card: &Card, longest: u64) -> Self {
        let is_large = card.total >= Bytes::gib(70) && !card.name.to_ascii_lowercase().contains("a100");
        let (batched, sequences) = if is_large { (8192, 1024) } else { (2048, 256) };
        let all = command.sequences.unwrap_or(sequences).saturating_mul(longest);
        let batched = command.batched.unwrap_or(if all == 0 { batched } else { batched.min(all) });
        Self {
            batched,
            sequences: command.sequences.unwrap_or(sequences.min(batched)),
            has_latent_blocks: has_latent_blocks(card),
        }
    }

    fn cache(&self, command: &ServeCommand, tensor_parallel: u64) -> CacheSettings {
        CacheSettings {
            tensor_parallel,
            cache_type: command.cache_type,
            block: command.block,
            has_latent_blocks: self.has_latent_blocks,
            batched: self.batched,
            history: command.history.unwrap_or_default(),
            state_number: command.state_number,
            is_one_group: command.is_one_group,
        }
    }

    fn profile(&self, command: &ServeCommand, tensor_parallel: u64) -> Profile {
        Profile {
            tensor_parallel,
            batched: self.batched,
            sequences: self.sequences,
            is_eager: command.is_eager,
        }
    }
}
