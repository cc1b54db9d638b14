//! Restricts an engine to its assigned cards, by the names that each GPU runtime (CUDA, HIP, Vulkan) has for
//! them.

use plimsoll_base::{Backend, Backends, Card, CardKind, CardMaker, Reason};
use plimsoll_cards::KernelCard;
use plimsoll_engine::{Visible, VisibleCards, chooses_cards, program, renumber, shows_vulkan};
use plimsoll_log::LogSource;
use plimsoll_process::Environment;
use plimsoll_task::spawn_blocking;

use super::{FoundEngine, Starter, unstartable_because};
use crate::survey::named::is_on_host;

impl Starter<'_> {
    /// Finds out Vulkan's numbers of the run's cards; none for an engine that does not compute with Vulkan.
    pub(super) async fn vulkan(&self, found: &FoundEngine) -> Result<Vec<usize>, Reason> {
        self.run.isolated_by_layer.set(false);
        let (environment, cards) = (self.environment(0, None), self.cards());
        // The user has chosen, or there is no card to choose.
        let (Some(first), false) = (cards.first(), shows_vulkan(&environment)) else {
            return Ok(Vec::new());
        };
        let is_sure = match (&found.backends, found.backends.on(first.maker)) {
            (_, Some(Backend::Vulkan)) => true,
            (Backends::Known(_), _) => return Ok(Vec::new()),
            (Backends::Unsure, _) => false,
        };
        // Another `cmd` than a llama-server with Vulkan is not run for a question.
        let Some(program) = (if is_sure { &found.path } else { &found.program }).clone() else {
            return Ok(Vec::new());
        };
        let requested = spawn_blocking(move || {
            let shown = program::vulkan_cards(&program, &environment);
            let has = |shown: &Vec<String>| {
                !shown.is_empty() && (is_sure || !program::lists_card_without_vulkan(&program, &environment))
            };
            shown.ok().filter(has).unwrap_or_default()
        });
        let shown = requested.await.unwrap_or_default();
        if shown.is_empty() && !is_sure {
            return Ok(Vec::new());
        }
        let present: Vec<&Card> = self.runtime.settings.cards().collect();
        if let Some(numbers) = program::vulkan_numbers(&shown, &cards, &present) {
            return Ok(numbers);
        }
        // DECISION: the layer only where names do not tell cards apart. A number is obeyed by engines as well
        // that the layer does not reach, such as those in containers.
        if self.runtime.extensions.iter().any(|extension| extension.can_isolate(self.run, &cards)) {
            self.run.isolated_by_layer.set(true);
            return Ok((0..cards.len()).collect());
        }
        let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
        let why = format!(
            "the Vulkan device numbers of {} cannot be distinguished from those of other cards ({}); set \
                GGML_VK_VISIBLE_DEVICES in the model's `env`, or switch guard on",
            names.join(", "),
            shown.join(", ")
        );
        Err(unstartable_because(&self.run.entry.name, Reason::new("vulkan_card_unknown", why)))
    }

    /// Rewrites card numbers to those of the child. Arguments that name a card which it does not get are left
    /// out and logged.
    pub(super) fn renumber(&self, line: &mut Vec<String>, environment: &mut Environment) {
        // Flags of other programs are not known, so their numbers are left alone.
        if self.visible() == Visible::AsInherited || self.visible() == Visible::NoCard {
            return;
        }
        // A container's own flags are not the engine's.
        if !self.run.entry.launch.is_own_llama_server() {
            return;
        }
        let own: Vec<String> = self.cards().iter().map(|card| card.id.to_string()).collect();
        for words in renumber(line, environment, &self.all_cards(), &own) {
            let note = format!(
                "the flag `{words}` was omitted, because it names a card that this model may \
                not use"
            );
            self.run.log.push(LogSource::Plimsoll, note);
        }
    }

    /// The model's variables, without those by which it would choose cards itself where Plimsoll has a name
    /// of each card for its runtime.
    pub(super) fn own_variables(&self, port: u16) -> Vec<(String, String)> {
        let mut own = self.run.entry.environment(port);
        if self.runtime.settings.cards().any(|card| !card.maker.is_nvidia()) {
            own.retain(|(name, _)| !chooses_cards(name));
        }
        own
    }

    /// Cards by their identities; none for a run on the host; those of the daemon if cards are only
    /// described.
    pub(super) fn visible(&self) -> Visible {
        let cards = self.cards();
        // An empty list would make every card visible.
        if cards.is_empty() {
            return Visible::NoCard;
        }
        let mut visible = VisibleCards::default();
        for card in cards {
            let kernel = || self.kernel_card(card);
            match (card.maker, &card.uuid) {
                (CardMaker::Nvidia, Some(uuid)) => visible.cuda.push(uuid.clone()),
                (CardMaker::Nvidia, None) | (CardMaker::Apple, _) => return Visible::AsInherited,
                (CardMaker::Amd, _) => {
                    let Some(kernel) = kernel() else { return Visible::AsInherited };
                    visible.rocr.extend(kernel.rocr_name());
                }
                (CardMaker::Intel, _) => {
                    let Some(kernel) = kernel() else { return Visible::AsInherited };
                    visible.level_zero.extend(kernel.level_zero);
                }
            }
        }
        Visible::Cards(visible)
    }

    fn kernel_card(&self, card: &Card) -> Option<&KernelCard> {
        self.runtime.settings.kernel_cards.iter().find(|other| other.id == card.id)
    }

    /// The cards that the engine may use. One that its own flags keep off all cards gets none, wherever it
    /// was placed: an engine that only sees a card opens a context on it.
    pub(super) fn cards(&self) -> Vec<&Card> {
        let given = self.runtime.settings.cards_of(self.run.placement());
        if given.is_empty() || !is_on_host(&self.run.entry) { given } else { Vec::new() }
    }

    /// All cards that the engine can use, in the order of the numbers that the user's flags give them.
    fn all_cards(&self) -> Vec<String> {
        let demand = self.runtime.state.statuses.demand(self.run.model);
        let excluded = demand.map(|demand| demand.named().excluded.clone()).unwrap_or_default();
        let gpus = self.runtime.settings.cards().filter(|card| card.kind == CardKind::Cuda);
        let usable = gpus.filter(|card| !excluded.contains(&card.id));
        usable.map(|card| card.id.to_string()).collect()
    }
}
