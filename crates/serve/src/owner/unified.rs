//! What is done around a load on a machine whose cards take the host's memory (Jetson, GB10).
//!
//! DECISION: the page cache of the files that a load has read is given back as soon as the weights are on the card, always: nobody
//! reads it again, drivers there count it as used, and it is the model's own, so that it costs nobody else anything. Making
//! room *before* a load touches what others may want again, and may take root's steps, so it is done only where it is asked for
//! (`reclaim-before-load`). Nobody is ever stopped for page cache: the books count it as free, as the kernel does.

mod after;
mod before;
mod files;

pub(super) use self::after::let_go;
pub(super) use self::before::make_way;
