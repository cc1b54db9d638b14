#![forbid(unsafe_code)]

mod command;
mod launch;

fn main() -> std::process::ExitCode {
    command::main()
}
