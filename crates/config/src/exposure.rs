//! Keeps users' engines off the network: moves a llama-server to the loopback interface, and warns of other
//! engines that listen openly.
//!
//! The daemon connects to a port of 127.0.0.1 only, so an engine needs no other address. The check replaces
//! the address flag of a llama-server. For any other program it only warns.

mod published;

use std::net::IpAddr;

use plimsoll_flags::{Warning, quoted};

use crate::engine_flags::own_llama_server;
use crate::engine_kind::CommandKind;
use crate::proxy_address::ProxyAddress;
use crate::roster::{Configuration, ConfiguredModel, Launch};
use crate::shell::is_of_a_shell;

const LOOPBACK: &str = "127.0.0.1";
const HOST_FLAG: &str = "--host";
/// Its variable, which the flag overrides.
const HOST_VARIABLE: &str = "LLAMA_ARG_HOST";
/// Flags of other engines that name the address where they listen.
const ADDRESS_FLAGS: [&str; 6] = ["--host", "--hostname", "--listen", "--listen-ip", "--bind", "--ip"];
const OPEN: &str = "so that other machines reach it without an API key";

impl Configuration {
    /// Moves engines of users' commands to the loopback where that is one flag of a llama-server, and warns
    /// of all others that the network reaches.
    pub fn confine(&mut self) {
        let reported = self.models.iter_mut().filter(|model| !is_of_a_shell(model)).filter_map(confined);
        self.warnings.extend(reported.collect::<Vec<_>>());
    }
}

fn confined(entry: &mut ConfiguredModel) -> Option<Warning> {
    let name = quoted(&entry.name);
    // Requests go where `proxy` says, so an engine that listens there is left there.
    let is_requested_here = matches!(entry.launch.address(1), Ok(ProxyAddress::Port(_)));
    let Launch::Command { argv, .. } = &mut entry.launch else { return None };
    let warning = |text: String, hint: String| Some(Warning::new(entry.origin.0.clone(), text).hint(hint));
    match own_llama_server(argv).filter(|_| is_requested_here) {
        Some(at) => {
            let (place, host) = replaced(argv, at, &mut entry.env)?;
            let given = quoted(&host);
            let why = if is_loopback(&host) {
                "plimsoll serve reaches engines at that address only".to_owned()
            } else {
                format!("the engine would listen on {}, {OPEN}", listener(&host))
            };
            let text = format!("`{place}{given}` of `{name}` is replaced by {LOOPBACK}: {why}");
            warning(text, format!("write `{place}{LOOPBACK}`, or remove it"))
        }
        None => {
            let found = published::address(argv).or_else(|| of_environment(argv, &entry.env));
            let found = found.or_else(|| of_flag(argv)).or_else(|| by_default(argv))?;
            let text =
                format!("the engine of `{name}` listens on {} ({}), {OPEN}", found.listener, found.words);
            warning(text, found.remedy)
        }
    }
}

/// A listening address that a command of an unknown program names.
struct ListeningAddress {
    /// The address, in words.
    listener: String,
    /// Flag or variable that names it.
    words: String,
    remedy: String,
}

/// Sets the loopback in a llama-server's command. Returns what named another address, and the address that
/// counted.
fn replaced(argv: &mut [String], at: usize, env: &mut [(String, String)]) -> Option<(String, String)> {
    let (before, flags) = argv.split_at_mut(at);
    let mut counted = None;
    let mut follows = false;
    // Where the flag stands twice, the last one counts.
    for word in flags.iter_mut().skip(1) {
        if follows {
            counted = Some(("--host ".to_owned(), word.clone()));
            set(word, "");
        } else if let Some(host) = word.strip_prefix("--host=") {
            counted = Some(("--host=".to_owned(), host.to_owned()));
            set(word, "--host=");
        }
        follows = !follows && word == HOST_FLAG;
    }
    let place = format!("{HOST_VARIABLE}=");
    if counted.is_none() {
        // `env LLAMA_ARG_HOST=… llama-server` comes after the model's own variables.
        for word in before.iter_mut() {
            let Some(host) = word.strip_prefix(&place).map(str::to_owned) else { continue };
            set(word, &place);
            counted = Some((place.clone(), host));
        }
    }
    if counted.is_none() {
        for (_, value) in env.iter_mut().filter(|(name, _)| name == HOST_VARIABLE) {
            counted = Some((place.clone(), value.clone()));
            set(value, "");
        }
    }
    counted.filter(|(_, host)| !is_kept(host))
}

/// Replaces the address behind `start`.
fn set(word: &mut String, start: &str) {
    if !is_kept(word.strip_prefix(start).unwrap_or(word)) {
        *word = format!("{start}{LOOPBACK}");
    }
}

/// True for an address that the router reaches, and for a Unix socket.
fn is_kept(host: &str) -> bool {
    // llama-server knows a socket by this ending.
    host == LOOPBACK || host.eq_ignore_ascii_case("localhost") || host.ends_with(".sock")
}

fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn is_loopback(host: &str) -> bool {
    // Programs read `127.1` as well.
    let short = host.starts_with("127.") && host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    short || host.eq_ignore_ascii_case("localhost") || ip(host).is_some_and(|ip| ip.is_loopback())
}

/// The interfaces of an address, in words. An empty one and `0` are read as 0.0.0.0.
fn listener(host: &str) -> String {
    let all = matches!(host, "" | "0" | "*") || ip(host).is_some_and(|ip| ip.is_unspecified());
    if all { "all interfaces".to_owned() } else { format!("`{}`", quoted(host)) }
}

/// The variable of a llama-server that a script may start.
fn of_environment(argv: &[String], env: &[(String, String)]) -> Option<ListeningAddress> {
    let (_, host) = env.iter().rev().find(|(name, _)| name == HOST_VARIABLE)?;
    // A container gets no variable of its caller's.
    (!published::is_container(argv) && !is_kept(host) && !is_loopback(host)).then(|| ListeningAddress {
        listener: listener(host),
        words: format!("`{HOST_VARIABLE}={}`", quoted(host)),
        remedy: format!("write `{HOST_VARIABLE}={LOOPBACK}`"),
    })
}

/// The address that a flag names, or 0.0.0.0 in the words of a script.
fn of_flag(argv: &[String]) -> Option<ListeningAddress> {
    // A container's program listens on the container's own interface.
    if published::is_bridged(argv) {
        return None;
    }
    let words = published::words(argv);
    let found = |flag: &str, host: &str| ListeningAddress {
        listener: listener(host),
        words: format!("`{} {}`", quoted(flag), quoted(host)),
        remedy: format!("write `{} {LOOPBACK}`", quoted(flag)),
    };
    let mut given = words.iter().enumerate().filter_map(|(at, word)| {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word.as_str(), words.get(at + 1).map(String::as_str)),
        };
        ADDRESS_FLAGS.contains(&flag).then_some((flag, value.filter(|value| !value.starts_with('-'))))
    });
    // The last one counts. ComfyUI's flag alone is all interfaces.
    let (flag, host) = match given.next_back() {
        Some(("--listen", None)) => ("--listen", "0.0.0.0"),
        Some((flag, Some(host))) => (flag, host),
        _ => ("", ""),
    };
    let mut addresses = host.split(',').filter_map(|host| Some((host, ip(host)?))).peekable();
    if addresses.peek().is_some() {
        return addresses.find(|(_, ip)| !ip.is_loopback()).map(|(host, _)| found(flag, host));
    }
    let word = words.iter().find(|word| binds_to_all(word))?;
    Some(ListeningAddress {
        listener: "all interfaces".to_owned(),
        words: format!("`{}`", quoted(word)),
        remedy: format!("write {LOOPBACK} instead"),
    })
}

/// True for `0.0.0.0`, `0.0.0.0:8000`, `--addr=[::]:8000`, `tcp://0.0.0.0:1`; false for a server to ask, and
/// a network.
fn binds_to_all(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    if ["http://", "https://"].iter().any(|scheme| value.starts_with(scheme)) {
        return false;
    }
    let address = value.split_once("://").map_or(value, |(_, rest)| rest);
    let rest = ["0.0.0.0", "[::]"].iter().find_map(|all| address.strip_prefix(all));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Programs that listen on all interfaces unless they are told where
/// (`vllm/entrypoints/openai/api_server.py`, `koboldcpp.py`).
fn by_default(argv: &[String]) -> Option<ListeningAddress> {
    let open = matches!(CommandKind::of(argv)?, CommandKind::Vllm | CommandKind::Koboldcpp);
    let is_flag = |word: &String| {
        word == HOST_FLAG || word.strip_prefix(HOST_FLAG).is_some_and(|rest| rest.starts_with('='))
    };
    let reported = published::words(argv).iter().any(is_flag);
    (open && !reported && !published::is_bridged(argv)).then(|| ListeningAddress {
        listener: "all interfaces".to_owned(),
        words: "its default".to_owned(),
        remedy: format!("add `{HOST_FLAG} {LOOPBACK}`"),
    })
}
