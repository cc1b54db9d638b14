//! One request for device memory: take it from the budget, ask the driver, and give it back if the driver refuses.

use plimsoll_wire::page::Refusal;

use super::{CardIndex, pools, tree};
use crate::driver::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::ladder::{self, Climb, Instead};
use crate::spill::budget;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The driver gave it, and the card is charged with it.
    Given,
    /// The program has something else instead, which guard accounts for (see [`crate::spill`]).
    Elsewhere,
    /// Nothing was given; the program gets this code.
    Failed(CuResult),
}

impl Outcome {
    pub(crate) fn code(self) -> CuResult {
        match self {
            Self::Given | Self::Elsewhere => SUCCESS,
            Self::Failed(code) => code,
        }
    }
}

/// Asks the driver for `size` bytes by `ask`, within the budget of the card; meets a refusal on the ladder.
///
/// `instead` is what guard may give otherwise.
pub(crate) fn ask(
    index: CardIndex,
    size: u64,
    instead: Instead,
    ask: &mut dyn FnMut() -> CuResult,
) -> Outcome {
    ladder::answer();
    let refusal = match once(index, size, instead, ask) {
        Err(refusal) => refusal,
        Ok(outcome) => return outcome,
    };
    let request = ladder::Request {
        card: index,
        size,
        refusal,
        instead,
        ask,
    };
    match ladder::climb(request) {
        Climb::Given => Outcome::Given,
        Climb::Elsewhere => Outcome::Elsewhere,
        Climb::Refused => Outcome::Failed(OUT_OF_MEMORY),
    }
}

/// One try, without the ladder: Err says who refused.
pub(crate) fn once(
    index: CardIndex,
    size: u64,
    instead: Instead,
    ask: &mut dyn FnMut() -> CuResult,
) -> Result<Outcome, Refusal> {
    if budget::yields(index, size, instead) {
        return Err(Refusal::Budget);
    }
    whole(index, size, ask)
}

/// The same, with what is held back for later requests.
pub(crate) fn whole(
    index: CardIndex,
    size: u64,
    ask: &mut dyn FnMut() -> CuResult,
) -> Result<Outcome, Refusal> {
    if !tree::take(index, size) {
        // Pools give memory back unseen.
        pools::refresh(index);
        if !tree::take(index, size) {
            return Err(Refusal::Budget);
        }
    }
    match ask() {
        SUCCESS => {
            tree::confirm(index, size);
            Ok(Outcome::Given)
        }
        code => {
            tree::take_back(index, size);
            if code == OUT_OF_MEMORY {
                Err(Refusal::Driver)
            } else {
                Ok(Outcome::Failed(code))
            }
        }
    }
}
