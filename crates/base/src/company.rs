//! Rules that keep models from being loaded at the same time, even if there is memory for both: groups, and
//! sets of models.

use std::collections::BTreeSet;
use std::sync::Arc;

/// A group of models, by its name. A model is in one group at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelGroup {
    pub name: Arc<str>,
    /// One of its models runs at a time.
    pub swap: bool,
    /// A load of one of its models unloads all models outside it.
    pub exclusive: bool,
    /// No load of a model outside it unloads one of its models.
    pub persistent: bool,
}

/// The models beside which a model may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Company {
    pub group: Option<ModelGroup>,
    /// Sets of names: models may run together if one set has them all, and a model of no set runs alone.
    pub sets: Option<Arc<[BTreeSet<String>]>>,
}

/// A running model, for a choice among those that leave.
#[derive(Clone, Copy, Debug)]
pub struct RunningModel<'a> {
    pub name: &'a str,
    pub company: &'a Company,
    /// Cost of stopping it.
    pub cost: u64,
}

impl Company {
    /// True for models of one group, of which one may run at a time.
    pub fn swaps_with(&self, other: &Self) -> bool {
        let groups = self.group.as_ref().zip(other.group.as_ref());
        groups.is_some_and(|(own, its)| own.name == its.name && own.swap)
    }

    /// True if `newcomer` may not have this one unloaded for it.
    pub fn stays_for(&self, newcomer: &Self) -> bool {
        let of_another = |own: &ModelGroup| newcomer.group.as_ref().is_none_or(|its| its.name != own.name);
        self.group.as_ref().is_some_and(|own| own.persistent && of_another(own))
    }

    /// For each running model, whether it has to leave before the model `name` loads.
    ///
    /// DECISION: of the sets that have the newcomer, the one counts whose loss is cheapest, and of equals the
    /// first; so llama-swap's matrix chooses too (`internal/router/matrix_solver.go @ v250`), with costs from
    /// the file.
    pub fn leave_for(&self, name: &str, running: &[RunningModel<'_>]) -> Vec<bool> {
        let by_set = |set: Option<&BTreeSet<String>>| -> Vec<bool> {
            running.iter().map(|other| !set.is_some_and(|set| set.contains(other.name))).collect()
        };
        let mut leave = match &self.sets {
            None => vec![false; running.len()],
            Some(sets) => {
                let of_newcomer = sets.iter().filter(|set| set.contains(name));
                let lost = |set: &&BTreeSet<String>| -> u64 {
                    let gone = running.iter().filter(|other| !set.contains(other.name));
                    gone.fold(0, |sum, other| sum.saturating_add(other.cost.max(1)))
                };
                by_set(of_newcomer.min_by_key(lost))
            }
        };
        for (leaves, other) in leave.iter_mut().zip(running) {
            *leaves |= self.swaps_with(other.company) || self.unloads(other.company);
        }
        leave
    }

    /// True if these two never run together, whichever loads first.
    pub fn excludes(&self, name: &str, other: &Self, other_name: &str) -> bool {
        let lone = |company: &Self, name: &str, other: &str| {
            company
                .sets
                .as_ref()
                .is_some_and(|sets| !sets.iter().any(|set| set.contains(name) && set.contains(other)))
        };
        self.swaps_with(other) || self.unloads(other) && other.unloads(self) || lone(self, name, other_name)
    }

    fn unloads(&self, other: &Self) -> bool {
        let is_outside = |own: &ModelGroup| other.group.as_ref().is_none_or(|its| its.name != own.name);
        self.group.as_ref().is_some_and(|own| own.exclusive && is_outside(own)) && !other.stays_for(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, swap: bool, exclusive: bool, persistent: bool) -> Company {
        Company { group: Some(ModelGroup { name: name.into(), swap, exclusive, persistent }), sets: None }
    }

    fn leaves(newcomer: &Company, running: &Company) -> bool {
        newcomer.leave_for("new", &[RunningModel { name: "old", company: running, cost: 1 }])[0]
    }

    #[test]
    fn a_group_swaps_its_own_models_and_an_exclusive_one_unloads_the_others() {
        let none = Company::default();
        let (swap, exclusive) = (group("a", true, false, false), group("b", false, true, false));
        let persistent = group("c", true, false, true);
        for (newcomer, running, expected) in [
            (&none, &none, false),
            (&swap, &swap, true),
            (&swap, &exclusive, false),
            (&exclusive, &exclusive, false),
            (&exclusive, &swap, true),
            (&exclusive, &none, true),
            (&none, &exclusive, false),
            (&exclusive, &persistent, false),
            (&persistent, &persistent, true),
        ] {
            assert_eq!(leaves(newcomer, running), expected, "{newcomer:?} {running:?}");
        }
        assert!(persistent.stays_for(&none) && persistent.stays_for(&exclusive));
        assert!(!persistent.stays_for(&persistent) && !swap.stays_for(&none));
        assert!(swap.excludes("x", &swap, "y") && !exclusive.excludes("x", &swap, "y"));
    }

    #[test]
    fn of_the_sets_with_the_newcomer_the_cheapest_to_keep_counts() {
        let set = |names: &str| names.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
        let company = Company { group: None, sets: Some([set("a b"), set("a c"), set("d")].into()) };
        let running = |costs: &[(&'static str, u64)], name: &str| {
            let company = &company;
            let running: Vec<_> =
                costs.iter().map(|(name, cost)| RunningModel { name, company, cost: *cost }).collect();
            let leave = company.leave_for(name, &running);
            running.iter().zip(leave).filter(|(_, leaves)| *leaves).map(|(it, _)| it.name).collect::<Vec<_>>()
        };
        assert_eq!(running(&[("b", 9)], "a"), [""; 0]);
        assert_eq!(running(&[("b", 1), ("c", 5)], "a"), ["b"]);
        assert_eq!(running(&[("b", 5), ("c", 5)], "a"), ["c"], "of equals the first");
        assert_eq!(running(&[("a", 1)], "d"), ["a"]);
        assert_eq!(running(&[("a", 1)], "unknown"), ["a"], "a model of no set runs alone");
        assert!(company.excludes("b", &company, "c") && !company.excludes("a", &company, "c"));
    }
}
