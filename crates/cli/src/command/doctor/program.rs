//! Diagnoses a program that `plimsoll doctor` runs, from its output and from the allocations that guard (the
//! preloaded library) refused.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use plimsoll_base::{Bytes, Reason};
use plimsoll_doctor::{LineSource, LogReader, RefusedAllocation};
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::library::GUARD;
use plimsoll_process::PLIMSOLL;
use plimsoll_verb::child;
use plimsoll_wire::page::Refusal;
use serde_json::Value;

use super::Findings;

use crate::report::ErrorReport;
use crate::terminal;

const BLOCK: usize = 1 << 16;
/// Name prefix of the report's folder, before the owner's process id.
const FOLDER: &str = "plimsoll-doctor-";
/// Upper bound of a program's own context, which guard does not count.
const CONTEXT: Bytes = Bytes::mib(700);
/// Smallest use by other processes that is reported; a desktop holds less.
const NEIGHBOUR: Bytes = Bytes::gib(1);
/// Longest report of `plimsoll run`.
const LONGEST_REPORT: Bytes = Bytes::mib(64);

pub(super) fn watch(command: &[OsString]) -> Result<Findings, ErrorReport> {
    // DECISION: the program is a child of `plimsoll run`, so signals, exit codes and guard (the preloaded
    // library) work as there. `plimsoll doctor` ignores SIGINT, because it prints the verdict after the
    // program's end.
    // A program that is not there has not ended: it is refused as `plimsoll run` refuses it.
    child::program(command).map_err(child::own_failure)?;
    let folder = OwnedFolder::create(FOLDER).map_err(ErrorReport::of("cannot run the program"))?;
    let report = folder.path().join("report.json");
    let _deaf = Deaf::to_the_terminal().map_err(ErrorReport::of("cannot run the program"))?;
    let (mut started, without_guard) = guarded(command, &report)?;
    let mut child = started
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(ErrorReport::of("cannot run the program"))?;
    let reader = listen(&mut child);
    let status = child.wait().map_err(ErrorReport::of("cannot run the program"))?;
    // The program may have put anything there.
    let report =
        plimsoll_file::read(&report, LONGEST_REPORT).ok().and_then(|text| serde_json::from_slice(&text).ok());
    // `plimsoll run` reports on each program that it started.
    let is_unreported = without_guard.is_none() && report.is_none();
    let own = [child::NOT_EXECUTABLE, child::NOT_FOUND].map(i32::from);
    let end = match (status.code(), status.signal()) {
        (Some(0), _) => "the program ended successfully".to_owned(),
        (Some(code), _) if is_unreported && own.contains(&code) => {
            "the program could not be started".to_owned()
        }
        (Some(code), _) => format!("the program ended with status {code}"),
        (None, signal) => format!("the program was killed by signal {}", signal.unwrap_or_default()),
    };
    let mut findings = found(reader, status, end, report.as_ref());
    findings.seen.extend(without_guard);
    Ok(findings)
}

/// The program under `plimsoll run`, or alone where guard is not installed, with a remark.
fn guarded(command: &[OsString], report: &Path) -> Result<(Command, Option<Reason>), ErrorReport> {
    let (program, arguments) = command.split_first().ok_or_else(|| {
        ErrorReport::new(
            "no program is given after `--`\nhint: plimsoll doctor -- llama-server -m model.gguf",
        )
    })?;
    Ok(match GUARD.find() {
        Ok(_) => {
            let mut run = Command::new(PLIMSOLL);
            run.args(["run", "--report"]).arg(report).arg("--").args(command);
            (run, None)
        }
        Err(error) => {
            let mut alone = Command::new(program);
            alone.args(arguments);
            let text = format!("the program ran without guard, which records refused allocations: {error}");
            (alone, Some(Reason::new("unguarded", text)))
        }
    })
}

/// Copies both streams and feeds the reader, until both are closed.
fn listen(child: &mut Child) -> LogReader {
    let (sender, heard) = channel::<Vec<u8>>();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut reader = LogReader::new();
    thread::scope(|scope| {
        if let Some(stdout) = stdout {
            let sender = sender.clone();
            scope.spawn(move || copy(stdout, terminal::unchanged_stdout(), &sender));
        }
        if let Some(stderr) = stderr {
            let sender = sender.clone();
            scope.spawn(move || copy(stderr, terminal::unchanged_stderr(), &sender));
        }
        // The loop below ends when the last sender is gone, that is, when both streams have closed.
        drop(sender);
        for block in heard {
            reader.feed(LineSource::Log, &without_own(block));
        }
    });
    reader
}

/// Lines of ours are no evidence: what they say of allocations the report has. They leave empty lines, so
/// that the others keep their numbers.
fn without_own(block: Vec<u8>) -> Vec<u8> {
    const OWN: [&[u8]; 2] = [b"plimsoll run: ", b"plimsoll guard: "];
    let is_own = |line: &[u8]| OWN.iter().any(|own| line.starts_with(own));
    // Most blocks have none.
    if !block.split(|&byte| byte == b'\n').any(is_own) {
        return block;
    }
    let lines = block.split_inclusive(|&byte| byte == b'\n');
    lines.flat_map(|line| if is_own(line) { b"\n" } else { line }).copied().collect()
}

/// Copies each block at once, but gives the reader whole lines, so that lines of the two streams do not mix.
fn copy(mut from: impl Read, mut to: impl Write, heard: &Sender<Vec<u8>>) {
    let mut block = vec![0; BLOCK];
    let mut line = Vec::new();
    loop {
        let length = match from.read(&mut block) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        // A closed reader ends only the copy; the diagnosis still needs the rest of the output.
        let _ = to.write_all(&block[..length]).and_then(|()| to.flush());
        line.extend_from_slice(&block[..length]);
        // Only whole lines are handed on, but each read is passed through at once: progress bars have no line
        // feed.
        let whole = memchr::memrchr(b'\n', &line).map_or(0, |at| at + 1);
        // A line longer than a block is handed on unfinished, which bounds the memory.
        if whole > 0 || line.len() > BLOCK {
            let rest = line.split_off(if whole > 0 { whole } else { line.len() });
            let _ = heard.send(std::mem::replace(&mut line, rest));
        }
    }
    line.push(b'\n');
    let _ = heard.send(line);
}

fn found(mut reader: LogReader, status: ExitStatus, end: String, report: Option<&Value>) -> Findings {
    let refused = report.and_then(last_refusal);
    if let Some(refused) = &refused {
        reader.guard(refused);
    }
    let mut seen = vec![Reason::new("end", end)];
    seen.extend(refused.as_ref().map(RefusedAllocation::reason));
    let code = status
        .code()
        // As a shell reports a signal, and as the help text promises.
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Findings {
        // A program that succeeded has handled the errors in its output.
        reader: if status.success() && refused.is_none() { LogReader::new() } else { reader },
        seen,
        cards: Vec::new(),
        status: Some(ExitCode::from(u8::try_from(code).unwrap_or(1))),
    }
}

/// The last refused allocation in the report of `plimsoll run` (plimsoll.run/1).
fn last_refusal(report: &Value) -> Option<RefusedAllocation> {
    let cards = report["cards"].as_array()?;
    cards.iter().find_map(|card| {
        let refused = card["refused"].as_array()?.last()?;
        let size = |value: &Value| value.as_u64().map(Bytes::new);
        let (allocated, free) = (size(&refused["allocated"])?, size(&refused["free"])?);
        let others = size(&card["total"])?.saturating_sub(free).saturating_sub(allocated + CONTEXT);
        Some(RefusedAllocation {
            why: match refused["reason"].as_str()? {
                "budget" => Refusal::Budget,
                "spill" => Refusal::Spill,
                "plan" => Refusal::Context,
                _ => Refusal::Driver,
            },
            card: card["name"].as_str().or_else(|| card["uuid"].as_str())?.to_owned(),
            id: None,
            requested: size(&refused["asked"])?,
            allocated,
            budget: size(&refused["budget"]),
            free,
            count: card["refusals"].as_u64()?,
            ago: Duration::ZERO,
            neighbours: if others >= NEIGHBOUR { vec![("others".to_owned(), others)] } else { Vec::new() },
            growth: None,
        })
    })
}

/// Ignores the terminal's SIGINT and SIGQUIT in this process while it exists.
struct Deaf(#[expect(dead_code, reason = "it listens while it lives")] tokio::runtime::Runtime);

impl Deaf {
    fn to_the_terminal() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        {
            let _inside = runtime.enter();
            // Tokio never removes an installed handler, and it drops a signal for which no stream exists.
            let _ = signal(SignalKind::interrupt())?;
            let _ = signal(SignalKind::quit())?;
        }
        Ok(Self(runtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_lines_are_no_evidence_and_leave_their_numbers_to_the_others() {
        for (stated, fed) in [
            ("a\nplimsoll run: out of memory\nb\n", "a\n\nb\n"),
            ("plimsoll guard: card 0: 45 MiB refused\nx", "\nx"),
            ("the plimsoll run: of it\n", "the plimsoll run: of it\n"),
            ("", ""),
        ] {
            assert_eq!(without_own(stated.as_bytes().to_vec()), fed.as_bytes(), "{stated}");
        }
    }
}
