//! The scheduler from outside: events in, effects out.

mod configuration;
mod desk;
mod failures;
mod requests;
mod room;
