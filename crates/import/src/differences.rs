//! Lists where other servers behave differently from Plimsoll, for settings that have an equivalent.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use plimsoll_config::{Configuration, ConfiguredModel, Launch};
use plimsoll_flags::{FlagOrigin, Warning, quoted};

use crate::llama_server::base_name;

/// Differences of a whole program, each with its remedy.
type Differences = &'static [(&'static str, &'static str)];

const OF_LLAMA_SWAP: Differences = &[
    (
        "llama-swap listens on all network interfaces, plimsoll serve on 127.0.0.1:8080",
        "for other machines set `listen = \":8080\"` and `api-keys` under [serve]",
    ),
    (
        "models of no group run together whenever they fit in memory; llama-swap runs one of them at a time",
        "give a model `memory` if its plan is wrong, and `pin` if it has to stay loaded",
    ),
    (
        "plimsoll chooses the address of a llama-server, in place of the --host and --port of its command",
        "clients use the address of plimsoll serve",
    ),
];
const OF_LLAMA_SERVER: Differences = &[(
    "the number of loaded models is limited by memory, and not by --models-max",
    "set `models-max` under [serve] if it has to be limited too; give a model `ttl` to unload it when idle",
)];
pub(crate) const OF_OLLAMA: Differences = &[(
    "Ollama's API is at http://127.0.0.1:8080, and not on port 11434",
    "set OLLAMA_HOST=http://127.0.0.1:8080 for the clients, or stop Ollama and set `listen = \"11434\"` under [serve]",
)];

/// Subjects that one line names.
const MOST_NAMED: usize = 3;
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
    let mut gathered = Gathered::default();
    all.extend(configuration.models.iter_mut().flat_map(|model| of_model(model, &mut gathered)));
    gathered.notify(&mut all);
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

/// Differences of several models in one line.
#[derive(Default)]
struct Gathered {
    unknown: Vec<Subject>,
    containers: Vec<Subject>,
    relative: Vec<Subject>,
    missing: Vec<Subject>,
}

/// A thing, and the place of its model.
struct Subject(String, FlagOrigin);

impl Gathered {
    fn notify(self, reported: &mut Vec<Warning>) {
        gathered(
            self.unknown,
            |names, _| {
                format!(
                    "the memory need of {names} is not known before it has been measured, so a card is kept for one alone"
                )
            },
            "set `memory` to its need, for example \"6GiB\"",
            reported,
        );
        gathered(
            self.containers,
            |names, _| {
                format!(
                    "stopping {names} ends the program that started the container, but maybe not the container"
                )
            },
            "run it with --rm and --init, and set `stop`, for example \"docker stop NAME\"",
            reported,
        );
        gathered(
            self.relative,
            |paths, is_one| {
                let are = if is_one { "is" } else { "are" };
                format!("{paths} {are} relative to the folder in which plimsoll serve runs")
            },
            "write the absolute path; `~` is not expanded",
            reported,
        );
        gathered(
            self.missing,
            |paths, is_one| {
                if is_one {
                    format!("the file {paths} is not on this machine")
                } else {
                    format!("files are not on this machine: {paths}")
                }
            },
            "correct the path, unless the configuration is for another machine",
            reported,
        );
    }
}

/// One warning for all subjects, which names the first few.
fn gathered(subjects: Vec<Subject>, text: fn(&str, bool) -> String, hint: &str, reported: &mut Vec<Warning>) {
    let Some(Subject(_, at)) = subjects.first() else { return };
    let named: Vec<&str> = subjects.iter().take(MOST_NAMED).map(|Subject(text, _)| text.as_str()).collect();
    let more = match subjects.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = text(&(named.join(", ") + &more), subjects.len() == 1);
    reported.push(Warning::new(at.clone(), text).hint(hint));
}

fn of_model(model: &mut ConfiguredModel, gathered: &mut Gathered) -> Vec<Warning> {
    let name = quoted(&model.name);
    let all = model.card_variables_left_out();
    model.remove_card_variables();
    let at = || model.origin.0.clone();
    if let Launch::Command { argv, options, stop, .. } = &model.launch {
        if options.is_none() && model.memory.is_none() && model.part().is_none() && !model.is_foreign() {
            gathered.unknown.push(Subject(format!("`{name}`"), at()));
        }
        let program = argv.first().map(|program| base_name(program)).unwrap_or_default();
        if stop.is_none() && CONTAINERS.contains(&program) {
            gathered.containers.push(Subject(format!("`{name}`"), at()));
        }
    }
    // Of a command, `~` is told among what only a shell understands.
    let is_reported = |path: &str| matches!(model.launch, Launch::Command { .. }) && path.starts_with("~/");
    let subject = |path: &str| Subject(format!("{} of `{name}`", quoted(path)), at());
    for path in model.launch.paths().filter(|path| !path.starts_with('/') && !is_reported(path)) {
        gathered.relative.push(subject(path));
    }
    for path in model.launch.paths().filter(|path| path.starts_with('/') && !is_there(path)) {
        gathered.missing.push(subject(path));
    }
    all
}
