//! Parses the key `proxy`, the address of an engine: a port of this machine, or another host.

use std::net::IpAddr;

/// The port of an address that names none.
const HTTP: u16 = 80;

/// The place where requests of a model go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyAddress {
    /// A port of 127.0.0.1.
    Port(u16),
    /// `ADDRESS:PORT` of another address of this machine's loopback.
    Loopback(String),
    /// `HOST:PORT` of another machine, or of a container.
    Elsewhere(String),
}

impl ProxyAddress {
    /// Reads `http://HOST:PORT`. An error has what is wrong, and what to write.
    pub(crate) fn read(address: &str) -> Result<Self, (&'static str, &'static str)> {
        let fail = |why| Err((why, "write `http://HOST:PORT`, for example `http://127.0.0.1:${PORT}`"));
        let Some(rest) = address.strip_prefix("http://") else {
            let is_tls = address.starts_with("https://");
            return fail(if is_tls {
                "`proxy` begins with https://, but engines are reached only by http://"
            } else {
                NO_ADDRESS
            });
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return fail("`proxy` has a path after its port, which is not supported");
        }
        let bracketed = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, port)) => (host, port),
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(HTTP),
            port => port.and_then(|port| port.parse().ok()),
        };
        let ip = host.parse::<IpAddr>().ok();
        let is_name = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        };
        let Some(port) = port.filter(|_| if bracketed.is_some() { ip.is_some() } else { is_name(host) })
        else {
            return fail(NO_ADDRESS);
        };
        let written = if bracketed.is_some() { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(match ip {
            _ if host == "127.0.0.1" || host.eq_ignore_ascii_case("localhost") => Self::Port(port),
            Some(ip) if ip.to_canonical().is_loopback() => Self::Loopback(written),
            _ => Self::Elsewhere(written),
        })
    }
}

const NO_ADDRESS: &str = "`proxy` is not the address of an engine";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_on_a_port_of_this_machine_or_elsewhere() {
        let elsewhere = |text: &str| Ok(ProxyAddress::Elsewhere(text.to_owned()));
        let loopback = |text: &str| Ok(ProxyAddress::Loopback(text.to_owned()));
        for (text, address) in [
            ("http://127.0.0.1:5800", Ok(ProxyAddress::Port(5800))),
            ("http://localhost:5800/", Ok(ProxyAddress::Port(5800))),
            ("http://127.0.0.2:5800", loopback("127.0.0.2:5800")),
            ("http://[::1]:5800", loopback("[::1]:5800")),
            ("http://192.168.1.23", elsewhere("192.168.1.23:80")),
            ("http://gpt-oss-20b:8000", elsewhere("gpt-oss-20b:8000")),
            ("http://[fd00::2]:1", elsewhere("[fd00::2]:1")),
        ] {
            assert_eq!(ProxyAddress::read(text), address, "{text}");
        }
        for text in [
            "",
            "http://",
            "http://:80",
            "http://a:b",
            "http://a:99999",
            "https://a:1",
            "a:1",
            "unix:/x",
            "http://a:1/v1",
            "http://u@h:1",
            "http://[x]:1",
            "http://a b:1",
            "http://[::1",
            "http://::1:80",
        ] {
            assert!(ProxyAddress::read(text).is_err(), "{text}");
        }
    }
}
