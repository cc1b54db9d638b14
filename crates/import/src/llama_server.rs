//! Converts llama-swap commands that start a llama-server to the keys `program`, `model` and `flags`.
//!
//! In that form the daemon checks every flag, and the engine listens on a socket of its own.

use std::path::Path;

use plimsoll_config::{CHECK, ConfiguredModel, Launch, PORT, own_llama_server};
use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{Options, Setting};

/// Flags that the daemon sets itself.
const OURS: [&str; 3] = ["--host", "--port", "--alias"];
/// Default port of a llama-server.
const USUAL_PORT: &str = "8080";

/// The name of a program without its folder.
pub(crate) fn base_name(program: &str) -> &str {
    Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program)
}

/// Turns a command into flags where both mean the same; any other command stays as it is.
pub(crate) fn unfold(model: &mut ConfiguredModel) {
    if let Some((program, mut options)) = parts(&model.launch) {
        options.retain(is_kept);
        // Without a program, the server takes the one on its PATH, or the one that plimsoll installed.
        let program = Some(program).filter(|program| program != &["llama-server"]);
        model.launch = Launch::LlamaServer { program, options };
    }
}

fn is_kept(setting: &Setting) -> bool {
    !OURS.contains(&setting.flag.name())
}

/// The program and the flags of a command that needs nothing else.
fn parts(launch: &Launch) -> Option<(Vec<String>, Options)> {
    let Launch::Command { argv, options: Some(planned), check, stop: None, .. } = launch else {
        return None;
    };
    // Any other wrapper (docker, ssh, sh) needs the whole command.
    let at = own_llama_server(argv)?;
    let (program, flags) = argv.split_at(at + 1);
    if check != CHECK {
        return None;
    }
    // All flags have to be known, or the TOML would be refused.
    let place = planned.settings().first()?.origin.clone();
    let options = Options::from_argv_at(flags, |_| place.clone()).ok()?;
    let mut kept = options.clone();
    kept.retain(is_kept);
    let is_router = kept.settings().iter().any(|setting| setting.flag.effect == FlagClass::Router);
    let names_port = program.iter().chain(&kept.to_argv()).any(|argument| argument.contains(PORT));
    let port = options.text("--port").unwrap_or(USUAL_PORT);
    // Any number serves to tell a fixed port from the placeholder.
    let listens = launch.listens_on(1).is_some_and(|listens| port.replace(PORT, "1") == listens.to_string());
    let has_model = planned.settings().iter().any(|setting| {
        matches!(setting.flag.effect, FlagClass::Model | FlagClass::Remote | FlagClass::Bundle)
    });
    (!is_router && !names_port && listens && has_model).then(|| (program.to_vec(), options))
}
