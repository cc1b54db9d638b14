//! Readings of the kernel's monotonic and real-time clocks, in nanoseconds.

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is ours; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither part is negative on a running machine.
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Time since boot, for intervals (`CLOCK_MONOTONIC`).
pub(crate) fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Time since 1970, for people (`CLOCK_REALTIME`).
pub(crate) fn unix() -> u64 {
    read(libc::CLOCK_REALTIME)
}
