//! Program `pool-replay`: compares GPU memory allocators on a recorded trace (see
//! `plimsoll_traces::pool_replay`).

use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(plimsoll_traces::pool_replay::run(std::env::args_os(), &mut stdout(), &mut stderr()))
}
