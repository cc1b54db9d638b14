//! Fake llama-server with timing and faults on request, for tests and benchmarks of `plimsoll serve`.
//!
//! It follows llama-server's order of events (`tools/server/server.cpp:main @ b10605`). It binds, answers 503
//! while loading, reports on the router channel, and becomes ready. Only then does it react to SIGTERM and
//! stdin. A simpler imitation could hide faults of a router that real engines would expose.
//!
//! One thread serves everything, so that on a two-core machine the fake engine uses at most one core.

#![deny(unsafe_code)]

mod answers;
mod args;
mod budget;
mod cache;
#[allow(unsafe_code, reason = "it calls a C library")]
mod card;
mod control;
mod death;
mod engine;
mod faults;
mod hoard;
mod http;
mod load;
mod serve;
mod stream;

use std::io::{self, Write};
use std::process::ExitCode;

use args::Args;

/// The one flag that a router asks for, in llama-server's words.
const HELP: &str = "--host HOST             ip address to listen, or bind to an UNIX socket if the address ends\n\
                    \x20                       with .sock (default: 127.0.0.1)";

fn main() -> ExitCode {
    let requested = match std::env::args().nth(1).as_deref() {
        // It is no build of llama.cpp, so nobody shall take it for one.
        Some("--version") => concat!("fake-engine ", env!("CARGO_PKG_VERSION")),
        Some("--help") => HELP,
        _ => "",
    };
    if !requested.is_empty() {
        return match writeln!(io::stdout(), "{requested}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&error),
        };
    }
    let args = match Args::from_process() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, engine::live(args)),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &dyn std::error::Error) -> ExitCode {
    log(format_args!("fake-engine: {error}"));
    ExitCode::from(2)
}

/// Writes one log line to stderr, as llama-server does. A log that nobody reads is no reason to die.
fn log(line: std::fmt::Arguments<'_>) {
    writeln!(io::stderr(), "{line}").ok();
}
