//! A `libcuda.so.1` with as many bytes as a test allows, for testing the guard without a GPU over real
//! processes.
//!
//! Names, signatures and versions are those of `cuda.h`. A card is a number of bytes that all processes of a
//! test share; memory is real, sparse, and reached only as access was granted; work completes on a clock that
//! the test sets. Rules that the real driver breaks silently (memory that goes while work uses it, graphs
//! that outlive their memory) are recorded. `PLIMSOLL_FAKE_CUDA` configures it; `README.md` lists its keys
//! and the format of the log.
//!
//! A subject's file holds its part of the state, as methods of `driver::Driver`, and its exported functions.

#![allow(non_snake_case, reason = "arguments have the names that cuda.h gives them")]

mod abi;
#[cfg(test)]
mod alone;
mod arrays;
mod batch;
mod blocks;
mod call;
mod capture;
mod chunks;
mod code;
mod context;
mod copy;
mod device;
mod driver;
mod entry;
mod events;
mod faults;
mod fill;
mod graphs;
mod host;
mod linear;
mod log;
mod modules;
mod operation;
mod pointer;
mod pools;
mod primary;
mod regions;
mod settings;
mod sharing;
mod space;
mod streams;
mod usage;
mod vmm;
mod work;
