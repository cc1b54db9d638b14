//! `plimsoll quickstart`: shows the daemon at work on a fresh machine, with two tiny models.

mod client;
mod folder;
mod talk;
mod tour;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_base::Card;
use plimsoll_config::{LogLevel, ServeSettings};
use plimsoll_engine::{
    program,
    program::{EngineHome, EngineProgram},
};
use plimsoll_log::LogOutput;
use plimsoll_planner::EngineBuild;
use plimsoll_serve::{Daemon, DaemonError, Listen, Setup};

pub(crate) use self::folder::Folder;
use self::talk::{patiently, quote, say, title};
use super::{engine as engines, serve};
use crate::report::ErrorReport;
use crate::screen;
use crate::terminal;

// llama-server's default port, so that the curl lines of its documentation work against the tour.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the models and their configuration [default: quickstart in Plimsoll's own directory]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Address to listen on, such as 127.0.0.1:8080 or 8080; another port is taken if this one is in use
    #[arg(long, value_name = "ADDRESS", default_value_t = LISTEN, value_parser = plimsoll_config::listen_address)]
    listen: SocketAddr,
    /// Listen without API keys on an address that other machines can reach
    #[arg(long)]
    open: bool,
    /// Exit after the tour instead of continuing to serve
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(arguments: Arguments, log: &LogOutput) -> Result<ExitCode, ErrorReport> {
    let home = EngineHome::from_environment()?;
    let engine = install(&home)?;
    // An engine that prints no version still runs the tour; its plan uses the newest formulas.
    let identity = program::identify(&engine).map_or(EngineBuild::LLAMA_CPP, |identity| identity.engine);
    title("two small models, created on this machine");
    let folder = Folder::make(&arguments.folder.unwrap_or_else(|| home.quickstart()))?;
    for member in &folder.pair {
        quote(&member.file);
    }
    // The budget is computed, not fixed: builds of the engine differ in the memory that the models take.
    let budget = folder.budget(identity)?;
    show_plans(&folder, identity, &budget)?;
    serve::on_one_thread(async {
        let daemon = start(setup(&folder, engine, &budget, (arguments.listen, arguments.open))).await?;
        conduct(daemon, &folder, &budget, (arguments.once, log)).await
    })
}

pub(crate) fn install(home: &EngineHome) -> Result<EngineProgram, ErrorReport> {
    title("an engine: the program that runs a model, here llama.cpp for the CPU");
    let report = |step| engines::report(step, &mut terminal::stderr());
    let engine = patiently(|| program::install(home, report))?;
    quote(&engine.path.to_string_lossy());
    Ok(engine)
}

fn show_plans(folder: &Folder, engine: EngineBuild, budget: &Card) -> Result<(), ErrorReport> {
    title(format_args!(
        "the plan: the memory that each model will take, computed from its file header before anything \
            starts; the budget is {}",
        tour::size(budget.total)
    ));
    for member in &folder.pair {
        say("");
        quote(&screen::plan(&member.plan(engine, budget)?, screen::Paper::PIPE));
    }
    Ok(())
}

fn setup(folder: &Folder, engine: EngineProgram, budget: &Card, (listen, open): (SocketAddr, bool)) -> Setup {
    let serve = ServeSettings {
        listen: vec![listen],
        open,
        cards: vec![budget.clone()],
        engine: Some(vec![engine.path.to_string_lossy().into_owned()]),
        ..ServeSettings::default()
    };
    Setup { config: folder.config.clone(), places: None, serve, log: LogOutput::default() }
}

/// Starts the daemon, on a port that the kernel chooses if the requested one is taken.
async fn start(setup: Setup) -> Result<Daemon, ErrorReport> {
    // `Daemon::start` consumes its setup, and a second attempt needs it again.
    let mut elsewhere = setup.clone();
    match Daemon::start(setup).await {
        Err(DaemonError::Listen(Listen::Bind { address, error }))
            if error.kind() == io::ErrorKind::AddrInUse =>
        {
            say(format_args!("\n   {address} is in use, so another port is used"));
            elsewhere.serve.listen = vec![SocketAddr::new(address.ip(), 0)];
            Daemon::start(elsewhere).await.map_err(serve::of_daemon)
        }
        started => started.map_err(serve::of_daemon),
    }
}

/// Runs the tour while the daemon serves, then serves on; a signal ends both.
async fn conduct(
    daemon: Daemon,
    folder: &Folder,
    budget: &Card,
    (once, log): (bool, &LogOutput),
) -> Result<ExitCode, ErrorReport> {
    let (handle, address) = (daemon.handle(), daemon.address);
    let mut serving = tokio::task::spawn_local(daemon.run());
    let reported = tokio::select! {
        reported = tour::notify(&handle, address, folder) => reported,
        // The daemon handles SIGINT and SIGTERM itself; that it has ended means that the user stopped the
        // tour.
        _ = &mut serving => {
            say("\n   stopped by a signal");
            return Ok(ExitCode::SUCCESS);
        }
    };
    // A failed tour stops the daemon too, so that the engines end in order before the error is printed.
    if once || reported.is_err() {
        handle.shut_down().await;
        return reported.map(|()| {
            tour::next_steps();
            ExitCode::SUCCESS
        });
    }
    tour::hand_over(address, folder, budget);
    // The tour reported the daemon's actions itself. From here on the log does, as that of `serve`.
    log.configure(Some(LogLevel::Info), None);
    serve::announce(address);
    let _ = serving.await;
    Ok(ExitCode::SUCCESS)
}
