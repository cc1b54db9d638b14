//! Finds product code that opens files without the crate `file`, or starts programs by their bare names, for
//! `cargo xtask tidy`.

use super::Finding;
use crate::source::Source;

/// Calls that wait for the writer of a FIFO, and read without a bound.
const OPENS: &[&str] = &["File::open(", "fs::read(", "fs::read_to_string("];
const OPENS_WHY: &str =
    "a path from elsewhere may name a FIFO or a device; use plimsoll_file, or a path of the kernel's";
/// A program by its bare name is looked up on PATH, and starts in the caller's folder.
const STARTS: &str = "Command::new(\"";
const STARTS_WHY: &str = "it may be found in the caller's folder; use plimsoll_process::own_command::own_command, or an absolute path";

/// Beginnings of the kernel's own files.
const OF_KERNEL: &[&str] = &["\"/proc", "\"/sys", "\"/dev/tty\""];

/// Files whose paths are fixed elsewhere: the kernel's, the system's, or of a build.
const FIXED: &[&str] = &[
    "crates/cards/src/linux.rs",
    // A log may be a pipe, which its reader waits for.
    "crates/cli/src/command/doctor/log.rs",
    "crates/measure/src/watch/machine.rs",
    "crates/probe/src/contexts.rs",
    "crates/process/src/cgroup.rs",
    "crates/process/src/kernel_text.rs",
    "crates/reclaim/src/levers/huge_pages.rs",
    "crates/member/src/start.rs",
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().filter(|source| is_product(source)).flat_map(found).collect()
}

fn is_product(source: &Source) -> bool {
    let path = source.path.to_string_lossy();
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    path.starts_with("crates/") && path.contains("/src/") && !is_test
}

fn found(source: &Source) -> impl Iterator<Item = Finding> {
    let is_fixed = FIXED.iter().any(|path| source.path.to_string_lossy() == **path);
    let code = source.text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let code = code.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.filter_map(move |(number, line)| {
        let opens = OPENS.iter().find(|call| has(line, call)).filter(|_| !is_fixed && !is_of_kernel(line));
        let rule = match opens {
            Some(call) => format!("`{call}`: {OPENS_WHY}"),
            None if has(line, STARTS) && !line.contains("Command::new(\"/") && !line.contains("clap::") => {
                format!("`{STARTS}`: {STARTS_WHY}")
            }
            None => return None,
        };
        Some(Finding { file: source.path.clone(), line: number + 1, rule })
    })
}

/// The call as such, and not the end of a longer name (`RereadFile::open(`).
fn has(line: &str, call: &str) -> bool {
    line.match_indices(call)
        .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

fn is_of_kernel(line: &str) -> bool {
    OF_KERNEL.iter().any(|start| line.contains(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> usize {
        check(&[Source { path: path.into(), text: text.to_owned() }]).len()
    }

    #[test]
    fn files_are_opened_by_one_crate_and_programs_never_by_a_bare_name() {
        let path = "crates/serve/src/a.rs";
        for line in
            ["File::open(path)", "std::fs::read(&path)", "fs::read_to_string(x)", "Command::new(\"python3\")"]
        {
            assert_eq!(rules(path, line), 1, "{line}");
            assert_eq!(rules("crates/serve/tests/a.rs", line) + rules("xtask/src/a.rs", line), 0);
            assert_eq!(rules(path, &format!("// {line}\n#[cfg(test)]\nmod tests {{ {line} }}")), 0);
        }
        for line in [
            "fs::read_to_string(\"/proc/self/status\")",
            "RereadFile::open(path)",
            "Command::new(\"/bin/sh\")",
            "clap::Command::new(\"plan\")",
            "Command::new(program)",
        ] {
            assert_eq!(rules(path, line), 0, "{line}");
        }
        assert_eq!(rules("crates/process/src/kernel_text.rs", "File::open(path)"), 0);
    }
}
