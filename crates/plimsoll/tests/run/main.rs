//! `plimsoll run` as a process: what a program and its caller see, and what is said at the end.

mod endings;
#[path = "../pages/hand_written.rs"]
mod hand_written;
mod rig;
mod summary;
mod surroundings;
