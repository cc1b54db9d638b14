//! Prints the times of a test run: each step, and the slowest tests.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

/// Tests that are named.
const SLOWEST: usize = 10;

/// Clock ticks in a second of `/proc/self/stat`: USER_HZ, which is 100 on every architecture that Plimsoll
/// runs on.
const TICKS: u32 = 100;

#[derive(Debug, Default)]
pub(super) struct Times {
    steps: Vec<(&'static str, Duration, Duration)>,
}

impl Times {
    pub(super) fn add(&mut self, step: &'static str, elapsed: Duration, processor: Duration) {
        self.steps.push((step, elapsed, processor));
    }

    /// A table of the steps and the slowest of `tests`, which are sorted for it.
    pub(super) fn text(&self, tests: &mut [(String, Duration)]) -> String {
        let mut text = String::from("\n   seconds  processor  step\n");
        let all = self
            .steps
            .iter()
            .fold((Duration::ZERO, Duration::ZERO), |sum, step| (sum.0 + step.1, sum.1 + step.2));
        for (name, elapsed, processor) in self.steps.iter().chain([&("all", all.0, all.1)]) {
            row(&mut text, *elapsed, &format!("{:>9.1}  {name}", processor.as_secs_f64()));
        }
        tests.sort_by_key(|test| Reverse(test.1));
        if !tests.is_empty() {
            text.push_str("\n   seconds  slowest tests\n");
        }
        for (name, elapsed) in tests.iter().take(SLOWEST) {
            row(&mut text, *elapsed, name);
        }
        text
    }
}

fn row(text: &mut String, elapsed: Duration, rest: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{:>10.1}  {rest}", elapsed.as_secs_f64());
}

/// Processor time of this process and of all children that have ended, theirs included. On a machine that
/// does other work too it says more than the clock does.
pub(super) fn processor() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    processor_time(&stat).unwrap_or_default()
}

/// `utime`, `stime`, `cutime` and `cstime`, the 14th to 17th field of proc_pid_stat(5).
fn processor_time(stat: &str) -> Option<Duration> {
    // The second field is the program's name in parentheses and may hold spaces; the third follows the last
    // `)`.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (fields.len() == 4).then(|| Duration::from_secs(fields.iter().sum()) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 60 40 150 50 20 0";
        assert_eq!(processor_time(stat), Some(Duration::from_secs(3)));
        assert_eq!(processor_time("7 (a"), None);
    }

    #[test]
    fn steps_and_the_slowest_tests_are_listed() {
        let mut times = Times::default();
        times.add("format", Duration::from_secs(2), Duration::from_secs(3));
        times.add("tests", Duration::from_secs(60), Duration::from_secs(100));
        let mut tests: Vec<_> = (0..20).map(|n| (format!("a t{n}"), Duration::from_secs(n))).collect();
        let text = times.text(&mut tests);
        assert!(text.contains("      62.0      103.0  all\n"), "{text}");
        assert!(text.contains("      19.0  a t19\n") && !text.contains("a t9\n"), "{text}");
    }
}
