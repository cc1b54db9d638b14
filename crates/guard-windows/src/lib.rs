//! `plimsoll_guard_windows.dll`: counts and limits the GPU memory of an unmodified program of Windows into
//! which it is loaded.
//!
//! It acts in a process with `PLIMSOLL_GUARD` set, with the options, pages and ledger of Linux's guard. The
//! modules form layers, lowest first.
//!
//! | layer | modules |
//! |---|---|
//! | process | `say`, `settings`, `owner`, `section` |
//! | driver | `driver`: the real functions of CUDA's driver |
//! | accounts | `cards`, `blocks`, `captures`: figures, claims on the budget, and captured graphs |
//! | pool | `pools`, `backing`, `fence`: guard's own memory pools, in place of ggml's |
//! | entry points | `hooks`, `modules`, `takeover`, `entry`: how a program comes to call this library |
//!
//! DECISION: it is a crate beside `guard`. That one is `no_std` and consists of calls of libc, ELF and
//! interposed symbols; here are import tables, notifications of the loader and Microsoft's C++. What both
//! share is in `pool` and `wire`.
#![cfg(windows)]
#![allow(
    non_snake_case,
    non_upper_case_globals,
    reason = "the functions keep the names that the driver gives them"
)]

mod backing;
mod blocks;
mod captures;
mod cards;
mod driver;
mod entry;
mod fence;
mod hooks;
mod modules;
mod owner;
mod pools;
mod refusal;
mod say;
mod section;
mod settings;
mod takeover;
