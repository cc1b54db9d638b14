//! `plimsoll run` as a process: what a program and its caller see, and what is said at the end.

mod asked;
mod endings;
mod guarded;
#[path = "../pages/hand_written.rs"]
mod hand_written;
#[path = "../pages/real.rs"]
mod real;
mod rig;
mod summary;
mod surroundings;
mod terminal;
