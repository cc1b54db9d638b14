//! Computes the maximum number of client connections from the limit of open files (`RLIMIT_NOFILE`).
//!
//! A request in flight holds two descriptors: one to its client and one to its engine. An eighth as many
//! connections have no request yet, and an eighth wait for a place.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for pipes to engines, files, epoll, and the listener.
const OTHERS: u64 = 48;
const FEWEST: usize = 4;

/// Raises the limit and returns how many connections to accept, at most `wanted`.
pub(super) fn connections(wanted: usize) -> usize {
    // The soft limit is raised to the hard limit. Further clients wait in the kernel's accept backlog.
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.map_or(wanted, |limit| borne_by(limit).min(wanted))
}

fn borne_by(limit: u64) -> usize {
    usize::try_from(limit.saturating_sub(OTHERS) / 18 * 8).unwrap_or(usize::MAX).max(FEWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_has_a_second_descriptor_for_its_engine() {
        assert_eq!(borne_by(1024), 432);
        assert_eq!(borne_by(2352), 1024);
        assert_eq!(borne_by(133), 32);
        assert_eq!(borne_by(0), FEWEST);
    }
}
