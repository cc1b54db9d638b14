//! Limits a model to the cards that its flags name (`device`, `main-gpu`, `tensor-split`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{
    Bytes, CacheOverflow, Card, CardId, CardKind, CardShares, Curve, Hint, HostNeed, MemoryModel, ModelNeed,
    NamedDemand, PromptCache, Reason, RequestedMemory,
};
use plimsoll_config::ConfiguredModel;
use plimsoll_engine::{Visible, child_environment, renumber};
use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagError, ModelParams, Options, ProgramKind};
use plimsoll_planner::PlanError;
use plimsoll_process::Environment;

/// Error in flags: they name a card that does not exist or may not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NameError {
    #[error("{origin}: {error}; the cards are {present}")]
    Unknown { origin: String, error: PlanError, present: String },
    #[error(
        "{origin}: the flags name CUDA{number}, which is {card}, but `cards` does not list it; list it, or \
            name another card; the cards are {present}"
    )]
    NotAllowed { origin: String, number: usize, card: CardId, present: String },
}

/// Returns the flags that the engine will use: those of its command line over those of its environment.
pub fn flags(entry: &ConfiguredModel, options: &Options) -> Result<Options, FlagError> {
    Ok(options.clone().merged_over(&Options::from_env(variables_if(entry, plimsoll_flags::is_variable))?))
}

/// True if `device = none` keeps the engine off every card. `n-gpu-layers = 0` alone does not: llama.cpp
/// still computes large batches on a card (`op_offload`).
///
/// A draft model and a projector use the first card in spite of the flag, and so do tensors that it names.
pub(crate) fn is_on_host(entry: &ConfiguredModel) -> bool {
    let Some(Ok(params)) =
        entry.launch.options().map(|options| flags(entry, options)?.params(ProgramKind::LlamaServer))
    else {
        return false;
    };
    let is_none = |devices: &[String]| devices == ["none"];
    let drafts = params.draft_model.is_some() || params.draft_remote.is_some();
    let projects = params.projector.is_some()
        || params.projector_remote.is_some()
        || params.projector_auto && params.remote.is_some();
    let overrides = params.overrides.iter().chain(&params.draft_overrides);
    is_none(&params.devices)
        && (!drafts || is_none(&params.draft_devices))
        && !(projects && params.projector_offload)
        && overrides.into_iter().all(|over| over.buffer == "CPU")
}

/// The environment of the engine, without what depends on its cards.
pub(super) fn variables(entry: &ConfiguredModel) -> BTreeMap<String, String> {
    variables_if(entry, |_| true)
}

fn variables_if(entry: &ConfiguredModel, is_wanted: fn(&str) -> bool) -> BTreeMap<String, String> {
    let mut own = entry.environment(0);
    own.retain(|(name, _)| is_wanted(name));
    // The daemon's own environment counts: an inherited LLAMA_ARG_* changes the plan.
    let inherited = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_wanted));
    let environment = child_environment(inherited, &own, &Visible::AsInherited, None, None);
    let text = |(name, value): (&std::ffi::OsStr, &std::ffi::OsStr)| {
        Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
    };
    environment.iter().filter_map(text).collect()
}

/// Resolves the cards named by `flags` among the CUDA cards of `cards`.
pub(super) fn named(
    entry: &ConfiguredModel,
    flags: &Options,
    params: &ModelParams,
    cards: &[Card],
) -> Result<NamedDemand, NameError> {
    // The user's flags number all served cards, but an engine numbers only its own. So the flags are resolved
    // before placement.
    let cuda = cuda(cards);
    let found = plimsoll_planner::named(params, cuda.len()).map_err(|error| NameError::Unknown {
        origin: origin(entry, flags),
        error,
        present: listed(&cuda),
    })?;
    if let Some(&number) = found.cards.iter().find(|&&number| !entry.may_use(cuda[number])) {
        return Err(NameError::NotAllowed {
            origin: origin(entry, flags),
            number,
            card: cuda[number].id.clone(),
            present: listed(&cuda),
        });
    }
    Ok(NamedDemand {
        cards: found.cards.iter().map(|&number| cuda[number].id.clone()).collect(),
        only: found.only,
        excluded: Vec::new(),
    })
}

/// The flags for a child that sees only `own` of `cards`.
pub fn seen_by(flags: &Options, cards: &[Card], own: &[Card]) -> Result<Options, FlagError> {
    let ids = |cards: &[&Card]| -> Vec<String> { cards.iter().map(|card| card.id.to_string()).collect() };
    let (all, own) = (ids(&cuda(cards)), ids(&cuda(own)));
    let mut line = flags.to_argv();
    // The same rewriting as for the launch, so that plan and engine agree.
    renumber(&mut line, &mut Environment::default(), &all, &own);
    Options::from_argv(&line)
}

fn cuda(cards: &[Card]) -> Vec<&Card> {
    cards.iter().filter(|card| card.kind == CardKind::Cuda).collect()
}

/// The cards with their numbers.
fn listed(cuda: &[&Card]) -> String {
    let each = cuda.iter().enumerate();
    let each: Vec<String> = each
        .map(|(number, card)| {
            if card.id.as_str() == card.name {
                format!("CUDA{number} {}", card.name)
            } else {
                format!("CUDA{number} {} {}", card.name, card.id)
            }
        })
        .collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// The origin of the last flag that names cards.
fn origin(entry: &ConfiguredModel, flags: &Options) -> String {
    let names = |effect: FlagClass| {
        matches!(
            effect,
            FlagClass::Devices
                | FlagClass::MainGpu
                | FlagClass::DraftDevices
                | FlagClass::Overrides
                | FlagClass::DraftOverrides
        )
    };
    // The last of several flags is the one that counts.
    let mut settings = flags.settings().iter().rev();
    let setting = settings.find(|setting| names(setting.flag.effect));
    setting.map_or_else(|| entry.origin.to_string(), |setting| setting.origin.to_string())
}

/// Memory demand of a model, restricted to the cards that its flags name.
#[derive(Debug)]
pub(crate) struct OnNamed {
    named: NamedDemand,
    demand: Arc<dyn MemoryModel>,
}

impl OnNamed {
    /// The demand on these cards; itself where nothing restricts it.
    pub(crate) fn around(named: NamedDemand, demand: Arc<dyn MemoryModel>) -> Arc<dyn MemoryModel> {
        if named == NamedDemand::default() { demand } else { Arc::new(Self { named, demand }) }
    }
}

impl MemoryModel for OnNamed {
    fn need(&self) -> ModelNeed {
        ModelNeed { named: self.named.clone(), ..self.demand.need() }
    }

    fn ignores_free(&self, cards: &[Card]) -> bool {
        self.demand.ignores_free(cards)
    }

    fn on(&self, cards: &[Card]) -> Result<CardShares, Reason> {
        let free: Vec<(&Card, Bytes)> = cards.iter().map(|card| (card, card.free)).collect();
        self.need().shares(&free).unwrap_or_else(|| self.demand.on(cards))
    }

    fn named(&self) -> &NamedDemand {
        &self.named
    }

    fn alone(&self) -> bool {
        self.demand.alone()
    }

    fn reported(&self, cards: &[Card]) -> bool {
        self.demand.reported(cards)
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        self.demand.curve(cards)
    }

    fn lowered_context(&self) -> Option<u64> {
        self.demand.lowered_context()
    }

    fn hints(&self, cards: &[Card]) -> Vec<Hint> {
        self.demand.hints(cards)
    }

    fn requested(&self, cards: &[Card]) -> Vec<RequestedMemory> {
        self.demand.requested(cards)
    }

    fn terms(&self, cards: &[Card]) -> Vec<(CardId, Vec<(&'static str, Bytes)>)> {
        self.demand.terms(cards)
    }

    fn overflow(&self, cards: &[Card]) -> Vec<CacheOverflow> {
        self.demand.overflow(cards)
    }

    fn doubts(&self, cards: &[Card]) -> Vec<Reason> {
        self.demand.doubts(cards)
    }

    fn alongside_cards(&self, cards: &[Card]) -> Option<HostNeed> {
        self.demand.alongside_cards(cards)
    }

    fn prompt_cache(&self) -> Option<PromptCache> {
        self.demand.prompt_cache()
    }
}
