//! `plimsoll doctor`: diagnoses a log, a program, a process or the machine.
//!
//! The verdict is printed on stdout (JSON: `plimsoll.diagnosis/1`), everything else on stderr.

mod cards;
mod log;
mod machine;
mod planned;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod program;
mod several;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::Reason;
use plimsoll_cards::Sysroot;
use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};
use serde_json::Value;

use self::several::{LogAlone, LogVerdict};
#[cfg(windows)]
use self::windows::{process, program};
use crate::report::{ErrorReport, NO_VERDICT, print_as};

const MORE: &str = "\
Examples:
  plimsoll doctor server.log
  plimsoll doctor ollama.log dmesg.txt
  journalctl -u ollama | plimsoll doctor -
  plimsoll doctor -- llama-server -m model.gguf

With -- COMMAND, the program runs under guard, which only observes; the program's output passes through unchanged. Without FILE, --pid and COMMAND, this machine is examined.

Exit status: 0 if a cause is named (with several logs, for at least one), or if the machine or process was \
    examined; 3 if the log contains no known message; 2 for bad input (no such file or process); 1 if \
    plimsoll fails. With -- COMMAND, the exit status of the program, 128 and more for a signal, and 125, \
    126 and 127 as with `plimsoll run`.";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Logs of one failure, the oldest first; - is stdin. Logs that show different causes are diagnosed one
    /// by one
    #[arg(value_name = "FILE", conflicts_with_all = ["pid", "command"])]
    logs: Vec<PathBuf>,
    /// Examine a running process
    #[arg(long, conflicts_with_all = ["command", "sysroot"])]
    pid: Option<u32>,
    /// Further information about the failure: the command line, the card, memory sizes, changes that helped;
    /// repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    context: Vec<String>,
    /// Read proc/, sys/ and etc/ from this folder, a copy from another machine, instead of this machine's
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    sysroot: Option<PathBuf>,
    /// Print the verdict as JSON (plimsoll.diagnosis/1), or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Program to run and watch, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

// DECISION: all inputs are turned into evidence for the `doctor` crate, whose rules also diagnose dead
// engines under `serve`.
/// Evidence for the rules, facts to print beside the verdict, cards of a machine, and an exit status that
/// replaces the verdict's.
struct Findings {
    reader: LogReader,
    seen: Vec<Reason>,
    cards: Vec<Value>,
    status: Option<ExitCode>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    let mut findings = match arguments.pid {
        _ if !arguments.logs.is_empty() => log::read(&arguments.logs, arguments.sysroot.as_deref())?,
        Some(pid) => process::look(pid)?,
        None if !arguments.command.is_empty() => program::watch(&arguments.command)?,
        None => machine::look(&Sysroot::of(arguments.sysroot.as_deref()).map_err(ErrorReport::input)?),
    };
    for text in &arguments.context {
        findings.reader.feed(LineSource::Context, text.as_bytes());
        // The reader works on whole lines; without the line feed two texts would become one.
        findings.reader.feed(LineSource::Context, b"\n");
    }
    let mut diagnosis = diagnose(&findings.reader.finish());
    // The remedy of no cause is to run the program under guard, which was just done.
    if findings.status.is_some() && diagnosis.cause == Cause::Other && diagnosis.sub_cause.is_none() {
        diagnosis.hints.clear();
    }
    // After the rules, because a plan is only made for causes that a smaller setting can fix.
    planned::add(&mut diagnosis, &arguments.command);
    let verdict = LogVerdict::of(diagnosis, log::each(&arguments.logs)?);
    let failed = findings.status.is_some_and(|status| status != ExitCode::SUCCESS);
    let json = shown_as_json(&verdict, &findings.seen, &findings.cards)?;
    print_as(arguments.json.as_deref(), &json, || {
        let words = in_words(&verdict.diagnosis, &findings.seen, failed, arguments.pid.is_some());
        let of_log = if verdict.differ { LogAlone::in_full } else { LogAlone::in_short };
        verdict.alone.iter().fold(words, |words, log| words + &of_log(log))
    })?;
    // A machine, a process or a program without a finding is a valid answer; a log without one is status 3.
    let named = verdict.is_named() || arguments.logs.is_empty();
    let status = if named { ExitCode::SUCCESS } else { ExitCode::from(NO_VERDICT) };
    // `doctor -- COMMAND` stands in for the command in scripts, so its status wins over the verdict's.
    Ok(findings.status.unwrap_or(status))
}

/// The verdict is the end of a process, which one that is alive has not met: a line about a child of it. Nor
/// has a healthy process failed for a reason other than memory.
fn is_of_an_end(diagnosis: &Diagnosis) -> bool {
    diagnosis.cause == Cause::NotOom
        || matches!(
            diagnosis.sub_cause,
            Some(SubCause::Killed | SubCause::HostKilled | SubCause::GroupLimit | SubCause::NotStarted)
        )
}

fn shown_as_json(verdict: &LogVerdict, seen: &[Reason], cards: &[Value]) -> Result<Value, ErrorReport> {
    let mut json = serde_json::to_value(&verdict.diagnosis)?;
    if let (Value::Object(fields), false) = (&mut json, seen.is_empty()) {
        // Left out when empty, so that the JSON of a log is the same as that of `serve`.
        fields.insert("seen".to_owned(), serde_json::to_value(seen)?);
    }
    if let (Value::Object(fields), false) = (&mut json, cards.is_empty()) {
        fields.insert("cards".to_owned(), Value::from(cards));
    }
    if let (Value::Object(fields), false) = (&mut json, verdict.alone.is_empty()) {
        fields.insert("alone".to_owned(), verdict.alone.iter().map(LogAlone::in_json).collect());
    }
    Ok(json)
}

fn in_words(diagnosis: &Diagnosis, seen: &[Reason], failed: bool, is_alive: bool) -> String {
    let mut words: String = seen.iter().map(|part| format!("{part}\n")).collect();
    // The lines of a log are older than the process that writes it is alive.
    if is_alive {
        let reported = if diagnosis.confidence > 0.0 && !is_of_an_end(diagnosis) {
            format!("the log shows an earlier failure:\n{}", diagnosis.reason)
        } else {
            "no failure of this process is known".to_owned()
        };
        return words + "the process is running; " + &reported + "\n";
    }
    // A healthy machine, or a program that succeeded, needs no verdict.
    if diagnosis.confidence > 0.0 || seen.is_empty() || failed {
        words += &format!("{}\n", diagnosis.reason);
        words.extend(diagnosis.hints.iter().map(|hint| format!("hint: {hint}\n")));
    }
    words
}
