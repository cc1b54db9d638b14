//! Counts cargo's `test result:` lines while they pass by, and remembers which tests failed.

use std::io::{BufRead, BufReader, Read};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// By their names within their binaries.
    pub(crate) failures: Vec<String>,
}

impl Count {
    /// Prints every line of `output` and adds up the results in it.
    pub(crate) fn read(&mut self, output: impl Read) {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            self.add(&text);
            line.clear();
        }
    }

    fn add(&mut self, line: &str) {
        let line = line.trim();
        let failure = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"));
        self.failures.extend(failure.map(str::to_owned));
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let number = |word: &str| {
            result
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        self.passed += number("passed").unwrap_or(0);
        self.failed += number("failed").unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_the_results_of_several_binaries() {
        let mut count = Count::default();
        for line in [
            "running 3 tests\n",
            "test a::holds ... ok\n",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            "test b::breaks ... FAILED\n",
            "test src/c.rs - c (line 4) ... FAILED\n",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
        ] {
            count.add(line);
        }
        assert_eq!((count.passed, count.failed), (4, 2));
        assert_eq!(count.failures, ["b::breaks", "src/c.rs - c (line 4)"]);
    }
}
