//! Reads `[groups]` and `together`, which say which models may be loaded at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_base::ModelGroup;
use plimsoll_flags::quoted;
use toml::Spanned;

use super::document::GroupTable;
use super::lines::LineIndex;
use crate::failure::{ConfigError, ConfigProblem};
use crate::roster::Configuration;

/// Puts the models into their groups and sets; mistakes are added to `found`.
pub(super) fn apply(
    lines: &LineIndex<'_>,
    groups: &BTreeMap<Spanned<String>, GroupTable>,
    together: &[Vec<String>],
    roster: &mut Configuration,
    found: &mut Vec<ConfigError>,
) {
    for (name, table) in groups {
        let fail = |why: String| ConfigError::new(lines.origin(name.span().start), ConfigProblem::Parse(why));
        let company = ModelGroup {
            name: name.get_ref().as_str().into(),
            swap: table.swap,
            exclusive: table.exclusive,
            persistent: table.persistent,
        };
        for member in &table.members {
            let shown = quoted(member);
            let is_known = roster.has_model(member);
            match roster.models.iter_mut().find(|model| model.answers_to(member)) {
                Some(model) => match &model.company.group {
                    None => model.company.group = Some(company.clone()),
                    Some(other) => {
                        let other = quoted(&other.name);
                        found.push(fail(format!(
                            "`{shown}` is in the group `{other}` already; name it in one"
                        )));
                    }
                },
                // A refused model will be mended.
                None if is_known => {}
                None => found.push(fail(format!("`{shown}` is not a model; write a model's name"))),
            }
        }
    }
    if together.is_empty() {
        return;
    }
    let name_of = |name: &String| {
        let model = roster.models.iter().find(|model| model.answers_to(name));
        model.map_or_else(|| name.clone(), |model| model.name.clone())
    };
    let sets: Arc<[BTreeSet<String>]> =
        together.iter().map(|set| set.iter().map(name_of).collect()).collect();
    for name in sets.iter().flatten().filter(|name| !roster.has_model(name)) {
        let why = format!("`together` names `{}`, which is not a model; write a model's name", quoted(name));
        found.push(ConfigError::at(lines.file, 0, ConfigProblem::Parse(why)));
    }
    roster.models.iter_mut().for_each(|model| model.company.sets = Some(Arc::clone(&sets)));
}
