//! Reads groups, sets and virtual names in llama-swap's YAML: which models run together, and which model
//! answers a name.

use std::sync::Arc;

use plimsoll_base::ModelGroup;
use plimsoll_flags::quoted;

use super::matrix::ModelSets;
use super::{LlamaSwapReader, nearest};
use crate::roster::RefusedModel;
use crate::yaml::{Node, Pair};

impl LlamaSwapReader<'_> {
    /// Groups and sets, by their old and their new place.
    pub(super) fn routing(&mut self, global: &Node) {
        let routing = global.get("routing");
        let router = routing.and_then(|node| node.get("router"));
        if let Some(scheduler) = routing.and_then(|node| node.get("scheduler")) {
            let text = "`routing.scheduler` has no effect".to_owned();
            self.warn(
                scheduler.line,
                text,
                "requests wait in the order of their arrival; `priority` changes it",
            );
        }
        let uses = router.map(|router| self.kept(self.text(router, "use"))).unwrap_or_default();
        let uses_sets = uses.map(str::to_owned).is_some_and(|uses| uses == "matrix");
        // Newer releases have groups below `routing.router.settings`, older ones at the top level.
        let settings = router.and_then(|router| router.get("settings"));
        for (parent, is_new) in [(Some(global), false), (settings, true)] {
            let Some(parent) = parent else { continue };
            if let Some(matrix) = parent.get("matrix").filter(|_| uses_sets || !is_new) {
                self.matrix(matrix);
            }
            // With both, `use` chooses.
            if is_new && uses_sets {
                continue;
            }
            let groups = parent.get("groups").map(|node| self.pairs(node, "groups")).transpose();
            for group in self.kept(groups).unwrap_or_default() {
                self.group(group);
            }
        }
    }

    fn group(&mut self, group: &Pair) {
        let is = |reader: &mut Self, key, default| match group.value.get(key) {
            Some(_) => reader.kept(reader.truth(&group.value, key)),
            None => default,
        };
        let known = ["swap", "exclusive", "persistent", "members"];
        self.warn_of_unread(&group.value, &known, &[]);
        let company = ModelGroup {
            name: group.key.as_str().into(),
            swap: is(self, "swap", true),
            exclusive: is(self, "exclusive", true),
            persistent: is(self, "persistent", false),
        };
        for (member, line) in self.kept(self.texts(&group.value, "members")) {
            let Some(entry) = self.roster.models.iter_mut().find(|entry| entry.answers_to(&member)) else {
                self.warn_of_unknown(line, &member, "the group");
                continue;
            };
            if let Some(other) = &entry.company.group {
                let (name, other) = (quoted(&member), quoted(&other.name));
                let text = format!("`{name}` is already in the group `{other}`, and only that one counts");
                self.warn(line, text, "name it in one group");
                continue;
            }
            // Nothing unloads such a model but time; among models that swap, the one that is asked for next
            // does.
            entry.pinned |= company.persistent && !company.swap;
            entry.company.group = Some(company.clone());
        }
    }

    fn matrix(&mut self, matrix: &Node) {
        self.warn_of_unread(
            matrix,
            &["vars", "sets"],
            &[("evict_costs", "to make room, plimsoll unloads the models whose next load is fastest", false)],
        );
        let names = self.roster.models.iter().map(|model| model.name.clone());
        let mut known: Vec<String> = names.collect();
        known.extend(self.roster.refused.iter().map(|model| model.name.clone()));
        let mut sets = ModelSets::new(&known);
        let vars = matrix.get("vars").map(|node| self.pairs(node, "vars")).transpose();
        for pair in self.kept(vars).unwrap_or_default() {
            match &pair.value.as_text() {
                Some(model) => sets.variable(&pair.key, model),
                None => self.kept::<()>(Err(self.bad(&pair.key, &pair.value, "a model's name"))),
            }
        }
        let expressions = matrix.get("sets").map(|node| self.pairs(node, "sets")).transpose();
        for pair in self.kept(expressions).unwrap_or_default() {
            let text = pair.value.as_text().unwrap_or_default();
            if let Err(why) = sets.add(&pair.key, text) {
                let text = format!("the set `{}` is left out: {why}", quoted(&pair.key));
                self.warn(pair.value.line, text, "its models run together only where other sets allow it");
            }
        }
        let sets: Arc<[_]> = sets.done().into();
        if !sets.is_empty() {
            self.roster.models.iter_mut().for_each(|model| model.company.sets = Some(Arc::clone(&sets)));
        }
    }

    /// Virtual names: the first target answers to each.
    pub(super) fn selectors(&mut self, global: &Node) {
        let selectors = global.get("selectors").map(|node| self.pairs(node, "selectors")).transpose();
        for pair in self.kept(selectors).unwrap_or_default() {
            let targets = self.kept(self.texts(&pair.value, "targets"));
            let place = |name: &str| self.roster.models.iter().position(|entry| entry.answers_to(name));
            let first = targets.iter().find_map(|(target, _)| place(target));
            let name = quoted(&pair.key);
            let Some(entry) = first.and_then(|first| self.roster.models.get_mut(first)) else {
                let text =
                    format!("the selector `{name}` names no model of this file, so no model answers to it");
                self.warn(pair.line, text, "add the name to the `aliases` of a model");
                continue;
            };
            if entry.name != pair.key && !entry.aliases.contains(&pair.key) {
                entry.aliases.push(pair.key.clone());
            }
            let model = quoted(&entry.name);
            let strategy = self.kept(self.text(&pair.value, "strategy").map(|text| text.map(str::to_owned)));
            if strategy.as_deref() != Some("pin") && targets.len() > 1 {
                let text = format!("requests for `{name}` go to `{model}` alone, its first target");
                self.warn(pair.line, text, "name another model in the client where that one should answer");
            }
        }
    }

    /// Warns of a name in `list` that is no model's.
    pub(super) fn warn_of_unknown(&mut self, line: u32, name: &str, list: &str) {
        let is_refused =
            |model: &RefusedModel| model.name == name || model.aliases.iter().any(|alias| alias == name);
        if self.roster.refused.iter().any(is_refused) {
            return;
        }
        let near = nearest(name, self.roster.models.iter().map(|entry| entry.name.as_str()));
        let remove = || format!("remove this name from {list}");
        let hint = near.map_or_else(remove, |near| format!("did you mean `{}`?", quoted(near)));
        self.warn(line, format!("`{}` is not a model", quoted(name)), &hint);
    }

    pub(super) fn preload(&mut self, global: &Node) {
        let Some(startup) = global.get("hooks").and_then(|hooks| hooks.get("on_startup")) else {
            return;
        };
        for (name, line) in self.kept(self.texts(startup, "preload")) {
            let name = name.trim();
            match self.roster.models.iter_mut().find(|entry| entry.answers_to(name)) {
                Some(entry) => entry.preload = true,
                None if name.is_empty() => {}
                None => self.warn_of_unknown(line, name, "`preload`"),
            }
        }
    }
}
