//! Reserves bytes of the memory budget for one request, before the driver is called.
//!
//! If the driver then refuses the request, the claim is returned to the budget.

use plimsoll_wire::page::Refusal;

use super::{Substitute, overflow, pools};
use crate::driver::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::state::{CardIndex, ledger};

/// Result of a budget claim and the driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// The driver gave the memory, and the card is charged with it.
    Given,
    /// The program has a substitute, which guard accounts for (see [`crate::spill`]).
    Elsewhere,
    /// Nothing was given; the program gets this code.
    Failed(CuResult),
}

impl ClaimOutcome {
    pub(crate) fn code(self) -> CuResult {
        match self {
            Self::Given | Self::Elsewhere => SUCCESS,
            Self::Failed(code) => code,
        }
    }
}

/// One attempt that leaves later requests their room; Err says which limit refused.
pub(crate) fn once(
    index: CardIndex,
    size: u64,
    substitute: Substitute,
    ask: &mut dyn FnMut() -> CuResult,
) -> Result<ClaimOutcome, Refusal> {
    if overflow::yields(index, size, substitute) {
        return Err(Refusal::Budget);
    }
    whole(index, size, ask)
}

/// One attempt that may take the room of later requests as well.
pub(crate) fn whole(
    index: CardIndex,
    size: u64,
    ask: &mut dyn FnMut() -> CuResult,
) -> Result<ClaimOutcome, Refusal> {
    if !ledger::take(index, size) {
        // The driver returns memory of its pools at synchronisations, which guard does not see.
        pools::refresh(index);
        if !ledger::take(index, size) {
            return Err(Refusal::Budget);
        }
    }
    match ask() {
        SUCCESS => {
            ledger::confirm(index, size);
            Ok(ClaimOutcome::Given)
        }
        code => {
            ledger::take_back(index, size);
            if code == OUT_OF_MEMORY { Err(Refusal::Driver) } else { Ok(ClaimOutcome::Failed(code)) }
        }
    }
}
