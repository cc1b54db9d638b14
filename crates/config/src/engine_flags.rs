//! Flags of llama-server in a command of the user's own.

use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagOrigin, Options, ProgramKind, Warning};

/// The flags of a command, if its program is a llama-server by name: what its memory is planned from. A
/// program that only looks like one is not refused for flags we do not know.
pub(crate) fn engine_flags(argv: &[String], at: &FlagOrigin, warnings: &mut Vec<Warning>) -> Option<Options> {
    // The first match: wrappers such as taskset come before the program, model paths after it.
    let program = argv.iter().position(|argument| is_llama_server(argument))?;
    let (mut options, unknown) = Options::known_in(&argv[program + 1..], |_| at.clone());
    for error in unknown {
        let text = format!("{}: its memory is planned without it", error.problem);
        warnings.push(Warning::new(error.origin, text));
    }
    // Address, port and keys are the user's own business in a command of theirs.
    options.retain(|setting| setting.flag.effect != FlagClass::Router);
    judge(&options, warnings);
    Some(options)
}

/// `llama-server`, `/opt/b10605/llama-server`, `ik-llama-server`; also behind a wrapper such as `taskset -c
/// 0-7`.
fn is_llama_server(argument: &str) -> bool {
    let name = argument.rsplit('/').next().unwrap_or(argument);
    name == "llama-server" || name.ends_with("-llama-server") || name.ends_with("_llama-server")
}

/// Values that the engine would refuse are told, not judged: another build may take them.
pub(crate) fn judge(options: &Options, warnings: &mut Vec<Warning>) {
    if let Err(error) = options.wish(ProgramKind::LlamaServer) {
        // Not an error: the installed build may be newer than the table.
        let text = format!("llama-server may refuse this: {}", error.problem);
        warnings.push(Warning::new(error.origin, text));
    }
}
