//! Parses the address of a file on an HTTP server: scheme, host and path.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use http::Uri;
use http::uri::Authority;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{HubError, HubFailure};

/// Longest address that is read; a signed one of the hub has some 1500 bytes.
const LONGEST: usize = 16 << 10;
/// Characters of a path that mean themselves (RFC 3986, unreserved, and the separator).
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Absolute address with http or https. It prints without its query, which may hold a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    secure: bool,
    authority: String,
    path: String,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, HubError> {
        Self::read(text).ok_or_else(|| HubFailure::NoAddress.of(printable(text)))
    }

    fn read(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok().filter(|_| text.len() <= LONGEST)?;
        let authority = uri.authority()?.as_str();
        // A name and password in an address would end up in messages and in the answer.
        if authority.contains('@') || uri.host().is_none_or(str::is_empty) {
            return None;
        }
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        Some(Self { secure, authority: authority.to_ascii_lowercase(), path: path.to_owned() })
    }

    /// The address that a redirect from here leads to; `None` where it may not be followed.
    pub(crate) fn redirected(&self, location: &str) -> Option<Self> {
        let next = match location.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => {
                let path: http::uri::PathAndQuery = location.parse().ok()?;
                Self { path: path.as_str().to_owned(), ..self.clone() }
            }
            _ => Self::read(location)?,
        };
        (next.secure || !self.secure).then_some(next)
    }

    /// An address below this one; `path` is not encoded yet.
    pub(crate) fn below(&self, path: &str) -> Self {
        let path = utf8_percent_encode(path, &PLAIN);
        Self { path: format!("{}/{path}", self.path.trim_end_matches('/')), ..self.clone() }
    }

    pub(crate) fn with_query(self, query: &str) -> Self {
        Self { path: format!("{}?{query}", self.path), ..self }
    }

    /// True where a secret for `self` may go to `other`: the same host, over a connection that others cannot
    /// read.
    pub(crate) fn trusts(&self, other: &Self) -> bool {
        self.authority == other.authority && (other.secure || other.is_loopback() && !self.secure)
    }

    /// True for another address of the same server.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.authority == other.authority
    }

    /// True for this machine, which no proxy leads to.
    pub(crate) fn is_loopback(&self) -> bool {
        let Ok(authority) = self.authority.parse::<Authority>() else { return false };
        let host = authority.host().trim_matches(['[', ']']);
        // A name may begin like an address: `127.0.0.1.example`.
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// True for a host that is named by an address outside the public network, or as this machine.
    pub(crate) fn is_private(&self) -> bool {
        let Ok(authority) = self.authority.parse::<Authority>() else { return true };
        let host = authority.host().trim_matches(['[', ']']).trim_end_matches('.');
        let is_local = host == "localhost" || host.ends_with(".localhost");
        is_local || host.parse::<IpAddr>().is_ok_and(|address| !is_public(address))
    }

    /// The whole address, with its query.
    pub(crate) fn full(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }

    fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// The same address with another path, as the files of a set have.
    pub(crate) fn with_path(&self, path: &str) -> Self {
        let query = self.path.split_once('?').map_or_else(String::new, |(_, query)| format!("?{query}"));
        Self { path: format!("{path}{query}"), ..self.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path())
    }
}

/// True for an address that anyone may reach (IANA's registries of special-purpose addresses).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => {
            // An address of IPv4 within one of IPv6, by any of the ways to write one.
            let inner = match address.segments() {
                [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                    Some((high, low))
                }
                [0x2002, high, low, ..] => Some((high, low)),
                _ => None,
            };
            match inner {
                Some((high, low)) => is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
                // Only 2000::/3 is given out; 2001:db8::/32 is for documents, 2001::/23 for protocols.
                None => {
                    let [first, second, ..] = address.segments();
                    first & 0xe000 == 0x2000 && !(first == 0x2001 && (second == 0xdb8 || second < 0x200))
                }
            }
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_of_protocols = first == 192 && second == 0 && third == 0;
    let is_of_benchmarks = first == 198 && (18..20).contains(&second);
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation();
    // 240.0.0.0/4 is reserved, and 0.0.0.0/8 is this machine.
    !(is_special || is_shared || is_of_protocols || is_of_benchmarks || first == 0 || first >= 240)
}

/// Foreign text fit for a terminal and a message.
pub(crate) fn printable(text: &str) -> String {
    const SHOWN: usize = 200;
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_may_change_host_and_path_but_never_leave_https() {
        let from = Address::parse("https://hub.example/a/b?x=1").unwrap();
        let to = |location: &str| from.redirected(location).map(|address| address.full());
        assert_eq!(to("/c?d"), Some("https://hub.example/c?d".to_owned()));
        assert_eq!(to("https://CDN.example:8443/x"), Some("https://cdn.example:8443/x".to_owned()));
        for location in
            ["http://hub.example/a", "//evil.example/x", "ftp://x/y", "c", "", "https://a@b/", "/ä \n"]
        {
            assert_eq!(to(location), None, "{location}");
        }
        let plain = Address::parse("http://hub.example/a").unwrap();
        assert!(plain.redirected("https://hub.example/a").is_some_and(|next| plain.trusts(&next)));
        assert!(!from.trusts(&plain) && !from.trusts(&Address::parse("https://hub.example:444/a").unwrap()));
    }

    #[test]
    fn a_secret_goes_over_plain_http_to_this_machine_alone() {
        for (text, trusted) in [
            ("http://127.0.0.1:8080/", true),
            ("http://127.9.9.9/", true),
            ("http://[::1]:1/", true),
            ("http://localhost/", true),
            ("https://hub.example/", true),
            ("http://hub.example/", false),
            ("http://10.0.0.1/", false),
            ("http://127.0.0.1.example/", false),
            ("http://127.evil:80/", false),
            ("http://localhost.example/", false),
        ] {
            let hub = Address::parse(text).unwrap();
            assert_eq!(hub.trusts(&hub), trusted, "{text}");
        }
    }

    #[test]
    fn the_public_network_is_what_is_left_of_all_addresses() {
        for private in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2001:db8::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in
            ["1.1.1.1", "100.128.0.1", "172.32.0.1", "2606:4700::1", "::ffff:8.8.8.8", "2002:808:808::"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for (text, is_private) in [
            ("http://localhost:1/", true),
            ("http://a.localhost./", true),
            ("https://[::1]/", true),
            ("https://127.0.0.1.example/", false),
            ("https://hub.example/", false),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_private(), is_private, "{text}");
        }
    }

    #[test]
    fn malformed_addresses_are_rejected_and_queries_are_not_printed() {
        for text in
            ["", "model.gguf", "/a/b", "file:///a", "https://", "https://user:secret@h/x", "http:///x"]
        {
            assert!(Address::parse(text).is_err(), "{text}");
        }
        assert!(Address::parse(&format!("https://h/{}", "x".repeat(20_000))).is_err());
        let signed = Address::parse("https://h/m.gguf?signature=secret").unwrap();
        assert_eq!(signed.to_string(), "https://h/m.gguf");
        let below = Address::parse("http://h:1/sub/").unwrap().below("u/r/resolve/main/a b#?.gguf");
        assert_eq!(below.full(), "http://h:1/sub/u/r/resolve/main/a%20b%23%3F.gguf");
    }
}
