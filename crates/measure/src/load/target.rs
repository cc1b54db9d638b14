//! Parses the address of the server under test: `http://host:port[/v1]`, `host:port`, or a port of this
//! machine.

use std::fmt;
use std::str::FromStr;

/// Port of an address with a scheme.
const DEFAULT_PORT: u16 = 80;
/// Port of a machine's name alone: that of llama-server, and of `plimsoll serve`.
const USUAL_PORT: u16 = 8080;

/// Address of a server. Only http is supported, because TLS would be measured too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub port: u16,
    /// Path before `/v1/…`; usually empty.
    pub base: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadTargetError {
    #[error("`{text}` is not an http address; write for example http://127.0.0.1:8080")]
    Scheme { text: String },
    #[error("`{text}` has no host; write for example http://127.0.0.1:8080")]
    Host { text: String },
    #[error("the port in `{text}` is not a number from 1 to 65535")]
    Port { text: String },
}

impl FromStr for Target {
    type Err = ReadTargetError;

    fn from_str(text: &str) -> Result<Self, ReadTargetError> {
        let wrong_port = |_| ReadTargetError::Port { text: text.to_owned() };
        let (rest, usual) = match text.split_once("://") {
            Some(("http", rest)) => (rest, DEFAULT_PORT),
            Some(_) => {
                return Err(ReadTargetError::Scheme { text: text.to_owned() });
            }
            // As `--listen` takes it, and without a host, since no machine is called 8080.
            None if is_port(text) => {
                return Ok(Self::here(text.trim_start_matches(':').parse().map_err(wrong_port)?));
            }
            // A bare `host:port` is accepted, since that is how servers print their address.
            None => (text, USUAL_PORT),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            // `[::1]` has colons of its own: a last part that ends in `]` is no port.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(wrong_port)?),
            _ => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(ReadTargetError::Host { text: text.to_owned() });
        }
        // Users paste the base URL of a client's settings, which ends in `/v1`.
        let base = path.trim_end_matches('/');
        Ok(Self { host: host.to_owned(), port, base: base.strip_suffix("/v1").unwrap_or(base).to_owned() })
    }
}

/// A port alone, or after a colon.
fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl Target {
    fn here(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port, base: String::new() }
    }

    /// True if the server runs on this machine, where its processes are visible.
    pub fn is_here(&self) -> bool {
        let address: Option<std::net::IpAddr> = self.host.parse().ok();
        // A server on 0.0.0.0 is printed with that address, and connecting to it reaches this machine.
        self.host == "localhost"
            || address.is_some_and(|address| address.is_loopback() || address.is_unspecified())
    }

    pub fn authority(&self) -> String {
        // An IPv6 address needs its brackets back in the Host header.
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown, here) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", true),
            ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080", true),
            ("localhost:9", "http://localhost:9", true),
            ("http://[::1]:81/upstream/a", "http://[::1]:81/upstream/a", true),
            ("http://box", "http://box:80", false),
            ("box", "http://box:8080", false),
            ("127.0.0.1/v1", "http://127.0.0.1:8080", true),
            ("8080", "http://127.0.0.1:8080", true),
            (":8080", "http://127.0.0.1:8080", true),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.to_string().as_str(), target.is_here()), (shown, here), "{text}");
        }
        for text in
            ["https://a", "http://", "http://:8080", "http://a:b", "http://a:70000", "a b", "70000", ":", ""]
        {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
