//! Tests of `plimsoll run` as a process: what the program and its caller see, and the summary at the end.

mod endings;
mod guarded;
mod requested;
mod rig;
mod summary;
mod surroundings;
mod terminal;
