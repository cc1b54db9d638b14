//! `plimsoll stop`: sends SIGTERM to the server's process, and waits for its end.
//!
//! DECISION: a signal instead of an endpoint. Any client may use the API, but the kernel lets only the
//! server's own user (or root) end it.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use http::{Method, StatusCode};
use plimsoll_measure::load::Target;
use plimsoll_process::port_owner::listens_on;
use plimsoll_process::reading::MeasuredProcess;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::{ServerArgument, ServerVerbError, done};

const MORE: &str = "\
The server finishes the answers in progress, for 30 s at most; a second `plimsoll stop` ends it at once. The command waits for the \
end.

Examples: plimsoll stop; plimsoll stop 127.0.0.1:8081

Exit status: 0 once the server has ended, or 1 if it does not answer or is not a process of yours on this machine.";

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Stop {
    #[command(flatten)]
    server: ServerArgument,
}

pub(crate) fn stop(arguments: &Stop) -> Result<ExitCode, ServerVerbError> {
    let server = arguments.server.server();
    let url = &server.url;
    let process = match server.ask_json(Method::GET, "/api/status", &Value::Null) {
        Ok(status) => status["server"]["pid"].as_i64().and_then(|pid| own_process(pid, url)),
        // A key is for clients; the kernel says whose process listens.
        Err(ServerVerbError::Refused { status, .. }) if is_for_keys(status) => listening(url),
        Err(error) => return Err(error),
    };
    let process = process.ok_or_else(|| ServerVerbError::NotOwn { url: url.to_string() })?;
    match pidfd_send_signal(&process, Signal::TERM) {
        // It has ended in this moment.
        Err(Errno::SRCH) => return done(format_args!("the server at {url} has ended")),
        sent => sent.map_err(std::io::Error::from)?,
    }
    // The descriptor becomes readable at the end of the process (pidfd_open(2)).
    while let Err(error) = poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
        if error != Errno::INTR {
            return Err(std::io::Error::from(error).into());
        }
    }
    done(format_args!("the server at {url} has ended"))
}

fn is_for_keys(status: StatusCode) -> bool {
    status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}

/// The process that listens at the address, if it is a plimsoll of this user's.
fn listening(url: &Target) -> Option<OwnedFd> {
    let pid = MeasuredProcess::listening_on(url.port)?.pid;
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let own = std::env::current_exe().ok()?;
    // An upgrade has replaced the file of a server that still runs.
    let name = program.file_name()?.to_string_lossy();
    let is_ours = name.trim_end_matches(" (deleted)") == own.file_name()?.to_string_lossy();
    is_ours.then(|| own_process(pid.into(), url)).flatten()
}

/// The process with this number, if it is the one that listens at the address: the number is a server's word
/// only.
fn own_process(pid: i64, url: &Target) -> Option<OwnedFd> {
    // A negative number is a group of processes, which rustix refuses with a panic.
    let pid = Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 0)?)?;
    // Opened first, so that another process with the same number cannot take its place after the check.
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let addresses = (url.host.as_str(), url.port).to_socket_addrs().ok()?;
    let is_listening = addresses.map(|address| address.ip()).any(|address| {
        // A connection to 0.0.0.0 goes to the loopback.
        let here = if address.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address };
        listens_on(pid.as_raw_nonzero().get(), here, url.port)
    });
    is_listening.then_some(process)
}
