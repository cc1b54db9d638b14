//! `libplimsoll_guard.so`: an interposer between an unmodified program and the CUDA driver.
//!
//! The library is preloaded, so it lives in every process of a tree, and most of those never touch CUDA. It
//! therefore does nothing while it is loaded, needs nothing but libc, and passes every call through until
//! `PLIMSOLL_GUARD` is set and the driver's own `cuInit` has succeeded.
//!
//! Floors, each of which imports only those above it in this list:
//!
//! | floor | modules |
//! |---|---|
//! | process | `clock`, `descriptor`, `process`, `say`, `settings`, `text` |
//! | driver | `driver`: the real functions, found by walking the loaded objects |
//! | state | `state`: tables and counters without decisions; `trace`: one record for each event; `driver_guard`: thread state around own calls |
//! | policy | `policy`: arithmetic without calls, tested alone |
//! | accounts | `account`: what is held, claimed before the driver is asked |
//! | actions | `spill`, `ladder`, `ggml`, `graphs`, `contexts`: what is made, released, waited for |
//! | entrances | `arm`, `hooks`, `interpose`: exports, and how a program finds them |
//!
//! An upper floor that a lower one has to call hands down a function: a hook passes the real call to
//! `ladder::ask`, and `ggml` enters its trim in `ladder::reuse`.
//!
//! DECISION: the artefact is built with the profile `guard` (panic = abort), and only then is it `no_std`:
//! that takes 0.1 ms off every exec and needs no unwinder. With any other profile this is an ordinary crate,
//! for tests and lints. Exports exist in neither unit tests nor rlibs.
#![cfg_attr(panic = "abort", no_std)]
#![allow(
    non_snake_case,
    non_upper_case_globals,
    reason = "the functions of the driver keep their names"
)]

extern crate alloc;
// Allocator and panic handler of the shipped library; linked even if no item of the crate were named.
extern crate plimsoll_nostd;

mod account;
mod arm;
mod clock;
mod contexts;
mod descriptor;
mod driver;
mod driver_guard;
mod ggml;
mod graphs;
mod hooks;
mod interpose;
mod ladder;
mod policy;
mod process;
mod say;
mod settings;
mod spill;
mod state;
mod text;
mod trace;
