//! Reads which flags an engine lists in its own `--help`, because engines differ in the flags that they know.
//!
//! The program is run with `--help`, within the bounds of time and output of every question to an engine, and
//! the result is cached until the program's file changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::identity::{Answers, ask, remembered};

/// Flags without which a text is no help of a llama-server.
const SURE: [&str; 2] = ["--model", "--ctx-size"];
/// Length of a flag; a help with longer words is no help.
const LONGEST: usize = 64;
/// Flags of a help at most. llama-server has some 300.
const MOST: usize = 4096;

/// Whether a llama-server lists this flag; `None` without a readable help.
pub fn lists_flag(program: &Path, flag: &str) -> Option<bool> {
    static KNOWN: Answers<Option<Arc<BTreeSet<String>>>> = Mutex::new(Vec::new());
    let ask = |path: &Path| {
        let ended = ask(path, "--help")?;
        // Of a help without its beginning, a flag that is missing proves nothing.
        Ok(Some(&ended)
            .filter(|ended| ended.succeeded() && !ended.is_cut())
            .and_then(|ended| flags(&ended.stated)))
    };
    let listed = remembered(&KNOWN, program, ask).ok().flatten()?;
    Some(listed.contains(flag))
}

/// Every word that looks like a flag, also in descriptions: a flag that is named at all is not called
/// unknown.
fn flags(help: &str) -> Option<Arc<BTreeSet<String>>> {
    let is_end = |c: char| {
        c.is_whitespace() || matches!(c, ',' | '|' | '=' | '(' | ')' | '[' | ']' | '`' | '\'' | '"')
    };
    let words = help.split(is_end).map(|word| word.trim_end_matches(['.', ':', ';']));
    let flags = words.filter(|word| word.starts_with('-') && word.len() > 1 && word.len() <= LONGEST);
    let flags: BTreeSet<String> = flags.take(MOST + 1).map(str::to_owned).collect();
    let is_help = flags.len() <= MOST && SURE.iter().all(|sure| flags.contains(*sure));
    is_help.then(|| Arc::new(flags))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    const HELP: &str = "----- common params -----\n\n-h,    --help, --usage   print usage and exit\n\
        -c,    --ctx-size N      size of the prompt context\n-m,    --model FNAME     model path\n\
        --mmap, --no-mmap        whether to map the model; see also `--direct-io`.\n";

    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("llama-server");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_flag_of_the_help_is_known_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let requested = folder.path().join("asked");
        let engine =
            program(folder.path(), &format!("echo >> {}\ncat <<'END'\n{HELP}END", requested.display()));
        for known in ["-c", "--ctx-size", "--no-mmap", "--direct-io", "--usage"] {
            assert_eq!(lists_flag(&engine, known), Some(true), "{known}");
        }
        for unknown in ["--ctx-sise", "--ctx-size=5", "", "-", "params", "--ctx"] {
            assert_eq!(lists_flag(&engine, unknown), Some(false), "{unknown}");
        }
        assert_eq!(fs::read_to_string(&requested).unwrap().lines().count(), 1, "it is asked once");
    }

    #[test]
    fn an_engine_that_abuses_the_question_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for script in [
            "exit 0",
            "echo usage: something else --model FILE",
            "printf '%s' '--model --ctx-size'; exit 1",
            "printf '%s' '--model --ctx-size'; kill -9 $$",
            // More than is kept: its beginning is lost.
            "yes -- '--filler --model --ctx-size' | head -c 3000000",
            "head -c 1000000 /dev/zero | tr '\\0' '\\377'",
            "head -c 100000 /dev/urandom",
        ] {
            assert_eq!(lists_flag(&program(folder.path(), script), "--ctx-sise"), None, "{script}");
        }
        assert_eq!(lists_flag(Path::new("/nowhere/llama-server"), "-c"), None);
        // A flood of flags within the bounds of the output.
        let flood = "echo --model --ctx-size; i=0; while [ $i -lt 9000 ]; do echo --f$i; i=$((i+1)); done";
        assert_eq!(lists_flag(&program(folder.path(), flood), "--ctx-sise"), None);
    }

    #[test]
    fn a_help_that_is_only_dashes_and_controls_is_none() {
        for help in ["", "-", "--", "\u{1b}[1m--model\u{1b}[0m", &"-".repeat(100_000)] {
            assert!(flags(help).is_none(), "{help:.20}");
        }
        let long = format!("--model --ctx-size --{}", "x".repeat(LONGEST));
        assert_eq!(flags(&long).unwrap().len(), 2);
    }
}
