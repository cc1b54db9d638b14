//! Starts an engine process, with its command line, environment and cards.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plimsoll_base::{Backends, Bytes, Card, End, Reason};
use plimsoll_config::{ConfiguredModel, Launch, ProxyAddress};
use plimsoll_engine::program::EngineError;
use plimsoll_engine::{
    Child, ChildEvent, ChildSpec, EngineAddress, Readiness, StopWay, child_environment, free_port, program,
    random_key, show_to_vulkan,
};
use plimsoll_process::confinement::{Confinement, EngineUser};
use plimsoll_process::{Environment, find_program};
use plimsoll_wire::env::GUARD_PAGES;
use rustix::process::getuid;
use tokio::sync::mpsc;

use super::Runtime;
use super::host_bound::host_bound;
use super::model_files;
use super::private_folder::{PrivateFolder, hand_over};
use super::run::EngineRun;
use super::slots::RunSlots;
use super::survey::host_cache::limit_prompt_cache;
use super::survey::{FoundProgram, engine_cards};
use plimsoll_task::{NoAnswer, spawn_blocking};

mod cards;

/// Everything needed to start one run.
pub(super) struct Starter<'a> {
    pub(super) runtime: &'a Rc<Runtime>,
    pub(super) run: &'a Rc<EngineRun>,
    /// The address of an attempt before could not be bound.
    pub(super) only_port: Cell<bool>,
}

/// A started engine.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) events: mpsc::Receiver<ChildEvent>,
    pub(super) key: Option<String>,
    /// Kept until the engine has ended.
    pub(super) folder: Option<PrivateFolder>,
    /// The program, if it is a llama-server that nothing stands before.
    pub(super) program: Option<PathBuf>,
    pub(super) slots: Option<Rc<RunSlots>>,
}

/// An engine that was looked up.
struct FoundEngine {
    /// The words that its command line begins with.
    engine: Vec<String>,
    /// Its file; `None` for a `cmd` and for a program with leading arguments.
    program: Option<PathBuf>,
    backends: Backends,
    /// The file that its command line starts, also that of a `cmd`.
    path: Option<PathBuf>,
    /// The same, but `None` for a shell script too.
    private_program: Option<PathBuf>,
    takes_socket: bool,
    /// Size of the files from which it reads weights.
    files: Bytes,
}

/// Reasons why an engine is not found.
#[derive(Debug, thiserror::Error)]
enum FindError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// An engine's own resources.
struct Privacy {
    program: Option<PathBuf>,
    folder: Option<PrivateFolder>,
    /// It can listen on a socket in its folder.
    socket: bool,
    /// Vulkan's numbers of its cards, where it computes with Vulkan alone.
    vulkan: Vec<usize>,
}

impl Starter<'_> {
    /// Starts the process; the reason names what is missing.
    pub(super) async fn start(&self) -> Result<Started, End> {
        let entry = &self.run.entry;
        let fail = |error: &dyn std::error::Error, lasts| End::Unstartable {
            reason: unstartable(&entry.name, error),
            lasts,
        };
        let found = self.find().await;
        let found = found.map_err(|error| fail(&error, matches!(error, FindError::Engine(_))))?;
        self.run.file_bytes.set(found.files);
        let vulkan = self.vulkan(&found).await;
        let vulkan = vulkan.map_err(|reason| End::Unstartable { reason, lasts: true })?;
        let engine = found.engine;
        let privacy = Privacy { vulkan, ..self.private(found.private_program, found.takes_socket) };
        let slots = self.slots(privacy.program.clone()).await;
        let spec = self.spec(&engine, &privacy, slots.as_deref());
        // A port, a random key, or the files of another user: none of them is the model's own.
        let (spec, key) = spec.map_err(|reason| End::Unstartable { reason, lasts: false })?;
        self.is_free().await.map_err(|reason| End::Unstartable { reason, lasts: false })?;
        let spawned = spec.start(&self.runtime.engines.launcher, self.run.log.clone()).await;
        let (child, events) = spawned.map_err(|error| fail(&error, error.lasts()))?;
        let Privacy { program, folder, .. } = privacy;
        Ok(Started { child, events, key, folder, program, slots })
    }

    async fn slots(&self, program: Option<PathBuf>) -> Option<Rc<RunSlots>> {
        let circumstances = (self.runtime.settings.inherited.as_slice(), self.lowered_context());
        self.runtime.files.slots.of_run(self.run.model, &self.run.entry, program, circumstances).await
    }

    /// Looks up the engine, and what it can have of its own.
    ///
    /// DECISION: a shell script, a program with leading arguments and a `cmd` may start a container, which
    /// needs set-user-ID programs and does not see the folder. They are confined only where the user asks for
    /// it with `engine-user`.
    async fn find(&self) -> Result<FoundEngine, FindError> {
        let settings = &self.runtime.settings;
        let (model, configured) = (ConfiguredModel::clone(&self.run.entry), settings.engine.clone());
        let (inherited, cards) = (settings.inherited.clone(), settings.cards().cloned().collect::<Vec<_>>());
        // A folder of the search path may lie on a disk that hangs. A new program is run for its help, and a
        // GPU build takes a second to load its libraries. All in one, because a swap of models waits for each
        // change of threads.
        let found = spawn_blocking(move || {
            let engine = engine_command(&model, configured.as_deref())?;
            let program = single_program(&model, &engine);
            let private_program = program.clone().filter(|program| !program::is_shell_script(program));
            let path = FoundProgram::of(&model, configured.as_deref()).ok().map(|found| found.path);
            Ok(FoundEngine {
                backends: engine_cards::backends(&model, path.as_deref(), &inherited, &cards),
                path,
                takes_socket: private_program.as_deref().is_some_and(program::takes_socket),
                private_program,
                engine,
                program,
                files: model_files::size_of_entry(&model),
            })
        });
        found.await?
    }

    fn private(&self, program: Option<PathBuf>, takes_socket: bool) -> Privacy {
        let user = self.runtime.settings.engine_user.as_ref();
        let is_wanted = program.is_some() || user.is_some();
        let folder = is_wanted.then(|| self.runtime.engines.private_folder(user)).flatten();
        let unusable = |program: &PathBuf| self.runtime.engines.only_ports.borrow().contains(program);
        let socket = takes_socket
            && !self.runtime.settings.serve.engine_ports
            && !self.only_port.get()
            && !program.as_ref().is_some_and(unusable);
        Privacy { program, folder, socket, vulkan: Vec::new() }
    }

    fn spec(
        &self,
        engine: &[String],
        privacy: &Privacy,
        slots: Option<&RunSlots>,
    ) -> Result<(ChildSpec, Option<String>), Reason> {
        let entry = &self.run.entry;
        let fail = |error: &dyn std::error::Error| unstartable(&entry.name, error);
        let port = free_port(&self.runtime.state.promised_ports()).map_err(|error| fail(&error))?;
        self.run.port.set(Some(port));
        let user = self.runtime.settings.engine_user.clone();
        let folder = privacy.folder.as_ref().map(PrivateFolder::path);
        let address = self.address(port, folder.filter(|_| privacy.socket));
        let socket = match &address {
            EngineAddress::Socket { path, .. } => path.to_str(),
            EngineAddress::Port(_) | EngineAddress::Remote(_) => None,
        };
        let key = takes_key(entry).then(random_key).transpose().map_err(|error| fail(&error))?;
        let mut line = command_line(entry, engine, port, socket);
        if let Some(context) = self.lowered_context() {
            // llama-server takes the last of several values.
            line.extend(["--ctx-size".to_owned(), context.to_string()]);
        }
        line.extend(slots.iter().flat_map(|slots| slots.flags()));
        let mut environment = self.environment(port, key.as_deref());
        if let Launch::LlamaServer { options, .. } = &entry.launch {
            let cards: Vec<Card> = self.runtime.settings.cards().cloned().collect();
            limit_prompt_cache(options, &cards, &mut environment);
        }
        if !privacy.vulkan.is_empty() {
            show_to_vulkan(&mut environment, &privacy.vulkan);
        }
        self.renumber(&mut line, &mut environment);
        for extension in &self.runtime.extensions {
            extension.prepare(self.run, &self.cards(), &mut environment);
        }
        // Unguarded, it would take more of its cards than its claim.
        if !self.run.overflow().is_empty() && environment.get(GUARD_PAGES).is_none() {
            let cause = "`spill` needs guard, which could not be prepared for the engine; the log says why";
            return Err(unstartable_because(&entry.name, Reason::new("spill_unguarded", cause)));
        }
        if let Some(user) = &user {
            become_home_of(user, &mut environment).map_err(|error| fail(&error))?;
        }
        self.run.arguments.replace(line.clone());
        let mut words = line.into_iter().map(OsString::from);
        let spec = ChildSpec {
            name: entry.name.clone(),
            program: PathBuf::from(words.next().unwrap_or_default()),
            arguments: words.collect(),
            environment,
            directory: None,
            address,
            readiness: readiness(&entry.launch),
            stop: stop_way(&entry.launch),
            confinement: Confinement {
                no_new_privileges: user.is_some() || privacy.program.is_some(),
                folder: folder.map(PathBuf::from),
                user,
                host_memory: host_bound(
                    &self.runtime.settings,
                    self.run.placement(),
                    self.run.file_bytes.get(),
                ),
            },
            gives_up: plimsoll_doctor::gives_up,
        };
        Ok((spec, key))
    }

    /// A socket in `folder`, else the port.
    fn address(&self, port: u16, folder: Option<&Path>) -> EngineAddress {
        let user = &self.runtime.settings.engine_user;
        let uid = user.as_ref().map_or(getuid().as_raw(), |user| user.uid);
        let socket = folder.and_then(|folder| EngineAddress::in_folder(folder, uid));
        socket.unwrap_or_else(|| match self.run.entry.launch.address(port) {
            Ok(ProxyAddress::Loopback(address) | ProxyAddress::Elsewhere(address)) => {
                EngineAddress::Remote(address)
            }
            Ok(ProxyAddress::Port(port)) => EngineAddress::Port(port),
            // No model with another address is served.
            Err(_) => EngineAddress::Port(port),
        })
    }

    fn lowered_context(&self) -> Option<u64> {
        self.run.entry.launch.options()?;
        self.runtime.state.statuses.with(self.run.model, |status| status.lowered)
    }

    fn environment(&self, port: u16, key: Option<&str>) -> Environment {
        let entry = &self.run.entry;
        // Only llama-server knows the control channel; other programs would ignore the variable.
        let control_port = entry.launch.is_own_llama_server().then_some(port);
        child_environment(
            self.runtime.settings.inherited.clone(),
            &self.own_variables(port),
            &self.visible(),
            control_port,
            key,
        )
    }
}

/// Sets the variables that name a program's user, and gives the user the folder of guard's pages.
fn become_home_of(user: &EngineUser, environment: &mut Environment) -> std::io::Result<()> {
    let of_daemon: Vec<OsString> = environment.iter().map(|(name, _)| name.to_owned()).collect();
    for name in of_daemon.iter().filter_map(|name| name.to_str()) {
        // The folders of the daemon's own user are closed to this one.
        if name.starts_with("XDG_") {
            environment.remove(name);
        }
    }
    environment.set("HOME", &user.home);
    environment.set("USER", &user.name);
    environment.set("LOGNAME", &user.name);
    match environment.get(GUARD_PAGES) {
        Some(pages) => hand_over(user, Path::new(pages)),
        None => Ok(()),
    }
}

/// The program for a model that gives only flags: its own, the configured one, or the installed one. The
/// latter two are also for a command that begins with `llama-server` where the search path has none.
pub(crate) fn engine_command(
    entry: &ConfiguredModel,
    configured: Option<&[String]>,
) -> Result<Vec<String>, EngineError> {
    let is_command = matches!(entry.launch, Launch::Command { .. });
    let needs_one = entry.launch.names_no_engine() && !(is_command && program::on_search_path().is_some());
    if !needs_one {
        // The command line begins with a program of its own.
        return Ok(Vec::new());
    }
    let (program, arguments) = match configured {
        // The configured engine may be a wrapper with leading arguments.
        Some([program, arguments @ ..]) => (Some(program.as_ref()), arguments),
        _ => (None, [].as_slice()),
    };
    let found = program::find(program)?;
    let mut command = vec![found.path.to_string_lossy().into_owned()];
    command.extend_from_slice(arguments);
    Ok(command)
}

/// The command line of a model, with the engine that [`engine_command`] gives for it.
pub(crate) fn command_line(
    entry: &ConfiguredModel,
    engine: &[String],
    port: u16,
    socket: Option<&str>,
) -> Vec<String> {
    let mut line = entry.launch.command_line(engine, &entry.name, port, socket);
    if matches!(entry.launch, Launch::Command { .. }) && !engine.is_empty() {
        line.splice(..1, engine.iter().cloned());
    }
    line
}

/// The engine's program file; `None` for a `cmd` and for a program with leading arguments.
pub(crate) fn single_program(entry: &ConfiguredModel, engine: &[String]) -> Option<PathBuf> {
    let Launch::LlamaServer { program, .. } = &entry.launch else {
        return None;
    };
    let [word] = program.as_deref().unwrap_or(engine) else {
        return None;
    };
    find_program(word.as_ref(), None, std::env::var_os("PATH").as_deref()).ok()
}

/// True if the engine is given a key: llama-server reads it from its environment, unless its command line
/// names one.
fn takes_key(entry: &ConfiguredModel) -> bool {
    entry
        .launch
        .options()
        .is_some_and(|options| !options.to_argv().iter().any(|word| word.starts_with("--api-key")))
}

fn readiness(launch: &Launch) -> Readiness {
    match (launch.options(), launch.check()) {
        (Some(_), _) => Readiness::Control,
        (None, Some(path)) => Readiness::Health { path: path.to_owned() },
        (None, None) => Readiness::Immediate,
    }
}

fn stop_way(launch: &Launch) -> StopWay {
    match launch {
        Launch::Command { stop: Some(line), .. } => StopWay::Command(line.clone()),
        // The control channel lets llama-server finish its requests; SIGTERM would cut them.
        _ if launch.options().is_some() => StopWay::ExitCommand,
        _ => StopWay::Terminate,
    }
}

/// Reason for a run that could not be started, with the error.
pub(crate) fn unstartable(model: &str, error: &dyn std::error::Error) -> Reason {
    unstartable_because(model, Reason::new("launch_failed", error.to_string()))
}

/// Reason for a run that could not be started, with this cause.
pub(super) fn unstartable_because(model: &str, cause: Reason) -> Reason {
    Reason::new("unstartable", format!("{model} could not be started")).because(cause)
}
