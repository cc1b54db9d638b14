//! Pure arithmetic behind guard's decisions, such as how to split a request between card and host memory.

pub(crate) mod backoff;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod room;
pub(crate) mod siblings;
