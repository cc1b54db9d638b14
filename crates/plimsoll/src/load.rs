//! Load on an OpenAI-compatible server, and what it does to the server's memory.
//!
//! DECISION: load comes in rounds. A round is the same requests as the one before, of several depths; between rounds nothing is
//! in flight, and then the memory is looked at. So looks are alike: neither a request half done nor a deeper prompt than last
//! time is taken for growth, and what a server caches of prompts is full after the first rounds. What is judged is
//! `plimsoll_core::trend`'s to say.
//!
//! Everything is bounded: requests in number and time, answers in bytes, a round in its requests, a state in its points.

mod answer;
mod beside;
mod client;
mod figures;
mod last_words;
mod program;
mod prompt;
mod refused;
mod rounds;
mod server;
mod soak;
mod state;
mod sweep;
mod target;

pub(crate) use answer::Failure;
pub(crate) use beside::{Beside, BesideError, Encounter, Served};
pub(crate) use client::Client;
pub(crate) use figures::{Figures, is_own};
pub(crate) use program::Ending;
pub(crate) use prompt::Yardstick;
pub(crate) use rounds::{Round, failed_so};
pub(crate) use server::Server;
pub(crate) use soak::{Limit, Settings, SoakError, soak, stopped};
pub(crate) use state::{Felt, Judged, State, StateError, thousands};
pub(crate) use sweep::{Depth, Sweep, slope, sweep, warm_up};
pub(crate) use target::Target;
