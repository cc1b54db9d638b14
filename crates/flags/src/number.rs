//! Refuses numbers of which llama-server would read only a part: it takes `-c 64k` for 64.

use crate::failure::{FlagProblem, quoted};
use crate::table::{Flag, FlagArity};
use crate::value::leading_integer;

/// Flags whose value is a number of MiB.
const IN_MIB: [&str; 3] = ["--cache-ram", "--moe-cache-mib", "--attention-max-batch"];

impl Flag {
    /// Checks that llama-server reads the whole of `text`; `spelling` is the flag as it was given.
    ///
    /// DECISION: an error, not a warning. A context of 64 tokens where 64k were meant has a plan that fits,
    /// and an engine that answers nothing of use.
    pub fn whole_number(&self, spelling: &str, text: &str) -> Result<(), FlagProblem> {
        let number = (self.takes == FlagArity::Number).then(|| leading_integer(text)).flatten();
        let Some((number, rest)) = number.filter(|(_, rest)| !rest.trim().is_empty()) else {
            return Ok(());
        };
        let scale = match (rest.trim().to_ascii_lowercase().as_str(), IN_MIB.contains(&self.name())) {
            ("k", false) => 1 << 10,
            ("m", false) => 1 << 20,
            ("m" | "mb" | "mib", true) => 1,
            ("g" | "gb" | "gib", true) => 1 << 10,
            ("s" | "sec", false) => 1,
            _ => 0,
        };
        let meant = number.checked_mul(scale).filter(|&meant| meant != 0);
        let remedy = meant.map_or_else(
            || "the number in full, without a unit".to_owned(),
            |meant| format!("`{spelling} {meant}`"),
        );
        let written = format!("{spelling} {}", quoted(text));
        Err(FlagProblem::ReadPart { written, number, remedy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{FLAGS, by_argument};

    fn refusal(spelling: &str, text: &str) -> Option<String> {
        let found = by_argument(spelling).unwrap();
        found.flag.whole_number(spelling, text).err().map(|problem| problem.to_string())
    }

    #[test]
    fn a_number_with_a_unit_is_refused_with_what_was_meant() {
        for (flag, text, reported) in [
            ("-c", "64k", "`-c 64k`: llama-server reads this as 64; write `-c 65536`"),
            ("--ctx-size", "8K", "`--ctx-size 8K`: llama-server reads this as 8; write `--ctx-size 8192`"),
            ("-n", "1m", "`-n 1m`: llama-server reads this as 1; write `-n 1048576`"),
            ("-cram", "8GiB", "`-cram 8GiB`: llama-server reads this as 8; write `-cram 8192`"),
            ("-cram", "512 MB", "`-cram 512 MB`: llama-server reads this as 512; write `-cram 512`"),
            (
                "-ngl",
                "33.5",
                "`-ngl 33.5`: llama-server reads this as 33; write the number in full, without a unit",
            ),
            (
                "-c",
                "9999999k",
                "`-c 9999999k`: llama-server reads this as 9999999; write the number in full, without a unit",
            ),
            ("-to", "30s", "`-to 30s`: llama-server reads this as 30; write `-to 30`"),
            ("-c", "-1k", "`-c -1k`: llama-server reads this as -1; write `-c -1024`"),
            (
                "-c",
                "1,024",
                "`-c 1,024`: llama-server reads this as 1; write the number in full, without a unit",
            ),
        ] {
            assert_eq!(refusal(flag, text).as_deref(), Some(reported));
        }
    }

    #[test]
    fn every_integer_flag_refuses_a_unit_and_takes_a_number() {
        let numbers = FLAGS.iter().filter(|flag| flag.takes == FlagArity::Number);
        let mut count = 0;
        for flag in numbers {
            for name in &flag.names {
                assert!(flag.whole_number(name, "64k").is_err(), "{name}");
                for text in ["64", " 64 ", "-1", "+3", "auto", "all", "", "k", "99999999999k"] {
                    assert_eq!(flag.whole_number(name, text), Ok(()), "{name} {text}");
                }
                count += 1;
            }
        }
        assert!(count > 60, "{count}");
        // Other values are texts: a model may be called `64k`.
        assert_eq!(refusal("-m", "64k"), None);
        assert_eq!(refusal("--temp", "0.7"), None);
    }

    #[test]
    fn a_hostile_value_is_shortened() {
        let reported = refusal("-c", &format!("1{}", "k".repeat(1 << 20))).unwrap();
        assert!(reported.len() < 400, "{}", reported.len());
    }
}
