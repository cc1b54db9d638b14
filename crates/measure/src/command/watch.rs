//! `plimsoll measure watch`: records the memory of a program or of the whole machine. `watch show` displays a
//! recording.
//!
//! A program is started as by `plimsoll run`, and `watch` ends with its exit code or signal.

mod report;
mod show;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll_base::masked;
use plimsoll_cards::Sampler;
use plimsoll_doctor::Exit;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::guard::{PAGES, Preload, preload};
use plimsoll_probe::library::GUARD;
use plimsoll_process::Environment;
use plimsoll_process::reading::{MeasuredProcess, command_line};
use plimsoll_verb::child::{self, ChildEnd, own_failure, program};
use plimsoll_verb::report::ErrorReport;
use plimsoll_verb::terminal;
use plimsoll_verb::time as read_time;
use plimsoll_wire::options::GuardOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time;

use crate::record::Source;
use crate::watch::{Collector, Recording, WatchTarget, about};

/// Interval between checks that the watched process still exists.
const PULSE: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Recording to write; by default plimsoll.watch, or plimsoll-2.watch and so on if that exists
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Time between two samples
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = read_time)]
    every: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = read_time)]
    time: Option<Duration>,
    /// Watch this process and its descendants
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// Program to start and watch; without one, the machine is watched
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a recording: peaks, growth and messages, as text, JSON or a page with plots
    #[command(after_help = "Examples:\n\
            \x20 plimsoll measure watch show plimsoll.watch\n\
            \x20 plimsoll measure watch show plimsoll.watch --html watch.html\n\n\
            Exit status: 0, 1 if a file cannot be written, 2 if the recording cannot be read.")]
    Show(show::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, ErrorReport> {
    if let Some(Verb::Show(arguments)) = &arguments.verb {
        return show::run(arguments);
    }
    let output = arguments.output.clone().unwrap_or_else(free_name);
    let runtime = plimsoll_verb::runtime()?;
    let code = runtime.block_on(async {
        if arguments.command.is_empty() {
            attached(arguments, &output).await
        } else {
            started(arguments, &output).await
        }
    })?;
    let path = output.display();
    say(&format!("recorded to {path}; `plimsoll measure watch show {path}` shows it"));
    Ok(code)
}

/// The first name that no file has. Another program may take it meanwhile: then the recording does not begin.
fn free_name() -> PathBuf {
    let numbered = (2_u64..).map(|number| PathBuf::from(format!("plimsoll-{number}.watch")));
    let mut names = std::iter::once(PathBuf::from("plimsoll.watch")).chain(numbered);
    names.find(|name| name.symlink_metadata().is_err()).unwrap_or_default()
}

/// Watches a running process, or the machine.
async fn attached(arguments: &Arguments, output: &Path) -> Result<ExitCode, ErrorReport> {
    // Found before the recording begins; the start time guards against a reused process id.
    let process = arguments
        .pid
        .map(|pid| {
            MeasuredProcess::find(pid).ok_or_else(|| ErrorReport::new(format!("there is no process {pid}")))
        })
        .transpose()?;
    let subject = WatchTarget { root: arguments.pid, pages: None };
    let command = arguments.pid.map_or_else(Vec::new, command_line);
    let (mut collector, mut recording) = begin((arguments, output), subject, command, Vec::new()).await?;
    let end = tokio::select! {
        failed = recording.go_on(&mut collector, arguments.every) => match failed? {},
        end = ended(process, arguments.time) => end.map_err(ErrorReport::of("cannot wait for the end of the recording"))?,
    };
    recording.end(end)?;
    Ok(ExitCode::SUCCESS)
}

/// Resolves with the reason when the recording must end.
async fn ended(process: Option<MeasuredProcess>, limit: Option<Duration>) -> io::Result<&'static str> {
    // Handlers instead of the default action, so that Ctrl-C still writes the end of the record.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let over = async {
        match limit {
            Some(limit) => time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let gone = async {
        match process {
            Some(process) => {
                // A process that is not our child sends no SIGCHLD, so its existence is polled.
                while process.lives() {
                    time::sleep(PULSE).await;
                }
            }
            None => std::future::pending().await,
        }
    };
    Ok(tokio::select! {
        _ = interrupt.recv() => "stopped by hand",
        _ = terminate.recv() => "stopped by a signal",
        () = over => "the recording time is over",
        () = gone => "the process ended",
    })
}

/// Starts a program and records it to its end.
async fn started(arguments: &Arguments, output: &Path) -> Result<ExitCode, ErrorReport> {
    let (path, rest) = program(&arguments.command).map_err(own_failure)?;
    let folder = OwnedFolder::create(PAGES)
        .map_err(ErrorReport::of("cannot make a folder for guard's shared-memory files"))?;
    let (environment, notes) = guarded(&folder);
    // The collector needs the process id, and `follow` returns only at the end of the program.
    let (notify, reported) = oneshot::channel();
    let follow = child::follow(&path, (&arguments.command[0], rest), &environment, folder.path(), |pid| {
        let _ = notify.send(pid);
    });
    let watch = async {
        // The sender is dropped if the program never started; `follow` reports why.
        let Ok(pid) = reported.await else {
            return std::future::pending().await;
        };
        let subject = WatchTarget { root: Some(pid), pages: Some(folder.path().to_owned()) };
        let command = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        begin((arguments, output), subject, command, notes).await
    };
    tokio::pin!(follow, watch);
    // The program may end before the first sample; its exit status is then already known.
    let (mut collector, mut recording, mut end) = tokio::select! {
        begun = &mut watch => { let (collector, recording) = begun?; (collector, recording, None) }
        done = &mut follow => {
            let (end, _) = done?;
            let (collector, recording) = watch.await?;
            (collector, recording, Some(end))
        }
    };
    let mut failure = None;
    while end.is_none() {
        tokio::select! {
            done = &mut follow => end = Some(done?.0),
            // After a failure the recording stops, but the loop still waits for the program.
            failed = recording.go_on(&mut collector, arguments.every), if failure.is_none() => failure = failed.err(),
        }
    }
    let end = end.unwrap_or(ChildEnd::Code(0));
    if let Some(failure) = failure {
        // A recording that cannot be written must not end the user's program.
        say(&failure.to_string());
        return Ok(end.repeat());
    }
    // A last sample: the peak of a short program often lies after the previous one.
    recording.sample(&mut collector).await?;
    recording.note(Source::Process, &format!("the program {}", exit(end)))?;
    recording.end(&exit(end).to_string())?;
    Ok(end.repeat())
}

fn exit(end: ChildEnd) -> Exit {
    match end {
        ChildEnd::Code(code) => Exit::Code(i32::from(code)),
        ChildEnd::Signal(signal) => Exit::Signal(signal),
    }
}

/// Returns the environment for the program, with guard preloaded if the library is found.
fn guarded(folder: &OwnedFolder) -> (Environment, Vec<String>) {
    let mut environment: Environment = std::env::vars_os().collect();
    match GUARD.find() {
        Ok(library) => {
            let with = Preload {
                library: &library,
                options: &GuardOptions::default(),
                pages: folder.path(),
                trace: None,
            };
            preload(&mut environment, &with);
            (environment, Vec::new())
        }
        // The record is worth having without guard; the note in it says what is missing.
        Err(error) => (
            environment,
            vec![format!("the program ran without guard, so its own allocations are not recorded: {error}")],
        ),
    }
}

async fn begin(
    (arguments, output): (&Arguments, &Path),
    subject: WatchTarget,
    command: Vec<String>,
    mut notes: Vec<String>,
) -> Result<(Collector, Recording), ErrorReport> {
    let pid = subject.root;
    let collector = Collector::open(subject, Sampler::start()?, &mut notes).await;
    // The header keeps the interval, so that a reader can tell a gap from a slow interval.
    let every_ms = u64::try_from(arguments.every.as_millis()).unwrap_or(u64::MAX);
    let mut about = about(collector.cards(), every_ms);
    // Recordings are sent to others.
    (about.command, about.pid, about.notes) = (masked(&command), pid, notes);
    let recording = Recording::begin(output, &about)?;
    Ok((collector, recording))
}

/// Prints one line on stderr; a failed write is ignored.
fn say(line: &str) {
    let _ = writeln!(terminal::stderr(), "plimsoll measure watch: {line}");
}
