//! Generates a random API key for each engine, and runs the stop command that a user has configured for one.

use std::io;
use std::process::Stdio;

use plimsoll_config::{PID, PORT};
use rustix::rand::{GetRandomFlags, getrandom};

use super::address::EngineAddress;
use super::spec::ChildSpec;

/// Returns a key for one child: 128 random bits in hexadecimal.
///
/// The key prevents other users of the machine from accessing an engine without the daemon. It is passed in
/// the environment (`LLAMA_API_KEY`), which only the owner can read, never on the command line, which is
/// public.
pub fn random_key() -> io::Result<String> {
    let mut bits = [0_u8; 16];
    // Of up to 256 bytes the kernel gives all at once (getrandom(2)).
    if getrandom(&mut bits, GetRandomFlags::empty())? < bits.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Starts the user's own stop command for the child `pid`; it is killed when dropped.
pub(super) fn stop_command(line: &[String], spec: &ChildSpec, pid: u32) -> io::Result<tokio::process::Child> {
    let pid = pid.to_string();
    let port = match &spec.address {
        EngineAddress::Port(port) => port.to_string(),
        EngineAddress::Remote(address) => address.rsplit(':').next().unwrap_or_default().to_owned(),
        // Only commands of the user's own have one of these lines, and they listen on ports.
        EngineAddress::Socket { .. } => String::new(),
    };
    let mut words = line.iter().map(|word| word.replace(PID, &pid).replace(PORT, &port));
    let program = words.next().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the command is \
        empty",
        )
    })?;
    let mut command = tokio::process::Command::new(program);
    command
        // The child's environment, so that the command sees the same variables and cards as the engine.
        .args(words)
        .env_clear()
        .envs(spec.environment.iter())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &spec.directory {
        command.current_dir(directory);
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_plain_text() {
        let (one, two) = (random_key().unwrap(), random_key().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
