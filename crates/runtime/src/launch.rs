//! Starts an engine process, with its command line, environment and cards.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plimsoll_base::{Bytes, Card, CardKind, End, Reason};
use plimsoll_config::{ConfiguredModel, Launch, ProxyAddress};
use plimsoll_engine::program::EngineError;
use plimsoll_engine::{
    Child, ChildEvent, ChildSpec, EngineAddress, Readiness, StopWay, Visible, child_environment, free_port,
    program, random_key, renumber, show_to_vulkan, shows_vulkan,
};
use plimsoll_log::LogSource;
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
use super::survey::named::is_on_host;
use plimsoll_task::{NoAnswer, spawn_blocking};

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
        let vulkan = self.vulkan(found.program.clone()).await;
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
        let (model, configured) =
            (ConfiguredModel::clone(&self.run.entry), self.runtime.settings.engine.clone());
        // A folder of the search path may lie on a disk that hangs. A new program is run for its help, and a
        // GPU build takes a second to load its libraries. All in one, because a swap of models waits for each
        // change of threads.
        let found = spawn_blocking(move || {
            let engine = engine_command(&model, configured.as_deref())?;
            let program = single_program(&model, &engine);
            let private_program = program.clone().filter(|program| !program::is_shell_script(program));
            Ok(FoundEngine {
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

    /// Finds out Vulkan's numbers of the run's cards; none for an engine that does not compute with Vulkan.
    async fn vulkan(&self, program: Option<PathBuf>) -> Result<Vec<usize>, Reason> {
        let (environment, cards) = (self.environment(0, None), self.cards());
        // The user has chosen, or there is no card to choose.
        if shows_vulkan(&environment) || cards.is_empty() {
            return Ok(Vec::new());
        }
        let Some(program) = program else {
            return Ok(Vec::new());
        };
        let requested = spawn_blocking(move || program::vulkan_cards(&program, &environment)).await;
        let Ok(Ok(shown)) = requested else {
            return Ok(Vec::new());
        };
        let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
        if shown.is_empty() {
            return Ok(Vec::new());
        }
        program::vulkan_numbers(&shown, &names).ok_or_else(|| {
            let why = format!(
                "the Vulkan device numbers of {} cannot be distinguished from those of other cards ({}); set \
                    GGML_VK_VISIBLE_DEVICES in the model's `env`",
                names.join(", "),
                shown.join(", ")
            );
            let cause = Reason::new("vulkan_card_unknown", why);
            unstartable_because(&self.run.entry.name, cause)
        })
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
            &entry.environment(port),
            &self.visible(),
            control_port,
            key,
        )
    }

    /// Rewrites card numbers to those of the child. Arguments that name a card which it does not get are left
    /// out and logged.
    fn renumber(&self, line: &mut Vec<String>, environment: &mut Environment) {
        // Flags of other programs are not known, so their numbers are left alone.
        let Visible::Cards(own) = self.visible() else { return };
        // A container's own flags are not the engine's.
        if !self.run.entry.launch.is_own_llama_server() {
            return;
        }
        let all = self.all_cards();
        for words in renumber(line, environment, &all, &own) {
            let note = format!(
                "the flag `{words}` was omitted, because it names a card that this model may \
                not use"
            );
            self.run.log.push(LogSource::Plimsoll, note);
        }
    }

    /// Cards by UUID if they have one; none for a run on the host; those of the daemon if cards are only
    /// described.
    fn visible(&self) -> Visible {
        match self.cards().iter().map(|card| card.uuid.clone()).collect::<Option<Vec<_>>>() {
            // An empty list would make every card visible.
            Some(uuids) if uuids.is_empty() => Visible::NoCard,
            Some(uuids) => Visible::Cards(uuids),
            None => Visible::AsInherited,
        }
    }

    /// The cards that the engine may use. One that its own flags keep off all cards gets none, wherever it
    /// was placed: an engine that only sees a card opens a context on it.
    fn cards(&self) -> Vec<&Card> {
        let given = self.runtime.settings.cards_of(self.run.placement());
        if given.is_empty() || !is_on_host(&self.run.entry) { given } else { Vec::new() }
    }

    /// All CUDA cards in the order of their numbers, by the names that `visible` gives them.
    fn all_cards(&self) -> Vec<String> {
        let cuda = self.runtime.settings.cards().filter(|card| card.kind == CardKind::Cuda);
        cuda.map(|card| card.uuid.clone().unwrap_or_else(|| card.id.to_string())).collect()
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
