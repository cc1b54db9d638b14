//! Records the memory that each engine process may take on each card (its claim), and refuses claims beyond a
//! card's capacity.
//!
//! A claim is granted only if it fits, and lasts until the driver reports the memory as free.

#[cfg(test)]
pub(super) mod audit;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, CardKind, CardLimit, Placement, RunId, Share};

use crate::time::Moment;

/// Margin above a measured or exceeded need: 5 %, at least 64 MiB.
pub fn allowance(need: Bytes) -> Bytes {
    need.scaled(5, 100).max(Bytes::mib(64))
}

/// Memory that one run may take on one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerClaim {
    pub run: RunId,
    pub holder: Arc<str>,
    pub bytes: Bytes,
    /// Measured memory from the driver or guard; `None` while the run loads and after it has ended.
    pub measured: Option<Bytes>,
    pub alone: bool,
    granted: Bytes,
}

// The driver reports only the memory in use on a card, and a loading run may have taken none or all of its
// claim. So the memory of other processes is an estimate between two limits. A run of unknown need claims a
// whole card until it is ready.
/// One card and the claims on it.
#[derive(Clone, Debug)]
pub struct Account {
    card: Card,
    budget: Option<Bytes>,
    reserve: Bytes,
    foreign: Bytes,
    kept: Option<KeptFree>,
    claims: Vec<LedgerClaim>,
}

/// Memory of a card that an operator keeps free for other processes. Their memory counts as part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFree {
    pub bytes: Bytes,
    /// The end; [`Moment::NEVER`] for none.
    pub until: Moment,
    /// Memory that other processes held when it began.
    foreign: Bytes,
}

impl Account {
    fn new(limit: CardLimit) -> Self {
        let foreign = limit.card.total.saturating_sub(limit.card.free);
        Self {
            card: limit.card,
            budget: limit.budget,
            reserve: limit.reserve,
            foreign,
            kept: None,
            claims: Vec::new(),
        }
    }

    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Estimated memory of other processes.
    pub fn foreign(&self) -> Bytes {
        self.foreign
    }

    pub fn reserve(&self) -> Bytes {
        self.reserve
    }

    pub fn budget(&self) -> Option<Bytes> {
        self.budget
    }

    pub fn claims(&self) -> &[LedgerClaim] {
        &self.claims
    }

    /// Memory for all claims together on a card without other processes.
    pub fn limit(&self) -> Bytes {
        let driver = self.card.total.saturating_sub(self.reserve);
        self.budget.map_or(driver, |budget| budget.min(driver))
    }

    /// Memory that is kept free for other processes, if any is.
    pub fn kept(&self) -> Option<KeptFree> {
        self.kept
    }

    /// The part of it that they have not taken.
    pub fn kept_now(&self) -> Bytes {
        self.kept.map_or(Bytes::ZERO, |kept| (kept.foreign + kept.bytes).saturating_sub(self.foreign))
    }

    /// Claims beyond the capacity: other processes took memory, or it is to be kept free for them.
    pub(crate) fn overdrawn(&self) -> Bytes {
        let claimed: Bytes = self.claims.iter().map(|claim| claim.bytes).sum();
        claimed.saturating_sub(self.capacity())
    }

    /// Granted claims of several runs beyond the limit: they were measured to take more than they were
    /// granted. A single run stays; its next load is refused.
    pub(crate) fn overclaimed(&self) -> Bytes {
        let granted = || self.claims.iter().filter(|claim| !claim.granted.is_zero());
        let sum: Bytes = granted().map(|claim| claim.bytes).sum();
        if granted().count() > 1 { sum.saturating_sub(self.limit()) } else { Bytes::ZERO }
    }

    /// Memory for all claims together now.
    pub fn capacity(&self) -> Bytes {
        let driver = self.card.total.saturating_sub(self.reserve + self.foreign + self.kept_now());
        self.budget.map_or(driver, |budget| budget.min(driver))
    }

    /// Claimed memory. A claim of a whole card is all that the card has, also when other processes leave it.
    pub fn claimed(&self) -> Bytes {
        let sum: Bytes = self.claims.iter().map(|claim| claim.bytes).sum();
        match self.claims.iter().any(|claim| claim.alone) {
            // While the card is taken whole, memory that another process frees belongs to that run, too.
            true => sum.max(self.capacity()),
            // Other processes may shrink the card below the claims; free memory is zero then, never negative.
            false => sum,
        }
    }

    pub fn free(&self) -> Bytes {
        self.capacity().saturating_sub(self.claimed())
    }

    /// Memory that has to come free before `more` can be claimed. On an overdrawn card what comes free covers
    /// the claims beyond its capacity first.
    pub(crate) fn lacking(&self, more: Bytes) -> Bytes {
        (self.claimed() + more).saturating_sub(self.capacity())
    }

    /// Memory that would become free if `run` ended.
    pub fn occupied_by(&self, run: RunId) -> Bytes {
        match self.claims.iter().find(|claim| claim.run == run) {
            // Ending such a run frees the whole card.
            Some(claim) if claim.alone => self.claimed(),
            Some(claim) => claim.bytes,
            None => Bytes::ZERO,
        }
    }

    /// Claims of all runs but `run`, and the memory of other processes if `run` holds nothing.
    pub(crate) fn without(&self, run: RunId) -> (Bytes, Bytes) {
        let others = || self.claims.iter().filter(|claim| claim.run != run);
        let used = self.card.total.saturating_sub(self.card.free);
        let own: Bytes = others().map(|claim| claim.measured.unwrap_or(claim.bytes)).sum();
        (others().map(|claim| claim.bytes).sum(), used.saturating_sub(own))
    }

    fn claim_of(&mut self, run: RunId) -> Option<&mut LedgerClaim> {
        self.claims.iter_mut().find(|claim| claim.run == run)
    }

    /// Takes the free memory that the driver reports, and bounds the memory of other processes by it.
    fn read(&mut self, free: Bytes) {
        self.card.free = free.min(self.card.total);
        let used = self.card.total.saturating_sub(self.card.free);
        // A run that is not measured holds between nothing and its whole claim, so the estimate may lie
        // between two bounds.
        let least: Bytes = self.claims.iter().filter_map(|claim| claim.measured).sum();
        let most: Bytes = self.claims.iter().map(|claim| claim.measured.unwrap_or(claim.bytes)).sum();
        self.foreign = self.foreign.max(used.saturating_sub(most)).min(used.saturating_sub(least));
    }
}

/// Refusal of a claim, because the figures that the caller used have changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("{card} has only {free} free, but the model needs {requested}")]
    OverCommit { card: CardId, requested: Bytes, free: Bytes },
    #[error("this server does not manage the card {card}; `plimsoll ps` lists the cards that it manages")]
    NoSuchCard { card: CardId },
    #[error("memory is already reserved for this engine process")]
    AlreadyClaimed,
}

/// All cards of the machine with the claims on them.
#[derive(Clone, Debug)]
pub struct Ledger {
    accounts: Vec<Account>,
    most_runs: Option<NonZeroUsize>,
}

impl Ledger {
    pub fn new(cards: Vec<CardLimit>) -> Self {
        let accounts = cards.into_iter().map(Account::new).collect();
        Self { accounts, most_runs: None }
    }

    /// Limits the runs at a time, beside memory.
    #[must_use]
    pub fn with_most_runs(self, most_runs: Option<NonZeroUsize>) -> Self {
        Self { most_runs, ..self }
    }

    /// The most runs at a time; `None` if memory alone limits them.
    pub fn most_runs(&self) -> Option<NonZeroUsize> {
        self.most_runs
    }

    /// The most runs at a time, if there are as many.
    pub(crate) fn full_at(&self) -> Option<usize> {
        self.most_runs.map(NonZeroUsize::get).filter(|most| self.runs() >= *most)
    }

    fn runs(&self) -> usize {
        let claims = self.accounts.iter().flat_map(|account| &account.claims);
        claims.map(|claim| claim.run).collect::<BTreeSet<_>>().len()
    }

    /// Accounts in the order of the machine's cards.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    pub fn account(&self, card: &CardId) -> Option<&Account> {
        self.accounts.iter().find(|account| account.card.id == *card)
    }

    /// True for the host's memory in a placement that has other cards as well.
    pub(crate) fn is_alongside(&self, card: &CardId, placement: &Placement) -> bool {
        let kind = |card: &CardId| self.account(card).map(|account| account.card.kind);
        kind(card) == Some(CardKind::Host)
            && placement.cards().any(|other| kind(other) != Some(CardKind::Host))
    }

    fn account_mut(&mut self, card: &CardId) -> Option<&mut Account> {
        self.accounts.iter_mut().find(|account| account.card.id == *card)
    }

    /// Grants the placement to `run` on all its cards, or changes nothing.
    pub fn claim(&mut self, run: RunId, holder: &Arc<str>, placement: &Placement) -> Result<(), ClaimError> {
        if self.accounts.iter().any(|account| account.claims.iter().any(|claim| claim.run == run)) {
            return Err(ClaimError::AlreadyClaimed);
        }
        for card in placement.cards() {
            let Some(account) = self.account(card) else {
                return Err(ClaimError::NoSuchCard { card: card.clone() });
            };
            let (requested, free) = (placement.on(card), account.free());
            // A whole card is shared with no other run, not even with one that claims nothing.
            let company = placement.alone && !account.claims.is_empty();
            if requested > free || company {
                return Err(ClaimError::OverCommit { card: card.clone(), requested, free });
            }
        }
        // Only after all cards were checked, so that a refused claim leaves no trace.
        for account in &mut self.accounts {
            let bytes = placement.on(&account.card.id);
            if !bytes.is_zero() {
                account.claims.push(LedgerClaim {
                    run,
                    holder: holder.clone(),
                    bytes,
                    measured: None,
                    alone: placement.alone,
                    granted: bytes,
                });
            }
        }
        Ok(())
    }

    /// Takes the memory of `run` that the driver reports. Memory beyond its claim is added to the claim, also
    /// on a card that it was not given.
    pub fn measure(&mut self, run: RunId, holder: &Arc<str>, used: &[(CardId, Bytes)]) {
        let kinds: Vec<CardKind> =
            used.iter().filter_map(|(card, _)| Some(self.account(card)?.card.kind)).collect();
        // The host is read from the kernel: it answers also where the driver lists no process.
        for account in self.accounts.iter_mut().filter(|account| kinds.contains(&account.card.kind)) {
            let on_card = used.iter().filter(|(card, _)| *card == account.card.id);
            let bytes: Bytes = on_card.map(|(_, bytes)| *bytes).sum();
            if let Some(claim) = account.claim_of(run) {
                // A measurement of zero stands, too: an engine that loads has not allocated yet.
                claim.measured = Some(bytes);
                claim.bytes = claim.bytes.max(bytes);
            // CUDA opens a context on every visible card that a program touches, so a run may use cards that
            // it was not given. This memory was never granted, and the audit does not count it.
            } else if !bytes.is_zero() {
                account.claims.push(LedgerClaim {
                    run,
                    holder: holder.clone(),
                    bytes,
                    measured: Some(bytes),
                    alone: false,
                    granted: Bytes::ZERO,
                });
            }
        }
    }

    /// Raises the run's claim on a card to `wanted`, or as far as the card has room. `None` if the run has no
    /// claim there.
    pub fn raise(&mut self, run: RunId, card: &CardId, wanted: Bytes) -> Option<Bytes> {
        let account = self.account_mut(card)?;
        let free = account.free();
        let claim = account.claim_of(run)?;
        // Granted as far as possible: guard can serve part of a request from its own pools.
        let raise = wanted.saturating_sub(claim.bytes).min(free);
        claim.bytes += raise;
        claim.granted += raise;
        Some(claim.bytes)
    }

    /// Lowers the run's claim on a card to `wanted`, but never below its measured memory.
    pub fn shrink(&mut self, run: RunId, card: &CardId, wanted: Bytes) {
        let claim = self.account_mut(card).and_then(|account| account.claim_of(run));
        if let Some(claim) = claim.filter(|claim| !claim.alone) {
            // Measured memory is in use; a claim below it would count it as free.
            let floor = wanted.max(claim.measured.unwrap_or_default());
            claim.bytes = claim.bytes.min(floor);
            claim.granted = claim.granted.min(claim.bytes);
        }
    }

    /// Turns claims on whole cards into measured memory and an [`allowance`]. A reading of zero measures
    /// nothing: in some containers the driver lists no processes.
    pub fn settle(&mut self, run: RunId) {
        for account in &mut self.accounts {
            let Some(claim) = account.claim_of(run).filter(|claim| claim.alone) else { continue };
            if let Some(used) = claim.measured.filter(|used| !used.is_zero()) {
                claim.alone = false;
                // The allowance leaves room for memory that the engine takes at its first request.
                claim.bytes = used.max((used + allowance(used)).min(claim.granted));
                claim.granted = claim.granted.min(claim.bytes);
            }
        }
    }

    /// Records the end of a process. Its claim stands until the driver reports the memory as free.
    pub fn leave(&mut self, run: RunId) {
        for account in &mut self.accounts {
            if let Some(claim) = account.claim_of(run) {
                claim.measured = None;
            }
        }
    }

    pub fn release(&mut self, run: RunId) {
        for account in &mut self.accounts {
            account.claims.retain(|claim| claim.run != run);
        }
    }

    /// Keeps memory of a card free for other processes, or no longer.
    pub(crate) fn keep_free(&mut self, card: &CardId, wanted: Option<(Bytes, Moment)>) {
        if let Some(account) = self.account_mut(card) {
            let foreign = account.foreign;
            account.kept = wanted.map(|(bytes, until)| KeptFree { bytes, until, foreign });
        }
    }

    /// Ends what is kept free until `now` at most; returns whether there was any.
    pub(crate) fn end_kept(&mut self, now: Moment) -> bool {
        let over = |account: &&mut Account| account.kept.is_some_and(|kept| kept.until <= now);
        self.accounts.iter_mut().filter(over).map(|account| account.kept = None).count() > 0
    }

    pub fn read(&mut self, cards: &[(CardId, Bytes)]) {
        for (card, free) in cards {
            if let Some(account) = self.account_mut(card) {
                account.read(*free);
            }
        }
    }

    /// Memory that the run may take.
    pub fn claim_shares(&self, run: RunId) -> Vec<Share> {
        self.shares(run, |claim| Some(claim.bytes))
    }

    /// Memory that the run was last measured to take.
    pub fn measured_shares(&self, run: RunId) -> Vec<Share> {
        self.shares(run, |claim| claim.measured)
    }

    /// Memory of the run on each card: measured, or else claimed.
    pub(crate) fn occupied_shares(&self, run: RunId) -> Vec<Share> {
        self.shares(run, |claim| Some(claim.measured.unwrap_or(claim.bytes)))
    }

    fn shares(&self, run: RunId, bytes: impl Fn(&LedgerClaim) -> Option<Bytes>) -> Vec<Share> {
        let of_run = self.accounts.iter().filter_map(|account| {
            let claim = account.claims.iter().find(|claim| claim.run == run)?;
            Some(Share::new(account.card.id.clone(), bytes(claim)?))
        });
        of_run.collect()
    }
}
