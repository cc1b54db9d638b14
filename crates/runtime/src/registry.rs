//! Finds configured models by number and name, and the changes that a reload makes.
//!
//! A number is never reused, so a late event cannot refer to the wrong model.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Card, CardId, Order};
use plimsoll_config::{ConfiguredModel, RefusedModel, ServeSettings, UnfitModel, fits_pattern};
use plimsoll_flags::{Parallel, ProgramKind};
use plimsoll_scheduler::{ConfigChange, ModelId, ModelSpec};
use serde_json::{Value, json};

use super::survey::named;

/// Slots of a llama-server whose flags set none (`tools/server/server.cpp @ b10605`).
const DEFAULT_SLOTS: u32 = 4;

/// Error: the configuration names a card that the machine does not have.
#[derive(Debug, thiserror::Error)]
#[error(
    "{origin}: model `{model}` requires card `{card}`, which this machine does not have; its cards are \
        {present}"
)]
pub struct UnknownCard {
    origin: String,
    model: String,
    card: String,
    present: String,
}

/// All models since the start, and the names of those in the configuration.
#[derive(Debug, Default)]
pub(super) struct ModelRegistry {
    entries: Vec<Rc<ConfiguredModel>>,
    names: HashMap<String, ModelId>,
    /// Models that are not served because of a mistake in their entry.
    refused: Vec<RefusedModel>,
    /// Models of folders that no flags make fit.
    unfit: Vec<UnfitModel>,
    default: Option<String>,
    strict_names: bool,
    /// A request loads its model.
    autoload: Option<bool>,
}

impl ModelRegistry {
    /// Applies `roster` and returns the changes. An error changes nothing.
    pub(super) fn update(
        &mut self,
        roster: Vec<ConfiguredModel>,
        cards: &[Card],
    ) -> Result<Vec<(ModelId, ConfigChange)>, UnknownCard> {
        // All of them before the first change, so that an error leaves the registry as it was.
        let specs = roster.iter().map(|entry| spec(entry, cards)).collect::<Result<Vec<_>, _>>()?;
        let mut gone = std::mem::take(&mut self.names);
        let mut changes = Vec::new();
        for (entry, spec) in roster.into_iter().zip(specs) {
            let old = gone.get(&entry.name).copied();
            // A name that was an alias of another model belongs to a new model now.
            let old = old.filter(|id| self.entry(*id).name == entry.name);
            let id = old.unwrap_or_else(|| self.next());
            let change = match old {
                None => Some(ConfigChange::Added(spec)),
                Some(id) => change(self.entry(id), &entry, spec),
            };
            changes.extend(change.map(|change| (id, change)));
            // Removed under every name that it had; what is left in the end is no longer configured.
            gone.retain(|_, other| *other != id);
            self.enlist(id, entry);
        }
        // A model has an entry for each alias.
        let mut removed: Vec<ModelId> = gone.into_values().collect();
        // A hash map has no order, and the events of a reload should always come in the same one.
        removed.order();
        removed.dedup();
        changes.extend(removed.into_iter().map(|id| (id, ConfigChange::Removed)));
        Ok(changes)
    }

    /// Takes what the configuration says of requests that name no model of it.
    pub(super) fn set_rules(&mut self, serve: &ServeSettings, refused: Vec<RefusedModel>) {
        self.default.clone_from(&serve.default);
        (self.strict_names, self.autoload) = (serve.strict_names, serve.autoload);
        self.refused = refused;
    }

    pub(super) fn autoloads(&self) -> bool {
        self.autoload.unwrap_or(true)
    }

    /// Finds a model by its name, by an alias, or else by an alias with `*`.
    pub(super) fn find(&self, name: &str) -> Option<ModelId> {
        let exact = self.names.get(name).copied();
        exact.or_else(|| {
            let mut present = self.present();
            let fits = |entry: &ConfiguredModel| entry.aliases.iter().any(|alias| fits_pattern(name, alias));
            present.find(|(_, entry)| fits(entry)).map(|(id, _)| id)
        })
    }

    /// The model for a request that names none, or one that is not configured.
    pub(super) fn stand_in(&self, name: Option<&str>) -> Option<ModelId> {
        let only = || {
            let mut present = self.present();
            let first = present.next().map(|(id, _)| id);
            first.filter(|_| present.next().is_none() && self.refused.is_empty())
        };
        match name {
            None => self.default.as_ref().map_or_else(only, |default| self.find(default)),
            Some(_) if self.strict_names => None,
            // A client that names a file which is there expects no other model.
            Some(name) if self.unfit(name).is_some() => None,
            Some(_) => only(),
        }
    }

    /// The model of this name that is not served because of a mistake.
    pub(super) fn refused(&self, name: &str) -> Option<&RefusedModel> {
        self.refused
            .iter()
            .find(|refused| refused.name == name || refused.aliases.iter().any(|it| it == name))
    }

    pub(super) fn set_unfit(&mut self, unfit: Vec<UnfitModel>) {
        self.unfit = unfit;
    }

    /// Why the model of this name fits on no cards, for one that was found.
    pub(super) fn unfit(&self, name: &str) -> Option<&UnfitModel> {
        self.unfit.iter().find(|model| model.name == name)
    }

    /// Models that are not served, with the mistakes in their entries, or what those that were found lack.
    pub(super) fn all_refused(&self) -> Vec<Value> {
        let texts = |model: &RefusedModel| model.errors().map(ToString::to_string).collect::<Vec<_>>();
        let refused =
            self.refused.iter().map(|model| json!({ "name": model.name, "mistakes": texts(model) }));
        let unfit = self.unfit.iter().map(|model| json!({ "name": model.name, "mistakes": [model.why] }));
        refused.chain(unfit).collect()
    }

    /// True if a model of `refused` was not refused before.
    pub(super) fn refuses_anew(&self, refused: &[RefusedModel]) -> bool {
        refused.iter().any(|model| !self.refused.contains(model))
    }

    /// The entry of `id`, also if it has left the configuration.
    pub(super) fn entry(&self, id: ModelId) -> &Rc<ConfiguredModel> {
        &self.entries[index(id)]
    }

    /// The models of the configuration, in its order.
    pub(super) fn present(&self) -> impl Iterator<Item = (ModelId, &Rc<ConfiguredModel>)> {
        let numbered = (0..).map(ModelId).zip(&self.entries);
        numbered.filter(|(id, _)| self.is_present(*id))
    }

    /// False for a model that was removed.
    pub(super) fn is_present(&self, id: ModelId) -> bool {
        self.names.get(&self.entry(id).name) == Some(&id)
    }

    fn next(&self) -> ModelId {
        ModelId(u32::try_from(self.entries.len()).expect("a configuration of fewer than 2^32 models"))
    }

    fn enlist(&mut self, id: ModelId, entry: ConfiguredModel) {
        for name in std::iter::once(&entry.name).chain(&entry.aliases) {
            self.names.insert(name.clone(), id);
        }
        let entry = Rc::new(entry);
        match self.entries.get_mut(index(id)) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }
}

fn index(id: ModelId) -> usize {
    usize::try_from(id.0).expect("a u32 is an index")
}

/// Kind of a change: an engine keeps running if only its admission settings differ.
fn change(old: &ConfiguredModel, new: &ConfiguredModel, spec: ModelSpec) -> Option<ConfigChange> {
    let same_engine = old.launch == new.launch
        && old.env == new.env
        && old.memory == new.memory
        && old.spill == new.spill
        && old.kind == new.kind
        && old.cards == new.cards
        && old.guard == new.guard
        && old.too_large == new.too_large
        && old.depth_admission == new.depth_admission
        && old.upstream_name == new.upstream_name;
    // A reload of an unchanged file must not restart anything.
    if old == new {
        return None;
    }
    Some(if same_engine { ConfigChange::Retuned(spec) } else { ConfigChange::Replaced(spec) })
}

fn spec(entry: &ConfiguredModel, cards: &[Card]) -> Result<ModelSpec, UnknownCard> {
    let allowed = entry.cards.iter().map(|name| {
        let here = cards.iter().find(|card| card.answers_to(name));
        here.map(|card| card.id.clone()).ok_or_else(|| UnknownCard {
            origin: entry.origin.to_string(),
            model: entry.name.clone(),
            card: name.clone(),
            present: cards.iter().map(|card| card.id.as_str()).collect::<Vec<_>>().join(", "),
        })
    });
    let defaults = ModelSpec::new(entry.name.clone());
    Ok(ModelSpec {
        allowed: allowed.collect::<Result<Vec<CardId>, _>>()?,
        pinned: entry.pinned,
        ttl: entry.ttl.filter(|ttl| *ttl > Duration::ZERO),
        hold: entry.hold.unwrap_or(defaults.hold),
        port: entry.fixed_port(),
        company: entry.company.clone(),
        concurrency: entry.concurrency,
        slots: slots(entry),
        priority: entry.priority,
        max_requests: entry.max_requests,
        load_timeout: entry.load_timeout.unwrap_or(defaults.load_timeout),
        stop_timeout: entry.stop_timeout.unwrap_or(defaults.stop_timeout),
        preload: entry.preload,
        by_depth: entry.depth_admission,
        measures_free: entry.measures_free(),
        ..defaults
    })
}

/// Slots of a llama-server, by its flags; its own answer follows when it is ready. Other programs are not
/// known to queue.
fn slots(entry: &ConfiguredModel) -> Option<u32> {
    let flags = named::flags(entry, entry.launch.options()?).ok()?;
    match flags.params(ProgramKind::LlamaServer).ok()?.parallel {
        Parallel::Count(count) => Some(count),
        Parallel::Auto => Some(DEFAULT_SLOTS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<ConfiguredModel> {
        let roster = plimsoll_config::parse("test.toml", text, &|_| None).expect("a good file");
        roster.models
    }

    fn names(changes: &[(ModelId, ConfigChange)]) -> Vec<(u32, &'static str)> {
        let word = |change: &ConfigChange| match change {
            ConfigChange::Added(_) => "added",
            ConfigChange::Replaced(_) => "replaced",
            ConfigChange::Retuned(_) => "retuned",
            ConfigChange::Removed => "removed",
        };
        changes.iter().map(|(id, change)| (id.0, word(change))).collect()
    }

    #[test]
    fn a_reload_touches_only_what_changed() {
        let mut roll = ModelRegistry::default();
        let first = "[models.a]\ncmd = 'x ${PORT}'\nmemory = '1MiB'\naliases = ['one']\n[models.b]\ncmd = 'y ${PORT}'\n[models.c]\ncmd = 'z ${PORT}'";
        let changes = roll.update(entries(first), &[]).unwrap();
        assert_eq!(names(&changes), [(0, "added"), (1, "added"), (2, "added")]);
        assert_eq!(roll.find("one"), Some(ModelId(0)));

        let second = "[models.c]\ncmd = 'z ${PORT}'\nttl = '5m'\n[models.a]\ncmd = 'x ${PORT}'\nmemory = '2MiB'\n[models.d]\ncmd = 'w ${PORT}'";
        let changes = roll.update(entries(second), &[]).unwrap();
        assert_eq!(names(&changes), [(2, "retuned"), (0, "replaced"), (3, "added"), (1, "removed")]);
        assert_eq!(roll.find("one"), None);
        assert_eq!(roll.find("b"), None);

        assert!(roll.update(entries(second), &[]).unwrap().is_empty(), "the same file changes nothing");
        let changes = roll.update(entries(first), &[]).unwrap();
        assert!(names(&changes).contains(&(4, "added")), "a model that comes back is a new one: {changes:?}");
    }

    #[test]
    fn a_request_without_a_known_name_goes_to_the_only_model_or_to_the_default() {
        let models = |count: usize| (0..count).map(|n| format!("[models.m{n}]\ncmd = 'x ${{PORT}}'\n"));
        let registry = |count, serve: &str| {
            let text = format!("[serve]\n{serve}\n{}", models(count).collect::<String>());
            let read = plimsoll_config::parse("test.toml", &text, &|_| None).unwrap();
            let mut registry = ModelRegistry::default();
            registry.update(read.models, &[]).unwrap();
            registry.set_rules(&read.serve, read.refused);
            registry
        };
        for (count, serve, unnamed, foreign) in [
            (1, "", Some(0), Some(0)),
            (1, "strict-names = true", Some(0), None),
            (2, "", None, None),
            (2, "default = 'm1'", Some(1), None),
        ] {
            let registry = registry(count, serve);
            let number = |id: Option<ModelId>| id.map(|id| id.0);
            assert_eq!(number(registry.stand_in(None)), unnamed, "{count} {serve}");
            assert_eq!(number(registry.stand_in(Some("gpt-4.1"))), foreign, "{count} {serve}");
        }
    }

    #[test]
    fn a_llama_server_has_the_slots_of_its_flags_and_other_programs_have_none() {
        for (section, slots) in [
            ("model = 'm.gguf'", Some(4)),
            ("model = 'm.gguf'\nflags = '-np 2'", Some(2)),
            ("cmd = 'llama-server -m m.gguf --parallel 8 --port ${PORT}'", Some(8)),
            ("cmd = 'llama-server -m m.gguf --port ${PORT}'\nenv = { LLAMA_ARG_N_PARALLEL = '3' }", Some(3)),
            ("cmd = 'vllm serve m --port ${PORT}'", None),
        ] {
            let entries = entries(&format!("[models.a]\n{section}"));
            assert_eq!(spec(&entries[0], &[]).unwrap().slots, slots, "{section}");
        }
    }

    #[test]
    fn an_engine_that_measures_free_memory_is_known_by_its_command_or_its_kind() {
        for (section, measures) in [
            ("cmd = 'vllm serve m --port ${PORT}'", true),
            ("cmd = 'wrapper --port ${PORT}'\nkind = 'vllm'", true),
            ("cmd = 'llama-server -m m.gguf --port ${PORT}'\nmemory = '1MiB'", false),
        ] {
            let entries = entries(&format!("[models.a]\n{section}"));
            assert_eq!(spec(&entries[0], &[]).unwrap().measures_free, measures, "{section}");
        }
    }

    #[test]
    fn an_exact_name_wins_over_a_pattern() {
        let text =
            "[models.any]\ncmd = 'x ${PORT}'\naliases = ['claude-*']\n[models.claude-3]\ncmd = 'y ${PORT}'";
        let mut registry = ModelRegistry::default();
        registry.update(entries(text), &[]).unwrap();
        assert_eq!(registry.find("claude-3"), Some(ModelId(1)));
        assert_eq!(registry.find("claude-4"), Some(ModelId(0)));
        assert_eq!(registry.present().count(), 2);
    }

    #[test]
    fn a_card_that_is_not_here_is_named_with_those_that_are() {
        let file = "[models.a]\ncmd = 'x ${PORT}'\ncards = ['H200']";
        let error = ModelRegistry::default().update(entries(file), &[]).unwrap_err();
        assert!(error.to_string().contains("requires card `H200`"), "{error}");
    }
}
