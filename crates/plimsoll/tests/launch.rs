//! Tests of starting and ending child processes as the daemon does: real processes, most of them the fake
//! engine.

mod confined;
mod deaths;
mod endings;
mod leftovers;
mod rig;
mod sessions;
mod starting;
mod strangers;
mod words;
