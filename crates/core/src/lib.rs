//! Decides. What a model is, what it was asked to do, what that costs, where it goes, when it may start and
//! why not. Pure: no clock, environment, file, socket, thread, print or unsafe; callers pass bytes and time.
//!
//! The modules stand in the order of the data: [`model`] → [`flags`] → [`plan`] → [`place`] → [`admit`]; [`machine`] is
//! what a kernel says of its memory, [`diagnose`] why an engine died, [`record`] how a machine's course is written down,
//! [`trend`] whether a figure grows, and [`explain`] how each of them says it.
#![forbid(unsafe_code)]

pub mod admit;
pub mod bytes;
pub mod diagnose;
pub mod explain;
pub mod flags;
pub mod machine;
pub mod model;
pub mod place;
pub mod plan;
pub mod record;
pub mod trend;
