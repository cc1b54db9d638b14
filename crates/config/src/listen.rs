//! Addresses to listen on, as people write them: `127.0.0.1:8080`, `localhost:8080`, `8080`, `:8080`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer};

/// Reads an address. A port alone is on this machine; a port after a colon is on every interface, as Go's programs
/// take it.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let at = |host: IpAddr, port: &str| Some(SocketAddr::new(host, port.parse().ok()?));
    let text = text.trim();
    let read = match text.rsplit_once(':') {
        None => at(Ipv4Addr::LOCALHOST.into(), text),
        Some(("", port)) => at(Ipv4Addr::UNSPECIFIED.into(), port),
        Some(("localhost", port)) => at(Ipv4Addr::LOCALHOST.into(), port),
        Some(_) => text.parse().ok(),
    };
    read.ok_or_else(|| {
        format!(
            "`{text}` is not an address to listen on; write 127.0.0.1:8080, localhost:8080, 8080, or :8080 for \
            all networks"
        )
    })
}

/// The same for a field of a file.
pub(crate) fn from_file<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    listen_address(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_an_address_and_the_rest_is_named() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("0.0.0.0:0", "0.0.0.0:0"),
        ] {
            assert_eq!(listen_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["", ":", "127.0.0.1", "99999", "example.org:80", "-1", "1:2:3", "http://localhost:8080"]
        {
            let error = listen_address(text).unwrap_err();
            assert!(error.contains(text) && error.contains("write 127.0.0.1:8080"), "{error}");
        }
    }
}
