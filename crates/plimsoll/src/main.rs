#![forbid(unsafe_code)]

// DECISION: a package of its own, because a linked program is optimised at the level of its last package. The
// command line is built for size, which would not vectorise loops over bytes or inline small functions
// elsewhere.
fn main() -> std::process::ExitCode {
    plimsoll_cli::command::main()
}
