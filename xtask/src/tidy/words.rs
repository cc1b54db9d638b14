//! Words that must not occur in the repository, because they describe how the work was organised and not the
//! product.

use regex_lite::Regex;

use super::{Finding, Severity, Source};

struct Rule {
    /// A part of every match in lower case. Most lines lack it, and a look for it costs far less than the pattern.
    part: &'static str,
    pattern: &'static str,
    advice: &'static str,
    /// Subjects whose own noun it is: files whose path or text names one of them may use the word.
    nouns_of: &'static [&'static str],
}

const MACHINE: &str = "say on which machine and when it was measured, not how the machine was come by";

const RULES: &[Rule] = &[
    Rule {
        part: concat!("must", " show"),
        pattern: r"(?i)\bmust show\b",
        advice: "a task's words; say what the program does or a test checks",
        nouns_of: &[],
    },
    Rule { part: "lease", pattern: r"(?i)\bleases?\b", advice: MACHINE, nouns_of: &["etcd", "fleet"] },
    Rule {
        part: "lent ",
        pattern: r"(?i)\blent (gpu|card|machine|board|host)s?\b",
        advice: MACHINE,
        nouns_of: &[],
    },
    Rule {
        part: " lent",
        pattern: r"(?i)\b(gpu|card|machine|board|host)s? (that )?((is|are|was|were) )?lent\b",
        advice: MACHINE,
        nouns_of: &[],
    },
    // A PTY, a login and HTTP have sessions; work on the repository has none.
    Rule {
        part: " session",
        pattern: r"(?i)\b(in|of|by|during|from|for) this session\b|\b(an earlier|the next|the last|the previous) session\b",
        advice: "say the date or the commit",
        nouns_of: &[],
    },
];

pub(super) fn check<'a>(texts: impl Iterator<Item = &'a Source>) -> Vec<Finding> {
    let rules: Vec<(Regex, &Rule)> = RULES
        .iter()
        .map(|rule| (Regex::new(rule.pattern).expect("a test compiles them all"), rule))
        .collect();
    texts.flat_map(|text| offences(text, &rules)).collect()
}

fn offences(text: &Source, rules: &[(Regex, &Rule)]) -> Vec<Finding> {
    let mut found = Vec::new();
    let rules: Vec<_> = rules.iter().filter(|(_, rule)| !is_about(text, rule.nouns_of)).collect();
    for (number, line) in text.text.lines().enumerate() {
        let lower = line.to_ascii_lowercase();
        for (pattern, rule) in rules.iter().filter(|(_, rule)| lower.contains(rule.part)) {
            if let Some(word) = pattern.find(line) {
                found.push(Finding {
                    file: text.path.clone(),
                    line: number + 1,
                    rule: format!("`{}`: {}", word.as_str(), rule.advice),
                    severity: SEVERITY,
                });
            }
        }
    }
    found
}

fn is_about(text: &Source, subjects: &[&str]) -> bool {
    let path = text.path.to_string_lossy();
    subjects.iter().any(|subject| path.contains(subject) || text.text.contains(subject))
}

const SEVERITY: Severity = Severity::Warning;

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(line: &str) -> usize {
        let text = Source { path: "README.md".into(), text: line.to_owned() };
        check([&text].into_iter()).len()
    }

    // The words stand apart here, so that this file passes its own check.
    #[test]
    fn words_of_the_work_are_found() {
        for line in [
            concat!("a Lea", "se is dear"),
            concat!("what it mu", "st show"),
            concat!("on a le", "nt card"),
            concat!("the machines that are le", "nt"),
            concat!("measured in th", "is session"),
        ] {
            assert_eq!(rules(line), 1, "{line}");
        }
    }

    #[test]
    fn words_of_the_field_are_not() {
        for line in [
            "released, please",
            "bytes lent at once; the device is lent to the pool",
            "the HTTP session and setsid: a new session",
            "previous session of the program",
            "a lease of etcd ends with its host",
        ] {
            assert_eq!(rules(line), 0, "{line}");
        }
    }
}
