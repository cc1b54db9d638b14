//! Tests of `plimsoll run` as a process: the program's and the caller's view, and the summary at the end.

mod endings;
mod guarded;
mod requested;
mod rig;
mod summary;
mod surroundings;
mod terminal;
