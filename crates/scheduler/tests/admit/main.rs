//! Tests of the scheduler through its public interface: events in, effects out.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod clock;
mod company;
mod configuration;
mod depth;
mod desk;
mod failures;
mod four;
mod hold;
mod host;
mod invariants;
mod keeping;
mod max_requests;
mod measured;
mod measuring;
mod neighbours;
mod offline;
mod orders;
mod out_of_memory;
mod outlook;
mod pins;
mod pleas;
mod ports;
mod requests;
mod room;
mod script;
mod sleeping;
mod trust;
mod turns;
mod used;
mod wait_lines;
mod wait_reasons;
mod world;
mod yields;
