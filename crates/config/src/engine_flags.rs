//! Finds llama-server flags in a command that the user configured, so that the model's memory can be planned.

use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagOrigin, FlagProblem, Options, ProgramKind, Warning, quoted};

use crate::container::{ContainerRun, is_llama_server};
use crate::failure::ConfigError;
use crate::roster::Launch;

impl Launch {
    /// The same with the flags of its llama-server, unless that is on another machine. `at` is the place of a
    /// word.
    pub(crate) fn with_options(
        mut self,
        model: &str,
        at: &dyn Fn(&str) -> FlagOrigin,
        reported: (&mut Vec<Warning>, &mut Vec<ConfigError>),
    ) -> Self {
        let is_foreign = self.is_foreign();
        if let Self::Command { argv, options, .. } = &mut self
            && !is_foreign
        {
            *options = engine_flags(argv, model, at, reported);
        }
        self
    }
}

/// The flags of a command, for the memory plan, if its program is called like a llama-server. A program that
/// only resembles one is not refused because of unknown flags, but all programs read numbers alike. Partly
/// read numbers are added to `found`. `at` is the place of a word.
fn engine_flags(
    argv: &[String],
    model: &str,
    at: &dyn Fn(&str) -> FlagOrigin,
    reported: (&mut Vec<Warning>, &mut Vec<ConfigError>),
) -> Option<Options> {
    let flags = &argv[llama_server_in(argv)? + 1..];
    options_of(flags, ContainerRun::of(argv).as_ref(), model, at, reported)
}

/// The same of the words behind the program; in a container, with the paths of the host.
pub(crate) fn options_of(
    flags: &[String],
    container: Option<&ContainerRun>,
    model: &str,
    at: &dyn Fn(&str) -> FlagOrigin,
    (warnings, found): (&mut Vec<Warning>, &mut Vec<ConfigError>),
) -> Option<Options> {
    let (mut options, faults) =
        Options::known_in(flags, |flag| at(flags.get(flag).map_or("", String::as_str)));
    for error in faults {
        if matches!(error.problem, FlagProblem::ReadPart { .. }) {
            found.push(error.into());
            continue;
        }
        warnings.push(Warning::new(error.origin.clone(), LeftOutFlag::of(&error.problem).ignored()));
    }
    // Address, port and keys are the user's own business in a command of theirs.
    options.retain(|setting| setting.flag.effect != FlagClass::Router);
    judge(&options, warnings);
    warnings.extend(options.remarks());
    let Some(container) = container else { return Some(options) };
    let (options, missing) = container.options(options);
    let Some(path) = missing else { return Some(options) };
    let model = quoted(model);
    let text = format!(
        "{} of `{model}` lies in its container's image or in a volume, so the memory need of `{model}` is unknown",
        quoted(&path)
    );
    warnings.push(Warning::new(at(&path), text).hint("mount the folder of the file (`-v`), or set `memory`"));
    None
}

/// Flag of a user's own command that a plan leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutFlag {
    /// The word of the command, where it is no known flag.
    pub argument: Option<String>,
    problem: String,
}

impl LeftOutFlag {
    fn of(problem: &FlagProblem) -> Self {
        let argument = match problem {
            FlagProblem::FindFlag { argument, .. } => Some(argument.clone()),
            _ => None,
        };
        Self { argument, problem: problem.to_string() }
    }

    /// The fault, and what is known to follow from it.
    pub fn reported(&self, then: &str) -> String {
        let (first, rest) = then.split_at(then.chars().next().map_or(0, char::len_utf8));
        if self.problem.ends_with('?') {
            format!("{} {}{rest}", self.problem, first.to_uppercase())
        } else {
            format!("{}; {then}", self.problem)
        }
    }

    /// The fault of a flag of which the engine has not been asked.
    pub fn ignored(&self) -> String {
        self.reported("the plan ignores this flag, and the engine may not start with it")
    }
}

/// Unknown flags of a user's own command, which its plan omits.
pub fn flags_left_out(launch: &Launch) -> Vec<LeftOutFlag> {
    let Launch::Command { argv, options: Some(_), .. } = launch else { return Vec::new() };
    let at = llama_server_in(argv).map_or(argv.len(), |at| at + 1);
    let (_, faults) = Options::known_in(&argv[at..], |_| FlagOrigin::CommandLine);
    faults.iter().map(|error| LeftOutFlag::of(&error.problem)).collect()
}

/// Programs that become the program behind them.
const WRAPPERS: [&str; 8] = ["chrt", "env", "ionice", "nice", "numactl", "setsid", "stdbuf", "taskset"];
/// Programs whose further words are another program's, on a host or in a container of its own.
const ELSEWHERE: [&str; 9] = ["bash", "dash", "docker", "kubectl", "nerdctl", "podman", "sh", "ssh", "zsh"];

/// The place of a llama-server that the command itself becomes, at once or behind wrappers.
pub fn own_llama_server(argv: &[String]) -> Option<usize> {
    let at = llama_server_in(argv)?;
    let before = argv.get(..at)?;
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let is_wrapped = before.first().is_none_or(|word| WRAPPERS.contains(&name(word).as_str()));
    let is_here = !before.iter().any(|word| ELSEWHERE.contains(&name(word).as_str()));
    (is_wrapped && is_here).then_some(at)
}

/// The place of a llama-server in a command: the word behind which its flags begin.
pub fn llama_server_in(argv: &[String]) -> Option<usize> {
    if let Some(container) = ContainerRun::of(argv) {
        return container.llama_server(argv);
    }
    // The first match: wrappers such as taskset come before the program, model paths after it.
    argv.iter().position(|argument| is_llama_server(argument))
}

/// Warns of values that the engine would refuse; another build may accept them.
pub(crate) fn judge(options: &Options, warnings: &mut Vec<Warning>) {
    if let Err(error) = options.params(ProgramKind::LlamaServer) {
        // Not an error: the installed build may be newer than the table.
        let text = format!("llama-server may refuse this flag: {}", error.problem);
        warnings.push(Warning::new(error.origin, text));
    }
}
