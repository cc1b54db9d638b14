//! `plimsoll run` as a process: what a program and its caller see, and what is said at the end.

mod endings;
mod rig;
mod summary;
mod surroundings;
