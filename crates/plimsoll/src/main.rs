#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    plimsoll::command::main()
}
