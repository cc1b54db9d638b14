//! What is tried when a request meets the budget or the driver's OOM.

use plimsoll_wire::page::Refusal;

use crate::account::CardIndex;
use crate::driver::{CuResult, DevicePointer};

/// A request that was refused once.
#[expect(dead_code, reason = "no rung uses it yet")]
pub(crate) struct Request<'a> {
    pub(crate) card: CardIndex,
    pub(crate) size: u64,
    pub(crate) refusal: Refusal,
    /// Where the program wants the address, if guard may satisfy the request with a range of its own.
    pub(crate) place: Option<*mut DevicePointer>,
    /// Asks the driver again; takes nothing from the budget.
    pub(crate) ask: &'a mut dyn FnMut() -> CuResult,
}

/// Where the climb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "no rung uses it yet")]
pub(crate) enum Climb {
    /// The driver gave it after all, and the card is charged with it.
    Given,
    /// `place` has the address of a range that guard built and accounts for.
    Elsewhere,
    /// The program gets CUDA_ERROR_OUT_OF_MEMORY, and the reason stands on the page.
    Refused,
}

pub(crate) fn climb(_: Request<'_>) -> Climb {
    Climb::Refused
}
