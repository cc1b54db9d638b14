//! Finds the largest group of models that fit in memory at the same time, and which of them must leave for
//! each other model.

mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use plimsoll_base::{Bytes, CardId, Company, MemoryModel, ModelNeed, Order, Placement, RunId, RunningModel};

use super::answers::NeedAnswers;
use super::ledger::Ledger;
use super::planned::place_planned;
use super::query::{CardStanding, CardTenant, LearnedNeed, NoPlacement, PlacementQuery, PlacementVerdict};
use search::GroupSearch;

/// A model that may be loaded beside others.
#[derive(Clone, Debug)]
pub struct CandidateModel<'a> {
    pub name: &'a str,
    pub demand: &'a dyn MemoryModel,
    /// Empty for any card.
    pub allowed: Vec<CardId>,
    pub company: &'a Company,
    /// Port that no other run may have.
    pub port: Option<u16>,
    /// It is one of the group before all that are not pinned.
    pub pinned: bool,
}

/// Where a model fits on cards without other models, and beside the group.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateVerdict {
    pub alone: Result<Placement, Box<NoPlacement>>,
    pub beside: Beside,
}

/// A model beside the group.
#[derive(Clone, Debug, PartialEq)]
pub enum Beside {
    /// It is one of the group.
    Member(Placement),
    /// It fits once these members have left, which are indices of models.
    After { placement: Placement, leave: Vec<usize> },
    /// It fits nowhere, or not beside the pinned members.
    Never,
}

/// The largest group of models that fit at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedTogether {
    /// In the order of the models.
    pub models: Vec<CandidateVerdict>,
    /// False if the search gave up before it knew that no group is larger.
    pub is_largest: bool,
}

impl LoadedTogether {
    /// Indices of the members.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        let is_member = |model: &CandidateVerdict| matches!(model.beside, Beside::Member(_));
        self.models.iter().enumerate().filter(move |(_, model)| is_member(model)).map(|(index, _)| index)
    }
}

/// Finds the largest group of models that fit on the ledger's cards at the same time, and places the others
/// as the scheduler does when all members are loaded and idle.
///
/// DECISION: the group has the most models, of equals the one on the fewest cards, and of these the one with
/// the most bytes: what a user wants to have at hand without a wait. A model is on as few cards as have room
/// for it at that point, which is the scheduler's rule. Larger models are placed first, because layers are
/// divided by what is free of several cards.
pub fn together(models: &[CandidateModel<'_>], ledger: &Ledger) -> LoadedTogether {
    let needs: Vec<ModelNeed> = models.iter().map(|model| model.demand.need()).collect();
    let alone: Vec<Result<Placement, Box<NoPlacement>>> = models
        .iter()
        .zip(&needs)
        .map(|(model, need)| match verdict(model, need, ledger, &[]) {
            PlacementVerdict::Fits(placement) => Ok(placement),
            PlacementVerdict::Never(never) => Err(never),
            // Without a tenant there is nothing to wait for.
            _ => Ok(Placement::default()),
        })
        .collect();
    let able: Vec<usize> = (0..models.len()).filter(|index| alone[*index].is_ok()).collect();
    let mut search = GroupSearch::new(models, &needs, able, ledger);
    let (group, is_largest) = search.run();
    let mut loaded = LoadedGroup { ledger: ledger.clone(), models, members: Vec::new() };
    for (index, placement) in group {
        loaded.add(index, placement);
    }
    // The others in their order: one that fits all the same joins, as it would when it is asked for.
    let mut leave: Vec<(usize, Placement, Vec<usize>)> = Vec::new();
    for (index, need) in needs.iter().enumerate().filter(|(index, _)| alone[*index].is_ok()) {
        if loaded.members.iter().any(|(member, _)| *member == index) {
            continue;
        }
        match verdict(&models[index], need, &loaded.ledger, &loaded.tenants(index)) {
            PlacementVerdict::Fits(placement) => loaded.add(index, placement),
            PlacementVerdict::FitsAfter { placement, stop, waits: false } => {
                leave.push((index, placement, stop.iter().filter_map(member_of).collect()));
            }
            _ => {}
        }
    }
    let beside = |index: usize| {
        if let Some((_, placement)) = loaded.members.iter().find(|(member, _)| *member == index) {
            return Beside::Member(placement.clone());
        }
        let after = leave.iter().find(|(model, ..)| *model == index).cloned();
        after.map_or(Beside::Never, |(_, placement, leave)| Beside::After { placement, leave })
    };
    let models = alone.into_iter().enumerate();
    let models = models.map(|(index, alone)| CandidateVerdict { alone, beside: beside(index) }).collect();
    LoadedTogether { models, is_largest }
}

/// The group, loaded.
struct LoadedGroup<'a> {
    ledger: Ledger,
    models: &'a [CandidateModel<'a>],
    members: Vec<(usize, Placement)>,
}

impl LoadedGroup<'_> {
    fn add(&mut self, index: usize, placement: Placement) {
        // The search kept within what is free, so that no claim is refused.
        if self.ledger.claim(run_of(index), &Arc::from(self.models[index].name), &placement).is_ok() {
            self.members.push((index, placement));
            self.members.order_by_key(|(index, _)| *index);
        }
    }

    /// The members, idle, as a model finds them that is requested now.
    fn tenants(&self, newcomer: usize) -> Vec<CardTenant> {
        let members: Vec<usize> = self.members.iter().map(|(index, _)| *index).collect();
        let apart = apart(self.models, newcomer, &members);
        let tenant = |((index, placement), apart): (&(usize, Placement), bool)| CardTenant {
            run: run_of(*index),
            standing: if self.models[*index].pinned { CardStanding::Stays } else { CardStanding::Idle },
            last_used: run_of(*index).0,
            cost: load_time(placement.total()),
            wait: 0,
            is_pinned_by_file: self.models[*index].pinned,
            port: self.models[*index].port,
            apart,
        };
        self.members.iter().zip(apart).map(tenant).collect()
    }
}

/// For each of `members`, whether it may not run beside the newcomer.
fn apart(models: &[CandidateModel<'_>], newcomer: usize, members: &[usize]) -> Vec<bool> {
    let running: Vec<RunningModel<'_>> = members
        .iter()
        .map(|index| RunningModel { name: models[*index].name, company: models[*index].company, cost: 1 })
        .collect();
    models[newcomer].company.leave_for(models[newcomer].name, &running)
}

fn verdict(
    model: &CandidateModel<'_>,
    need: &ModelNeed,
    ledger: &Ledger,
    tenants: &[CardTenant],
) -> PlacementVerdict {
    let none = NeedAnswers::default();
    place_planned(&query(model, need, &none), model.demand, ledger, tenants)
}

fn query<'a>(
    model: &'a CandidateModel<'_>,
    need: &'a ModelNeed,
    answers: &'a NeedAnswers,
) -> PlacementQuery<'a> {
    PlacementQuery {
        name: model.name,
        need,
        answers,
        // Nothing is learned from runs: these models are not loaded yet.
        learned: LearnedNeed::default(),
        allowed: &model.allowed,
        port: model.port,
        apart: 0,
    }
}

fn run_of(index: usize) -> RunId {
    RunId(u64::try_from(index).unwrap_or(u64::MAX))
}

fn member_of(run: &RunId) -> Option<usize> {
    usize::try_from(run.0).ok()
}

/// Time of the next load in milliseconds, in the scheduler's powers of two. No load was measured: it is
/// assumed to read 1 GiB a second.
fn load_time(bytes: Bytes) -> u64 {
    1000 << (bytes.whole_mib() >> 10).clamp(1, 1 << 32).ilog2()
}
