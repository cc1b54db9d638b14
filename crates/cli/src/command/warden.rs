//! `plimsoll warden` (hidden): waits for the end of the daemon, and kills all engines if it has died.
//!
//! The daemon holds the only write end of the warden's pipe, so its death closes the pipe.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, kill_process_group, setsid};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> ExitCode {
    // The daemon adds and removes process groups with the lines `+GROUP` and `-GROUP`.

    // A session of its own keeps the terminal's signals away. The call fails only if the process leads one
    // already.
    let _ = setsid();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return ExitCode::FAILURE;
    };
    let _inside = runtime.enter();
    // An unread handler is the safe way to ignore a signal: the warden ends with its pipe only.
    let deaf: Vec<_> = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .into_iter()
        .map(signal)
        .collect();
    let groups = follow(std::io::stdin().lock());
    for group in groups {
        // A group that is already gone is no error. The sweep also kills processes that moved to a session of
        // their own.
        let _ = kill_process_group(group, Signal::KILL);
        if let Ok(leader) = u32::try_from(group.as_raw_nonzero().get()) {
            plimsoll_process::descendants::sweep(leader);
        }
    }
    drop(deaf);
    ExitCode::SUCCESS
}

/// Reads registrations until the pipe ends; returns the groups that are left.
fn follow(lines: impl BufRead) -> Vec<Pid> {
    let mut groups = BTreeSet::new();
    for line in lines.lines() {
        let Ok(line) = line else { break };
        let Some((sign, group)) = line.split_at_checked(1) else {
            continue;
        };
        match (sign, group.parse::<i32>()) {
            ("+", Ok(group)) if group > 1 => groups.insert(group),
            ("-", Ok(group)) => groups.remove(&group),
            _ => false,
        };
    }
    groups.into_iter().filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_groups_are_the_registered_less_the_removed() {
        let left = follow("+12\n+34\n-12\n+56\n".as_bytes());
        assert_eq!(left, [34, 56].map(|group| Pid::from_raw(group).unwrap()));
    }

    #[test]
    fn no_line_can_make_it_kill_all_processes_or_init() {
        assert!(follow("+-1\n+0\n+1\n+\n\nnonsense\n+99999999999\né\n".as_bytes()).is_empty());
    }
}
