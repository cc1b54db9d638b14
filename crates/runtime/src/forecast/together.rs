//! Finds the largest group of models that fit in memory at the same time, and which of them must leave for
//! each other model.

mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use plimsoll_base::{Bytes, CardId, Company, MemoryModel, ModelNeed, Order, Placement, RunId, RunningModel};

use plimsoll_scheduler::place::{
    CardStanding, CardTenant, ClaimError, LearnedNeed, Ledger, NeedAnswers, NoPlacement, PlacementQuery,
    PlacementVerdict, need,
};

use self::search::{GroupSearch, Searched};
use super::planned::{place_planned, with_answers};

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
    /// No group has more models. As many as the group has, if the search went to its end.
    pub most: usize,
}

impl LoadedTogether {
    /// False if the search ended before it knew that no group is larger.
    pub fn is_largest(&self) -> bool {
        self.members().count() >= self.most
    }

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
    let none = PlacedModels::new(models, ledger.clone());
    let alone: Vec<Result<Placement, Box<NoPlacement>>> = (0..models.len())
        .map(|index| match none.verdict(index) {
            PlacementVerdict::Fits(placement) => Ok(placement),
            PlacementVerdict::Never(never) => Err(never),
            // Without a tenant there is nothing to wait for.
            _ => Ok(Placement::default()),
        })
        .collect();
    let able: Vec<usize> = (0..models.len()).filter(|index| alone[*index].is_ok()).collect();
    let Searched { group, most } = GroupSearch::new(models, able.clone(), ledger).run();
    let mut loaded = PlacedModels::new(models, ledger.clone());
    for (index, placement) in group {
        loaded.add_if_room(index, placement);
    }
    // The others in their order: one that fits all the same joins, as it would when it is asked for.
    let mut leave: Vec<(usize, Placement, Vec<usize>)> = Vec::new();
    for index in able {
        if loaded.placement_of(index).is_some() {
            continue;
        }
        match loaded.verdict(index) {
            PlacementVerdict::Fits(placement) => loaded.add_if_room(index, placement),
            PlacementVerdict::FitsAfter { placement, stop, waits: false } => {
                leave.push((index, placement, stop.iter().filter_map(member_of).collect()));
            }
            _ => {}
        }
    }
    let beside = |index: usize| {
        if let Some(placement) = loaded.placement_of(index) {
            return Beside::Member(placement.clone());
        }
        let after = leave.iter().find(|(model, ..)| *model == index).cloned();
        after.map_or(Beside::Never, |(_, placement, leave)| Beside::After { placement, leave })
    };
    let models = alone.into_iter().enumerate();
    let models = models.map(|(index, alone)| CandidateVerdict { alone, beside: beside(index) }).collect();
    LoadedTogether { models, most }
}

/// Models that are placed beside each other: those of `members`, which are loaded and idle.
pub(super) struct PlacedModels<'a> {
    ledger: Ledger,
    models: &'a [CandidateModel<'a>],
    members: Vec<(usize, Placement)>,
}

impl<'a> PlacedModels<'a> {
    pub(super) fn new(models: &'a [CandidateModel<'a>], ledger: Ledger) -> Self {
        Self { ledger, models, members: Vec::new() }
    }

    /// Indices of the members, in order.
    pub(super) fn members(&self) -> Vec<usize> {
        self.members.iter().map(|(index, _)| *index).collect()
    }

    /// The placement of a member.
    fn placement_of(&self, index: usize) -> Option<&Placement> {
        self.members.iter().find(|(member, _)| *member == index).map(|(_, placement)| placement)
    }

    /// Adds a model. An error means that the ledger has no room for it.
    pub(super) fn add(&mut self, index: usize, placement: Placement) -> Result<(), ClaimError> {
        self.ledger.claim(run_of(index), &Arc::from(self.models[index].name), &placement)?;
        self.members.push((index, placement));
        self.members.order_by_key(|(index, _)| *index);
        Ok(())
    }

    /// Adds a model. A search kept within what is free, so that no claim is refused.
    fn add_if_room(&mut self, index: usize, placement: Placement) {
        // One that is refused all the same is no member.
        let _ = self.add(index, placement);
    }

    /// Places a model beside the members.
    pub(super) fn verdict(&self, index: usize) -> PlacementVerdict {
        let model = &self.models[index];
        let (wanted, none) = (model.demand.need(), NeedAnswers::default());
        place_planned(&query(model, &wanted, &none), model.demand, &self.ledger, &self.tenants(index))
    }

    /// Memory of a model on empty cards; zero where none suits it.
    pub(super) fn size(&self, index: usize) -> Bytes {
        let model = &self.models[index];
        let wanted = model.demand.need();
        let ask = |answers: &NeedAnswers| need(&query(model, &wanted, answers), &self.ledger);
        with_answers(model.demand, &mut NeedAnswers::default(), ask)
    }

    /// The members as a model finds them that is requested now.
    fn tenants(&self, newcomer: usize) -> Vec<CardTenant> {
        let apart = apart(self.models, newcomer, &self.members());
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

fn query<'q>(
    model: &'q CandidateModel<'_>,
    need: &'q ModelNeed,
    answers: &'q NeedAnswers,
) -> PlacementQuery<'q> {
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

/// For each of `members`, whether it may not run beside the newcomer.
fn apart(models: &[CandidateModel<'_>], newcomer: usize, members: &[usize]) -> Vec<bool> {
    let running: Vec<RunningModel<'_>> = members
        .iter()
        .map(|index| RunningModel { name: models[*index].name, company: models[*index].company, cost: 1 })
        .collect();
    models[newcomer].company.leave_for(models[newcomer].name, &running)
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
