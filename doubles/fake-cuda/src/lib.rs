//! Fake CUDA driver (`libcuda.so.1`) for testing guard on real processes without a GPU.
//!
//! Names, signatures and versions are those of `cuda.h`. A card is a number of bytes that all processes of a
//! test share. Memory is real, sparse, and accessible only as the program was granted access. Work completes
//! on a clock that the test sets. Violations of rules that the real driver does not report (memory released
//! while work uses it, graphs that outlive their memory) are logged. `PLIMSOLL_FAKE_CUDA` configures the
//! driver; `README.md` lists its keys and the format of the log.
//!
//! Each file holds its part of the state, as methods of `driver::Driver`, and its exported functions.

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
mod replaced;
mod settings;
mod sharing;
mod space;
mod streams;
mod usage;
mod vmm;
mod work;

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_fake_cuda;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
