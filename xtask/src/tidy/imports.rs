//! Who may import whom. Crate edges are cargo's business; these are the edges inside crates, and the acts
//! that a crate has sworn off.

use super::{Finding, Severity, Source};

/// In `files`, `words` must not occur outside tests.
struct Rule {
    files: &'static str,
    except: &'static [&'static str],
    words: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        files: "crates/core/src/",
        except: &[],
        words: &[
            "std::fs",
            "std::env",
            "std::net::Tcp",
            "std::net::Udp",
            "std::net::ToSocketAddrs",
            "std::process",
            "std::thread",
            "std::time::Instant",
            "std::time::SystemTime",
            "std::io",
            "println!",
            "eprintln!",
            "unsafe ",
        ],
        why: "core decides and never acts: callers pass bytes, time and environment",
    },
    Rule {
        files: "crates/pool/src/",
        except: &[],
        words: &[
            "std::fs",
            "std::env",
            "std::net",
            "std::process",
            "std::time",
            "unsafe ",
        ],
        why: "pool is pure offset logic",
    },
    Rule {
        files: "crates/core/src/model",
        except: &[],
        words: &["crate::flags", "crate::plan", "crate::place", "crate::admit"],
        why: "model comes first in the way of the data",
    },
    Rule {
        files: "crates/core/src/flags",
        except: &[],
        words: &["crate::plan", "crate::place", "crate::admit"],
        why: "flags come before plan",
    },
    Rule {
        files: "crates/core/src/plan",
        except: &[],
        words: &["crate::admit", "crate::place::Ledger", "crate::place::ledger"],
        why: "plan knows cards, not who else is on them",
    },
    Rule {
        files: "crates/core/src/place",
        except: &[],
        words: &["crate::admit"],
        why: "place does not know the scheduler",
    },
    Rule {
        files: "crates/core/src/machine",
        except: &[],
        words: &[
            "crate::model",
            "crate::flags",
            "crate::plan",
            "crate::place",
            "crate::admit",
            "crate::diagnose",
        ],
        why: "machine knows what a kernel says and nothing of models; diagnose may ask it",
    },
    Rule {
        files: "crates/core/src/trend",
        except: &[],
        words: &[
            "crate::model",
            "crate::plan",
            "crate::admit",
            "crate::machine",
            "crate::diagnose",
            "crate::record",
        ],
        why: "trend knows numbers and nothing of where they come from",
    },
    Rule {
        files: "crates/core/src/explain",
        except: &[],
        words: &[
            "crate::model",
            "crate::flags",
            "crate::plan",
            "crate::place",
            "crate::admit",
            "crate::machine",
        ],
        why: "explain imports only plain values",
    },
    Rule {
        files: "crates/plimsoll/src/",
        except: &["crates/plimsoll/src/main.rs", "crates/plimsoll/src/command"],
        words: &["crate::command"],
        why: "nobody imports a command",
    },
    Rule {
        files: "crates/plimsoll/src/route",
        except: &[],
        words: &["crate::probe", "crate::screen"],
        why: "route never looks at the machine itself",
    },
    Rule {
        files: "crates/plimsoll/src/load",
        except: &[],
        words: &["crate::route", "crate::owner", "crate::screen"],
        why: "load knows a server from outside only",
    },
    Rule {
        files: "crates/plimsoll/src/launch",
        except: &[],
        words: &["crate::route", "crate::screen"],
        why: "launch does not know who asks",
    },
    Rule {
        files: "crates/guard/src/",
        except: &[],
        words: &[
            "std::",
            "plimsoll_core",
            "thread_local!",
            "println!",
            "libloading",
        ],
        why: "guard lives in foreign processes: core, alloc, libc, nostd, wire and pool are all it has",
    },
    Rule {
        files: "crates/guard/src/driver",
        except: &["crates/guard/src/driver_guard.rs"],
        words: &[
            "crate::state",
            "crate::trace",
            "crate::policy",
            "crate::account",
            "crate::spill",
            "crate::ladder",
            "crate::ggml",
            "crate::graphs",
            "crate::contexts",
            "crate::arm",
            "crate::hooks",
            "crate::interpose",
        ],
        why: "guard's floors: the driver's functions know nothing of guard",
    },
    Rule {
        files: "crates/guard/src/state",
        except: &[],
        words: &[
            "crate::trace",
            "crate::policy",
            "crate::account",
            "crate::spill",
            "crate::ladder",
            "crate::ggml",
            "crate::graphs",
            "crate::contexts",
            "crate::arm",
            "crate::hooks",
            "crate::interpose",
        ],
        why: "guard's floors: state is data",
    },
    Rule {
        files: "crates/guard/src/policy",
        except: &[],
        words: &[
            "crate::trace",
            "crate::account",
            "crate::spill",
            "crate::ladder",
            "crate::ggml",
            "crate::graphs",
            "crate::contexts",
            "crate::arm",
            "crate::hooks",
            "crate::interpose",
            "crate::settings",
            "libc::",
        ],
        why: "guard's floors: policy is arithmetic",
    },
    Rule {
        files: "crates/guard/src/account",
        except: &[],
        words: &[
            "crate::spill",
            "crate::ladder",
            "crate::ggml",
            "crate::graphs",
            "crate::contexts",
            "crate::arm",
            "crate::hooks",
            "crate::interpose",
        ],
        why: "guard's floors: accounts stand below the actions",
    },
    Rule {
        files: "crates/guard/src/spill",
        except: &[],
        words: &[
            "crate::ladder",
            "crate::ggml",
            "crate::graphs",
            "crate::contexts",
            "crate::arm",
            "crate::hooks",
            "crate::interpose",
        ],
        why: "guard's floors: the ladder calls spill",
    },
    Rule {
        files: "crates/guard/src/ladder",
        except: &[],
        words: &[
            "crate::ggml",
            "crate::graphs",
            "crate::contexts",
            "crate::arm",
            "crate::hooks",
            "crate::interpose",
        ],
        why: "guard's floors: ggml enters its trim in ladder::reuse",
    },
    Rule {
        files: "crates/phantom/src/",
        except: &[],
        words: &[
            "std::",
            "plimsoll_core",
            "thread_local!",
            "println!",
            "libloading",
        ],
        why: "phantom lives in an engine's process: core, alloc, libc, nostd, wire and pool are all it has",
    },
    Rule {
        files: "crates/plimsoll/src/",
        except: &[],
        words: &["unsafe "],
        why: "unsafe lives in guard, phantom and nostd, and in doubles that pretend to be C libraries",
    },
];

/// True if `line` contains `word`, not as the end of a longer name: `plimsoll_nostd::` is not `std::`.
fn names(line: &str, word: &str) -> bool {
    let longer = |before: &str| before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| !longer(&line[..at]))
}

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let path = source.path.to_string_lossy();
        for rule in RULES {
            let covered = path.starts_with(rule.files)
                && !rule.except.iter().any(|except| path.starts_with(except))
                && !path.ends_with("tests.rs");
            if covered {
                findings.extend(offences(source, rule));
            }
        }
    }
    findings
}

fn offences<'a>(source: &'a Source, rule: &'a Rule) -> impl Iterator<Item = Finding> + 'a {
    let code = source
        .text
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .enumerate();
    code.filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter_map(|(number, line)| {
            let word = rule.words.iter().find(|word| names(line, word))?;
            Some(Finding {
                file: source.path.clone(),
                line: number + 1,
                rule: format!("`{}` is not allowed here: {}", word.trim(), rule.why),
                severity: Severity::Error,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&[Source {
            path: path.into(),
            text: text.into(),
        }])
        .len()
    }

    #[test]
    fn core_may_not_act_but_its_tests_may() {
        assert_eq!(findings("crates/core/src/plan/kv.rs", "use std::fs;\n"), 1);
        assert_eq!(
            findings("crates/core/src/plan/kv.rs", "// std::fs is not used\n"),
            0
        );
        assert_eq!(
            findings(
                "crates/core/src/plan/kv.rs",
                "#[cfg(test)]\nmod tests { use std::fs; }\n"
            ),
            0
        );
    }

    #[test]
    fn a_word_is_not_the_end_of_a_longer_name() {
        let guard = "crates/guard/src/trace.rs";
        assert_eq!(findings(guard, "use plimsoll_nostd::lock::Lock;\n"), 0);
        assert_eq!(findings(guard, "use std::fs;\n"), 1);
        assert_eq!(
            findings(
                guard,
                "fn f(lock: plimsoll_nostd::lock::Lock<std::fs::File>) {}\n"
            ),
            1
        );
    }

    #[test]
    fn data_flows_one_way() {
        assert_eq!(
            findings("crates/core/src/model/gguf.rs", "use crate::plan::Plan;\n"),
            1
        );
        assert_eq!(
            findings("crates/core/src/plan/kv.rs", "use crate::model::Model;\n"),
            0
        );
        assert_eq!(
            findings(
                "crates/plimsoll/src/command/serve.rs",
                "use crate::command::plan;\n"
            ),
            0
        );
        assert_eq!(
            findings("crates/plimsoll/src/route/api.rs", "use crate::command::plan;\n"),
            1
        );
    }
}
