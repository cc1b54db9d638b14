//! Behavioural differences between other servers and Plimsoll, for settings that have an equivalent.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use plimsoll_config::{Configuration, ConfiguredModel, Launch};
use plimsoll_flags::{FlagOrigin, Warning};

use crate::llama_server::base_name;

/// Differences of a whole program, each with what to do.
type Differences = &'static [(&'static str, &'static str)];

const OF_LLAMA_SWAP: Differences = &[
    (
        "llama-swap listens on all network interfaces, plimsoll serve on 127.0.0.1:8080",
        "for other machines set `listen = \":8080\"` and `api-keys` under [serve]",
    ),
    (
        "models run together whenever they fit in memory; llama-swap swaps those that no group keeps together",
        "give a model `memory` if its plan is wrong, and `pin` if it has to stay loaded",
    ),
    (
        "a llama-server listens where plimsoll tells it, and not on the --host and --port of its command",
        "clients use the address of plimsoll serve",
    ),
];
const OF_LLAMA_SERVER: Differences = &[(
    "the number of loaded models is limited by memory, and not by --models-max",
    "set `models-max` under [serve] if it has to be limited too; give a model `ttl` to unload it when idle",
)];
pub(crate) const OF_OLLAMA: Differences = &[
    (
        "Ollama's API is at http://127.0.0.1:8080, and not on port 11434",
        "set OLLAMA_HOST=http://127.0.0.1:8080 for the clients, or stop Ollama and set `listen = \"11434\"` under [serve]",
    ),
    (
        "llama-server uses the chat template of the model file, and not the one of Ollama",
        "set --chat-template in `flags` if a model answers oddly",
    ),
];

const CONTAINERS: [&str; 3] = ["docker", "nerdctl", "podman"];

/// Adds the differences of the program that a file is of, of its models, and of the variables that it uses.
pub(crate) fn of_file(path: &Path, configuration: &mut Configuration, used: &BTreeSet<String>) {
    let name = path.to_string_lossy();
    let is_preset = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("ini"));
    let mut all = of_program(&name, if is_preset { OF_LLAMA_SERVER } else { OF_LLAMA_SWAP });
    if !used.is_empty() {
        let names: Vec<String> = used.iter().map(|name| format!("${{env.{name}}}")).collect();
        let text = format!("the values of {} are written into the file", names.join(", "));
        let hint = "change the file when a variable changes, and keep secrets in `api-key-files`";
        all.push(Warning::new(FlagOrigin::file(&name.into(), 0), text).hint(hint));
    }
    all.extend(configuration.models.iter_mut().flat_map(of_model));
    configuration.warnings.append(&mut all);
}

pub(crate) fn of_program(name: &str, differences: Differences) -> Vec<Warning> {
    let at = FlagOrigin::file(&name.into(), 0);
    differences.iter().map(|(text, hint)| Warning::new(at.clone(), *text).hint(*hint)).collect()
}

/// False only if the system says so: a folder may be closed to this user.
fn is_there(path: &str) -> bool {
    !Path::new(path).symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn of_model(model: &mut ConfiguredModel) -> Vec<Warning> {
    let name = model.name.clone();
    let mut all = model.card_variables_left_out();
    model.remove_card_variables();
    let mut tell = |text: String, hint: &str| all.push(Warning::new(model.origin.0.clone(), text).hint(hint));
    if let Launch::Command { argv, options, stop, .. } = &model.launch {
        if options.is_none() && model.memory.is_none() {
            let text = format!("the memory of `{name}` cannot be planned, so it gets a card to itself");
            tell(text, "set `memory` to what it takes, for example \"6GiB\"");
        }
        let program = argv.first().map(|program| base_name(program)).unwrap_or_default();
        if stop.is_none() && CONTAINERS.contains(&program) {
            let text = format!("stopping `{name}` ends {program}, but maybe not its container");
            tell(text, "run it with --rm and --init, and set `stop`, for example \"docker stop NAME\"");
        }
    }
    // Of a command, `~` is told among what only a shell understands.
    let is_told = |path: &str| matches!(model.launch, Launch::Command { .. }) && path.starts_with("~/");
    for path in model.launch.paths().filter(|path| !path.starts_with('/') && !is_told(path)) {
        let text =
            format!("the relative path {path} of `{name}` starts at the folder in which plimsoll serve runs");
        tell(text, "write the absolute path; `~` is not expanded");
    }
    for path in model.launch.paths().filter(|path| path.starts_with('/') && !is_there(path)) {
        let text = format!("the file {path} of `{name}` is not on this machine");
        tell(text, "correct the path, unless the configuration is for another machine");
    }
    all
}
