//! Reads the kernel's monotonic and real-time clocks, and sleeps.

use core::ptr::null_mut;
use core::time::Duration;

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither part is negative on a running machine.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds since boot, for intervals (`CLOCK_MONOTONIC`).
pub(crate) fn now() -> u64 {
    nanoseconds(read(libc::CLOCK_MONOTONIC))
}

/// Nanoseconds since 1970, for people (`CLOCK_REALTIME`).
pub(crate) fn unix() -> u64 {
    nanoseconds(read(libc::CLOCK_REALTIME))
}

/// Whole seconds since boot, in ticks of a few milliseconds that cost no system call.
pub(crate) fn seconds() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE).as_secs()
}

/// Sleeps; a signal may end it sooner.
pub(crate) fn sleep(pause: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(pause.as_secs()).unwrap_or(0),
        tv_nsec: libc::c_long::from(i32::try_from(pause.subsec_nanos()).unwrap_or(0)),
    };
    // SAFETY: the time is ours; the rest of an interrupted sleep is not wanted.
    unsafe { libc::nanosleep(&raw const time, null_mut()) };
}
