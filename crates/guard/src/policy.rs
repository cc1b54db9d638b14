//! Computes guard's decisions without side effects, such as how to split a request between card and host
//! memory.

pub(crate) mod backoff;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod room;
pub(crate) mod siblings;
