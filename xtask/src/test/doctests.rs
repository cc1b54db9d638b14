//! Doc tests, which run under `cargo test --doc` and are counted from its `test result:` lines.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use super::steps::Outcome;

pub(super) fn run(root: &Path) -> Outcome {
    let child = Command::new("cargo")
        .args(["test", "--doc", "--workspace", "--no-fail-fast"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut outcome = Outcome::default();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot run cargo: {error}");
            return outcome;
        }
    };
    if let Some(output) = child.stdout.take() {
        read(output, &mut outcome);
    }
    outcome.succeeded = child.wait().is_ok_and(|status| status.success());
    outcome
}

/// Prints every line of `output` and adds up the results in it.
fn read(output: impl Read, outcome: &mut Outcome) {
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    // What a test prints need not be UTF-8.
    while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line);
        eprint!("{text}");
        if let Some(result) = text.trim().strip_prefix("test result: ") {
            outcome.passed += number(result, "passed");
            outcome.failed += number(result, "failed");
        }
        line.clear();
    }
}

/// The number before `word`, as in `ok. 3 passed; 0 failed; …`.
fn number(result: &str, word: &str) -> usize {
    let mut parts = result.split([';', '.']);
    parts.find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_several_crates_are_added() {
        let output = "test src/a.rs - a (line 1) ... ok\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let mut outcome = Outcome::default();
        read(output.as_bytes(), &mut outcome);
        assert_eq!((outcome.passed, outcome.failed), (4, 2));
    }
}
