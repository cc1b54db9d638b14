#![forbid(unsafe_code)]

// DECISION: a package of its own, because a linked program is optimised at the level of its last package, and the command
// line is built for size: loops over bytes elsewhere would not be vectorised, and small functions not inlined.
fn main() -> std::process::ExitCode {
    plimsoll_cli::command::main()
}
