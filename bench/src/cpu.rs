//! Measures the CPU time of other processes from two counters in /proc, because each has an error that the
//! other lacks.
//!
//! `/proc/PID/stat` includes threads that have ended, but counts in steps of 10 ms: too coarse for a thousand
//! small requests. `/proc/PID/task/*/schedstat` counts nanoseconds, but only of threads that still run. The
//! fine counter is used unless the coarse one exceeds it by more than the coarse one's error, which means
//! that threads have ended.

use std::fs;
use std::time::Duration;

/// Both counters of some processes at one moment.
#[derive(Debug)]
pub(crate) struct CpuClock<'a> {
    pids: &'a [u32],
    coarse: Duration,
    fine: Duration,
}

impl<'a> CpuClock<'a> {
    pub(crate) fn start(pids: &'a [u32]) -> Self {
        let coarse = pids.iter().filter_map(|&pid| coarse(pid)).sum();
        let fine = pids.iter().map(|&pid| fine(pid)).sum();
        Self { pids, coarse, fine }
    }

    /// User and system time since the start of this clock.
    pub(crate) fn spent(&self) -> Duration {
        let now = Self::start(self.pids);
        let coarse = now.coarse.saturating_sub(self.coarse);
        let fine = now.fine.saturating_sub(self.fine);
        let processes = u32::try_from(self.pids.len()).unwrap_or(u32::MAX);
        // User and system time are each cut to a tick, at both ends.
        let error = tick().saturating_mul(2).saturating_mul(processes);
        if coarse > fine.saturating_add(error) { coarse } else { fine }
    }
}

fn tick() -> Duration {
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100);
    Duration::from_secs(1) / per_second
}

fn coarse(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(tick().saturating_mul(ticks(&stat)?))
}

/// Fields 14 and 15, counted after the name, which may hold blanks and parentheses.
fn ticks(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse::<u32>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

fn fine(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |path| {
        let text = fs::read_to_string(path).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    tasks.filter_map(|task| of_task(task.path().join("schedstat"))).sum()
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn burn(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn ticks_are_read_behind_a_name_with_parentheses() {
        assert_eq!(ticks("7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 5"), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn the_time_of_threads_that_have_ended_is_counted() {
        let me = [std::process::id()];
        let clock = CpuClock::start(&me);
        // Wall time is no CPU time on a busy machine, hence the patience.
        let start = Instant::now();
        while clock.spent() < Duration::from_millis(100) {
            assert!(start.elapsed() < Duration::from_secs(30));
            thread::spawn(|| burn(Duration::from_millis(50))).join().unwrap();
        }
    }
}
