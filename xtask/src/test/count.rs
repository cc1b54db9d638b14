//! Counts cargo's `test result:` lines while they pass by.

use std::io::{BufRead, BufReader, Read};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
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
        let Some(result) = line.trim().strip_prefix("test result: ") else {
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
        count.add("running 3 tests\n");
        count.add(
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        count.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n");
        assert_eq!(count, Count { passed: 4, failed: 2 });
    }
}
