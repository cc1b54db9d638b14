//! Finds the ports that a container publishes (`docker run -p`), and splits commands inside shell scripts
//! into words.

use super::{ListeningAddress, listener};
use crate::roster::PORT;

const CONTAINERS: [&str; 3] = ["docker", "nerdctl", "podman"];
const PUBLISH: [&str; 2] = ["-p", "--publish"];

/// The words of a command, with those of a script in it (`sh -c "…"`).
pub(super) fn words(argv: &[String]) -> Vec<String> {
    let split = |argument: &String| {
        let parts = argument.split_whitespace().map(|word| word.trim_matches(['"', '\'', ';']).to_owned());
        parts.collect::<Vec<_>>()
    };
    argv.iter().flat_map(split).collect()
}

/// The flags of a `docker run`, and what follows them.
fn of_container(words: &[String]) -> Option<&[String]> {
    let program =
        words.iter().position(|word| CONTAINERS.contains(&word.rsplit('/').next().unwrap_or(word)))?;
    let after = &words[program + 1..];
    let run = after.iter().position(|word| word == "run" || word == "create")?;
    Some(&after[run + 1..])
}

/// True for a command that starts a container.
pub(super) fn is_container(argv: &[String]) -> bool {
    of_container(&words(argv)).is_some()
}

/// True for a container with a network of its own, in which every address is the container's.
pub(super) fn is_bridged(argv: &[String]) -> bool {
    let words = words(argv);
    let Some(flags) = of_container(&words) else { return false };
    let is_of_host = |at: usize, word: &String| match word.split_once('=') {
        Some((flag, network)) => matches!(flag, "--network" | "--net") && network == "host",
        None => {
            matches!(word.as_str(), "--network" | "--net") && flags.get(at + 1).is_some_and(|it| it == "host")
        }
    };
    !flags.iter().enumerate().any(|(at, word)| is_of_host(at, word))
}

/// The address of a port that a container publishes to the network.
pub(super) fn address(argv: &[String]) -> Option<ListeningAddress> {
    let words = words(argv);
    let flags = of_container(&words)?;
    let given = flags.iter().enumerate().filter_map(|(at, word)| {
        let after = flags.get(at + 1).map(String::as_str);
        match word.split_once('=') {
            Some((flag, value)) if PUBLISH.contains(&flag) => Some(value),
            _ if PUBLISH.contains(&word.as_str()) => after,
            // `-p8000:80`
            _ => word
                .strip_prefix("-p")
                .filter(|value| value.starts_with(|c: char| c.is_ascii_digit() || c == '$')),
        }
    });
    given.filter_map(mapping).find_map(|(address, ports)| {
        let host = address.unwrap_or("0.0.0.0");
        (!super::is_loopback(host)).then(|| {
            let written = address.map_or_else(|| ports.to_owned(), |address| format!("{address}:{ports}"));
            ListeningAddress {
                listener: listener(host),
                words: format!("`-p {written}`"),
                remedy: format!("write `-p 127.0.0.1:{ports}`"),
            }
        })
    })
}

/// `[ADDRESS:]PORT:PORT`; none for other words, such as a flag of the container's program.
fn mapping(value: &str) -> Option<(Option<&str>, &str)> {
    let (start, inner) = value.rsplit_once(':')?;
    let (address, outer) = match start.rsplit_once(':') {
        Some((address, outer)) => (Some(address), outer),
        None => (None, start),
    };
    let is_port = |text: &str| {
        let digits = text.replace(PORT, "1");
        let digits = digits.split('/').next().unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    // An address alone may leave the port to the engine.
    let is_mapping = is_port(inner) && (is_port(outer) || (outer.is_empty() && address.is_some()));
    let ports = &value[address.map_or(0, |address| address.len() + 1)..];
    is_mapping.then_some((address, ports))
}
