//! Describes an engine's process (program, arguments, cards, limits), and starts it.

use std::ffi::OsString;
use std::path::PathBuf;

use plimsoll_base::Stage;
use plimsoll_log::Log;
use plimsoll_process::confinement::Confinement;
use plimsoll_process::{Environment, LaunchError, Launcher, ProcessSpec};
use tokio::sync::mpsc;

use crate::address::EngineAddress;
use crate::child::{self, Child, ChildEvent};

/// Way in which a child reports that it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// llama-server's own router channel: state lines on stdout, commands on stdin.
    Control,
    /// The child is ready when this path answers 200.
    Health { path: String },
    /// The child counts as ready as soon as it runs.
    Immediate,
}

/// Way in which a child is requested to end. If it does not end, SIGKILL to the whole group follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopWay {
    /// The exit command of the control channel.
    ExitCommand,
    /// SIGTERM to the group, as a terminal or an init system would.
    Terminate,
    /// A command of the user; `${PID}` and `${PORT}` stand for the child's.
    Command(Vec<String>),
}

/// Everything needed to start one child.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// The model, for logs.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The whole environment; nothing else is inherited.
    pub environment: Environment,
    pub directory: Option<PathBuf>,
    pub address: EngineAddress,
    pub readiness: Readiness,
    pub stop: StopWay,
    pub confinement: Confinement,
    /// True for a line of output after which the child cannot go on, or may hang.
    pub gives_up: fn(&str, Stage) -> bool,
}

impl ChildSpec {
    /// Finds out whether the child can be started at all, before a model is evicted for it.
    pub fn check(&self) -> Result<(), LaunchError> {
        Launcher::check(&self.process())
    }

    /// Starts the child on the current runtime, which takes local tasks. Its lines go to `log`.
    pub async fn start(
        self,
        launcher: &Launcher,
        log: Log,
    ) -> Result<(Child, mpsc::Receiver<ChildEvent>), LaunchError> {
        let process = launcher.spawn(self.process()).await?;
        child::supervise(self, process, log)
    }

    fn process(&self) -> ProcessSpec {
        ProcessSpec {
            name: self.name.clone(),
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            directory: self.directory.clone(),
            // llama-server ends on end of file here, which makes it die with the daemon.
            reads_stdin: self.readiness == Readiness::Control,
            confinement: self.confinement.clone(),
        }
    }
}
