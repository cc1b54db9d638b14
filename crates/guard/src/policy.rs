//! Pure arithmetic of guard's decisions: no calls, no state, no locks.

pub(crate) mod backoff;
pub(crate) mod copy_split;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod room;
pub(crate) mod siblings;
