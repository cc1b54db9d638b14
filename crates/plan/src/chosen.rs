//! Chooses flags for a model that was given none: context, cards, and what stays in host memory.

use plimsoll_base::{Bytes, Card, CardKind, Order};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_planner::fit::{
    ClosedForms, CostModel, Dimension, PlanPrice, RequestChange, best_change, edited,
};
use plimsoll_planner::{Plan, PlanRequest, interface};

use super::{EstimateError, HostLimit};

/// Context that is chosen where the model was trained for at least as much.
const USUAL_CONTEXT: u32 = 32_768;
/// The least context that is chosen, where the model was trained for more: llama-server's own `--fit-ctx`.
const LEAST_CONTEXT: u32 = 4096;
/// Batch of llama-server, to which an embedding model's micro-batch is raised.
const BATCH: u32 = 2048;

/// Flags that say where layers go; one of them in the request leaves nothing of that to choose.
const PLACES: [&str; 11] =
    ["-dev", "-ts", "-mg", "-sm", "-ngl", "-ot", "-cmoe", "-ncmoe", "--n-cpu-ffn", "-nkvo", "--rpc"];

/// Flags with which a model fits, and the plan that shows it.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The flags of the request, with those that were chosen.
    pub options: Options,
    /// The chosen flags alone, for any placement on as many cards.
    pub flags: Vec<String>,
    /// The cards of the plan, as positions among those of the machine.
    pub cards: Vec<usize>,
    /// Flags that keep an engine which sees all cards to these (`-dev CUDA1`); empty where it needs none.
    pub devices: Vec<String>,
    /// The plan on these cards, which fits.
    pub plan: Plan,
    /// The choice and its reason in one line.
    pub why: String,
    /// The same without the cards of the plan: the context, and what is in host memory.
    pub what: String,
}

/// Reason for which no flags were chosen.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    #[error("no flags make the model fit: even with {flags}, {lacking}")]
    TooLarge { flags: String, lacking: String },
}

/// Reason for a context.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContextReason {
    Requested,
    Usual,
    /// More than usual takes no more memory.
    Free,
    /// More would not fit.
    Largest,
}

/// A request in the making.
struct Chooser<'a> {
    limit: HostLimit<'a>,
    /// The request, with one slot unless it says otherwise.
    base: Options,
    /// What was added for that.
    added: Vec<String>,
    trained: u32,
    context: Option<u32>,
    has_place: bool,
}

/// Changes that fit on some cards.
struct Fitting {
    cards: Vec<usize>,
    changes: Vec<RequestChange>,
    why: ContextReason,
}

impl HostLimit<'_> {
    // DECISION: what is chosen, in this order: all of the model on the fewest cards with the usual context;
    // the largest context on the cards; experts in host memory; layers in host memory. So a model that fits
    // on a card takes one, and nothing is computed by the processor that a shorter context would spare. Cache
    // types stay: they change answers.
    /// Chooses flags with which the model fits. What `given` sets stays.
    pub fn choose(&self, given: &Options) -> Result<Choice, ChoiceError> {
        let chooser = Chooser::new(*self, given)?;
        let found = chooser.whole().or_else(|| chooser.largest()).or_else(|| chooser.partly());
        match found.and_then(|fitting| chooser.finish(fitting)) {
            Some(choice) => Ok(choice),
            None => Err(chooser.refusal()),
        }
    }
}

impl<'a> Chooser<'a> {
    fn new(limit: HostLimit<'a>, given: &Options) -> Result<Self, EstimateError> {
        let params = given.params(limit.estimate.program)?;
        let trained = limit.estimate.models.main.hyper.context_train;
        let set = |name: &str| given.get(name).is_some();
        let mut added = Vec::new();
        if limit.estimate.program == ProgramKind::LlamaServer && !set("-np") {
            added.extend(["-np".to_owned(), "1".to_owned()]);
        }
        if params.embeddings && !set("-ub") && !set("-b") {
            // An embedding needs all tokens of its prompt in one micro-batch.
            let batch = BATCH.min(trained).max(params.micro_batch);
            added.extend(["-ub".to_owned(), batch.to_string()]);
        }
        let base = Options::from_argv(&added)?.merged_over(given);
        let has_place = PLACES.iter().any(|name| set(name));
        let context = set("-c").then_some(params.context);
        Ok(Self { limit, base, added, trained, context, has_place })
    }

    /// The wanted context, and the least that will do.
    fn contexts(&self) -> (u32, u32) {
        match (self.context, self.trained) {
            (Some(context), _) => (context, context),
            // A header that does not say is no licence for more.
            (None, 0) => (LEAST_CONTEXT, LEAST_CONTEXT),
            (None, trained) => (trained.min(USUAL_CONTEXT), trained.min(LEAST_CONTEXT)),
        }
    }

    fn reason(&self) -> ContextReason {
        if self.context.is_some() { ContextReason::Requested } else { ContextReason::Usual }
    }

    /// The roomiest cards, fewest first; all of them where the request places its layers itself.
    fn sets(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.limit.cards.len()).collect();
        let mut order: Vec<usize> =
            all.iter().copied().filter(|&card| self.limit.cards[card].kind == CardKind::Cuda).collect();
        if order.is_empty() || self.has_place {
            return vec![all];
        }
        order.order_by_key(|&card| (std::cmp::Reverse(self.limit.cards[card].free), card));
        let set = |count: usize| {
            let mut set = order[..count].to_vec();
            set.sort_unstable();
            set
        };
        (1..=order.len()).map(set).collect()
    }

    fn cards(&self, set: &[usize]) -> Vec<Card> {
        set.iter().map(|&card| self.limit.cards[card].clone()).collect()
    }

    /// The memory after changes, where they fit cards and host.
    fn fits(&self, set: &[usize], changes: &[RequestChange]) -> Option<PlanPrice> {
        let cards = self.cards(set);
        let options = edited(&self.base, changes).ok()?;
        let priced = self.limit.estimate.answer(&options, &cards, |it| ClosedForms(*it).price(&[], it.cards));
        let priced = priced.ok().filter(|priced| priced.fits(&cards))?;
        // The host is asked last: its verdict needs a plan.
        let limit = HostLimit { cards: &cards, ..self.limit };
        limit.fits_wholly(&options).then_some(priced)
    }

    /// The best value of a dimension on these cards after changes.
    fn best(&self, set: &[usize], changes: &[RequestChange], dimension: Dimension) -> Option<RequestChange> {
        let cards = self.cards(set);
        let options = edited(&self.base, changes).ok()?;
        let search = |it: &PlanRequest<'_>| best_change(it, &ClosedForms(*it), dimension);
        self.limit.estimate.answer(&options, &cards, search).ok()?
    }

    /// All of the model on the fewest cards, with the wanted context.
    fn whole(&self) -> Option<Fitting> {
        let wanted = RequestChange::Context(self.contexts().0);
        let changes = vec![wanted.clone()];
        for cards in self.sets() {
            let Some(priced) = self.fits(&cards, &changes) else { continue };
            let all = RequestChange::Context(self.trained);
            let costs_nothing = |all: &PlanPrice| {
                let hosts = [all, &priced].map(|it| &it.host);
                hosts[0] == hosts[1] && (0..cards.len()).all(|card| all.peak(card) <= priced.peak(card))
            };
            let is_more = self.context.is_none() && self.trained > self.contexts().0;
            if is_more && self.fits(&cards, std::slice::from_ref(&all)).as_ref().is_some_and(costs_nothing) {
                return Some(Fitting { cards, changes: vec![all], why: ContextReason::Free });
            }
            return Some(Fitting { cards, changes, why: self.reason() });
        }
        // Layers by hand may fit where the engine's own division does not.
        let all: Vec<usize> = (0..self.limit.cards.len()).collect();
        let division = (!self.has_place).then(|| self.best(&all, &changes, Dimension::Split)).flatten()?;
        let changes = vec![wanted, division];
        self.fits(&all, &changes)?;
        Some(Fitting { cards: all, changes, why: self.reason() })
    }

    /// All of the model on the cards, with the largest context.
    fn largest(&self) -> Option<Fitting> {
        let mut best: Option<(u32, Fitting)> = None;
        for cards in self.sets() {
            let Some((tokens, fitting)) = self.shortened(cards, Vec::new()) else { continue };
            if best.as_ref().is_none_or(|(most, _)| tokens > *most) {
                best = Some((tokens, fitting));
            }
        }
        best.map(|(_, fitting)| fitting)
    }

    /// The largest context beside other changes, if it is not less than the least.
    fn shortened(&self, cards: Vec<usize>, beside: Vec<RequestChange>) -> Option<(u32, Fitting)> {
        let (wanted, least) = self.contexts();
        if wanted == least {
            return None;
        }
        let with = |tokens| [&beside[..], &[RequestChange::Context(tokens)]].concat();
        // Where the least does not fit, no search is needed.
        self.fits(&cards, &with(least))?;
        let found = match self.best(&cards, &with(wanted), Dimension::Context) {
            Some(RequestChange::Context(tokens)) => tokens.clamp(least, wanted),
            _ => least,
        };
        // The search considers the cards alone.
        let tokens = if self.fits(&cards, &with(found)).is_some() { found } else { least };
        Some((tokens, Fitting { cards, changes: with(tokens), why: ContextReason::Largest }))
    }

    /// A part in host memory: experts, or else whole layers, as few as possible.
    fn partly(&self) -> Option<Fitting> {
        if self.has_place {
            return None;
        }
        [Dimension::Experts, Dimension::Layers].into_iter().find_map(|dimension| self.moved(dimension))
    }

    fn moved(&self, dimension: Dimension) -> Option<Fitting> {
        let (wanted, least) = self.contexts();
        for tokens in [wanted, least] {
            let context = RequestChange::Context(tokens);
            let mut best: Option<(u32, Fitting)> = None;
            for cards in self.sets() {
                let Some(change) = self.best(&cards, std::slice::from_ref(&context), dimension) else {
                    continue;
                };
                let on_host = match change {
                    RequestChange::ExpertsOnHost(layers) => layers,
                    RequestChange::Layers(layers) => u32::MAX - layers,
                    _ => continue,
                };
                let changes = vec![change, context.clone()];
                let is_less = best.as_ref().is_none_or(|(least, _)| on_host < *least);
                if !is_less || self.fits(&cards, &changes).is_none() {
                    continue;
                }
                let why = if tokens == wanted { self.reason() } else { ContextReason::Largest };
                best = Some((on_host, Fitting { cards, changes, why }));
            }
            if let Some((_, fitting)) = best {
                return Some(self.deepened(fitting));
            }
        }
        None
    }

    /// With the least context, what is left of the cards becomes more of it.
    fn deepened(&self, fitting: Fitting) -> Fitting {
        if fitting.why != ContextReason::Largest {
            return fitting;
        }
        let beside = fitting.changes.iter().filter(|it| !matches!(it, RequestChange::Context(_)));
        let longer = self.shortened(fitting.cards.clone(), beside.cloned().collect());
        longer.map_or(fitting, |(_, longer)| longer)
    }

    fn finish(&self, fitting: Fitting) -> Option<Choice> {
        let Fitting { cards, changes, why } = fitting;
        let options = edited(&self.base, &changes).ok()?;
        let plan = self.limit.estimate.plan(&options, &self.cards(&cards)).ok().filter(|plan| plan.fits)?;
        let is_new =
            |change: &&RequestChange| self.context.is_none() || !matches!(change, RequestChange::Context(_));
        let mut flags: Vec<String> = changes.iter().filter(is_new).flat_map(RequestChange::flags).collect();
        flags.extend(self.added.iter().cloned());
        let is_divided = changes.iter().any(|change| matches!(change, RequestChange::Cards { .. }));
        let devices = if is_divided { Vec::new() } else { self.devices(&cards, &options) };
        let (context, moved) = (self.context_in_words(&plan, why), self.moved_in_words(&changes));
        let why = format!("{context}{}{moved}", place_in_words(&plan));
        Some(Choice { options, flags, cards, devices, plan, why, what: context + &moved })
    }

    /// `-dev` for an engine that sees more cards than these.
    fn devices(&self, set: &[usize], options: &Options) -> Vec<String> {
        let all = self.limit.cards;
        let computing: Vec<usize> = (0..all.len()).filter(|&card| all[card].kind == CardKind::Cuda).collect();
        if self.has_place || set.len() >= computing.len() {
            return Vec::new();
        }
        let interface = self.limit.estimate.answer(options, all, |request| Ok(interface(request)));
        let numbers = computing.iter().enumerate().filter(|(_, card)| set.contains(card));
        let names = numbers.map(|(number, _)| format!("{}{number}", interface.as_deref().unwrap_or("CUDA")));
        vec!["-dev".to_owned(), names.collect::<Vec<_>>().join(",")]
    }

    fn context_in_words(&self, plan: &Plan, why: ContextReason) -> String {
        let tokens = plan.context;
        match why {
            ContextReason::Requested => format!("the requested context of {tokens} tokens"),
            ContextReason::Usual if self.trained == 0 => {
                format!(
                    "a context of {tokens} tokens, because the header does not say what it was trained for"
                )
            }
            ContextReason::Usual if u64::from(self.trained) <= tokens => {
                format!("its trained context of {tokens} tokens")
            }
            ContextReason::Usual => format!("a context of {tokens} of {} trained tokens", self.trained),
            ContextReason::Free => {
                format!(
                    "its trained context of {tokens} tokens, which takes no more memory than a shorter one"
                )
            }
            ContextReason::Largest => format!("a context of {tokens} tokens, the largest that fits"),
        }
    }

    fn moved_in_words(&self, changes: &[RequestChange]) -> String {
        let layers = self.limit.estimate.models.main.hyper.layers.saturating_add(1);
        let moved = changes.iter().find_map(|change| match change {
            RequestChange::ExpertsOnHost(count) => {
                Some(format!("; experts of {count} layers in host memory, because not all fit on the cards"))
            }
            RequestChange::Layers(count) => Some(format!(
                "; only {count} of {layers} layers fit on the cards, the others are in host memory"
            )),
            _ => None,
        });
        moved.unwrap_or_default()
    }

    /// What the least request of all lacks.
    fn refusal(&self) -> ChoiceError {
        let models = &self.limit.estimate.models;
        let mut least = vec![RequestChange::Context(self.contexts().1)];
        if !self.has_place {
            let all = models.main.hyper.layers;
            let has_experts = models.main.hyper.experts.is_some();
            least.push(if has_experts {
                RequestChange::ExpertsOnHost(all)
            } else {
                RequestChange::Layers(0)
            });
        }
        let options = edited(&self.base, &least).map_err(EstimateError::from);
        let planned = options.and_then(|options| {
            let plan = self.limit.estimate.plan(&options, self.limit.cards)?;
            Ok((self.limit.doubt(&plan, &options), plan))
        });
        let (doubt, plan) = match planned {
            Ok(planned) => planned,
            Err(error) => return error.into(),
        };
        let short = plan.cards.iter().filter(|card| !card.fits);
        let short: Vec<String> = short
            .map(|card| format!("{} lacks {}", card.id, Bytes::new(card.headroom.unsigned_abs())))
            .collect();
        let lacking =
            if short.is_empty() { doubt.map(|(doubt, _)| doubt.text) } else { Some(short.join(", ")) };
        let flags: Vec<String> = least.iter().flat_map(RequestChange::flags).collect();
        ChoiceError::TooLarge {
            flags: flags.join(" "),
            lacking: lacking.unwrap_or_else(|| "no set of cards holds it".to_owned()),
        }
    }
}

/// The cards of a plan that fits, and the least of its spare memory.
fn place_in_words(plan: &Plan) -> String {
    let names: Vec<&str> = plan.cards.iter().map(|card| card.id.as_str()).collect();
    let spare = plan.cards.iter().map(|card| card.headroom).min().unwrap_or_default();
    format!(" on {}, {} to spare", names.join(" and "), Bytes::new(spare.unsigned_abs()))
}
