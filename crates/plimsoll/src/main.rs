#![forbid(unsafe_code)]

// Everything is in the library, where integration tests can reach it.
fn main() -> std::process::ExitCode {
    plimsoll::command::main()
}
