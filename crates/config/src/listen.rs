//! Parses addresses to listen on: `127.0.0.1:8080`, `localhost:8080`, `8080`, `:8080`, or several between
//! commas.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer};

/// Reads an address. A port alone is on this machine; a port after a colon is on every interface, as Go's
/// programs take it.
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

/// The most addresses of one server; far more than machines have networks.
const MOST: usize = 16;

/// Reads addresses between commas.
pub fn listen_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let addresses = text.split(',').map(listen_address).collect::<Result<Vec<_>, _>>()?;
    few_enough(addresses)
}

fn few_enough(addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    match addresses.len() {
        ..=MOST => Ok(addresses),
        count => Err(format!("{count} addresses to listen on are too many; write at most {MOST}")),
    }
}

/// The same for a field of a file: one text, or a list of them.
pub(crate) fn from_file<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "write an address such as \"127.0.0.1:8080\" or \":8080\", a port, or a list of them"
    )]
    enum Addresses {
        Port(u16),
        One(String),
        Several(Vec<String>),
    }
    let texts = match Addresses::deserialize(deserializer)? {
        Addresses::Port(port) => vec![port.to_string()],
        Addresses::One(text) => vec![text],
        Addresses::Several(texts) => texts,
    };
    let read: Result<Vec<_>, _> = texts.iter().map(|text| listen_addresses(text)).collect();
    read.and_then(|read| few_enough(read.concat())).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_addresses_stand_between_commas() {
        let both = listen_addresses("127.0.0.1:1, [::1]:1").unwrap();
        assert_eq!(both, ["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
        for text in ["8080,", ",", "8080,x", &"1,".repeat(20)] {
            assert!(listen_addresses(text).is_err(), "{text}");
        }
        assert!(listen_addresses(&["1"; 17].join(",")).unwrap_err().contains("at most 16"));
    }

    #[test]
    fn listen_addresses_parse_in_all_usual_forms_and_others_are_rejected() {
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
