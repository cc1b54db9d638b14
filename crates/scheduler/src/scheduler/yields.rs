//! Keeps card memory free of models for other programs.
//!
//! There are three kinds: memory that an operator keeps free, memory that other processes take, and programs
//! with precedence.

use plimsoll_base::{Bytes, CardId, Reason, RunId};

use super::Scheduler;
use crate::models::{Drain, ModelSlot, RunPhase, RunState};
use crate::place::{Account, EvictionCandidate, cheapest};
use crate::time::Moment;

/// Readiness of a run to leave for another process; smaller values are readier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LeaveRank {
    Idle,
    /// Its requests wait, and nothing of their answers is lost.
    Loading,
    Busy,
}

impl Scheduler {
    pub(super) fn yield_wanted(&mut self, card: &CardId, bytes: Bytes, until: Moment) {
        let now = self.now;
        let wanted = (!bytes.is_zero() && until > now).then_some((bytes, until));
        self.placements.ledger.keep_free(card, wanted);
        self.mark_dirty();
        self.arm_timers();
    }

    pub(super) fn end_yields(&mut self) {
        if self.placements.ledger.end_kept(self.now) {
            self.mark_dirty();
        }
    }

    /// Lets the idle runs on the card go.
    pub(super) fn precedence_taken(&mut self, card: &CardId, name: &str) {
        let reason = Reason::new(
            "yields",
            format!(
                "the program {name}, which has precedence \
            (`yield-to`), has started on {card}"
            ),
        );
        for candidate in self.candidates(card, LeaveRank::Idle) {
            self.leave(candidate.run, card, reason.clone());
        }
    }

    /// Lets runs go from cards whose claims pass their capacity, and keeps those that need not go any more.
    pub(super) fn give_way(&mut self) {
        let short = self.ledger().accounts().iter().filter(|account| !self.excess(account).is_zero());
        let short: Vec<CardId> = short.map(|account| account.card().id.clone()).collect();
        for card in &short {
            self.make_way(card);
        }
        let state = self.state();
        let goes = |(run, (card, _)): &(&RunId, &(CardId, Reason))| {
            state.live(**run).is_some_and(|(_, slot, live)| {
                // A stop may wait for the end of a start that measures.
                let waits = || live.in_flight() == 0 && state.is_measured(&live.placement, live.id);
                live.is_stopping() || !slot.is_pinned() && (short.contains(card) || waits())
            })
        };
        let stays: Vec<RunId> =
            self.yielding.iter().filter(|entry| !goes(entry)).map(|(run, _)| *run).collect();
        for run in &stays {
            self.yielding.remove(run);
        }
        if !stays.is_empty() {
            self.call_off_drains();
        }
    }

    /// Claims that have to go: those beyond what other programs leave, where models give way to them, else
    /// those beyond the card's limit.
    fn excess(&self, account: &Account) -> Bytes {
        let gives_way = self.settings.gives_way || account.kept().is_some();
        if gives_way { account.overdrawn() } else { account.overclaimed() }
    }

    fn make_way(&mut self, card: &CardId) {
        // Slack was never allocated.
        self.lower_claims(None, card, Self::excess);
        let Some(account) = self.ledger().account(card) else { return };
        let (kept, excess) = (account.kept(), self.excess(account));
        let name = &account.card().name;
        let reason = match kept {
            Some(kept) => format!("{} of {name} are kept free for other programs", kept.bytes),
            None if !account.overclaimed().is_zero() => {
                format!("the models take more of {name} than its limit of {}", account.limit())
            }
            None => format!("other programs take more memory of {name}"),
        };
        let reason = Reason::new("yields", reason).fact("card", card.as_str()).fact("need", excess);
        let mut lack = excess.saturating_sub(self.coming_back(account));
        // Other programs' memory costs no client its answer without an operator's order.
        let ranks = [LeaveRank::Idle, LeaveRank::Loading, LeaveRank::Busy];
        for rank in ranks.into_iter().take(if kept.is_some() { 3 } else { 1 }) {
            if lack.is_zero() {
                return;
            }
            let candidates = self.candidates(card, rank);
            let all = || candidates.iter().map(|candidate| candidate.run).collect();
            let leaving: Vec<RunId> = cheapest(&[lack], &candidates).unwrap_or_else(all);
            for candidate in candidates.iter().filter(|candidate| leaving.contains(&candidate.run)) {
                lack = lack.saturating_sub(candidate.frees[0]);
                self.leave(candidate.run, card, reason.clone());
            }
        }
    }

    /// Claims of runs that end or are ordered to.
    fn coming_back(&self, account: &Account) -> Bytes {
        let ends = |run: &RunState| run.leaves() || run.draining.is_some();
        let here = self.models.running().filter(|(_, _, run)| ends(run)).map(|(_, _, run)| run.id);
        let runs: Vec<RunId> = here.chain(self.runs.leaving.iter().copied()).collect();
        let claims = account.claims().iter().filter(|claim| runs.contains(&claim.run));
        claims.map(|claim| claim.bytes).sum()
    }

    fn candidates(&self, card: &CardId, rank: LeaveRank) -> Vec<EvictionCandidate> {
        self.state().candidates_on(card, |slot, run| leave_rank(slot, run) == Some(rank))
    }

    fn leave(&mut self, run: RunId, card: &CardId, reason: Reason) {
        if let Some(id) = self.runs.model_of(run) {
            self.yielding.insert(run, (card.clone(), reason));
            self.drain(id, Drain::Evict);
        }
    }
}

/// Rank of a run; `None` for one that is pinned or leaves already. A hold between two requests does not
/// count: the other process is not a model that waits for its turn.
fn leave_rank(slot: &ModelSlot, run: &RunState) -> Option<LeaveRank> {
    match run.phase {
        _ if slot.is_pinned() || run.leaves() || run.draining.is_some() => None,
        RunPhase::Loading { .. } if slot.line.is_empty() => Some(LeaveRank::Idle),
        RunPhase::Loading { .. } => Some(LeaveRank::Loading),
        RunPhase::Ready { .. } if run.in_flight() == 0 && slot.line.is_empty() => Some(LeaveRank::Idle),
        RunPhase::Ready { .. } => Some(LeaveRank::Busy),
        RunPhase::Stopping { .. } => None,
    }
}
