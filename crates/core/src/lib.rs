//! Decides. What a model is, what it was asked to do, what that costs, where it goes, when it may start and
//! why not. Pure: no clock, environment, file, socket, thread, print or unsafe; callers pass bytes and time.
#![forbid(unsafe_code)]

pub mod bytes;
