//! Parses the address of the fleet's store (etcd): `etcd://HOST[:PORT],HOST[:PORT],…[/FLEET]`, or `etcds://…`
//! over TLS.

use std::str::FromStr;

use plimsoll_fleet::KeySpace;

const PORT: u16 = 2379;
const FLEET: &str = "default";
/// etcd is run with up to seven members.
const MOST_MEMBERS: usize = 16;

/// Members of a store, and the name of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    pub members: Vec<String>,
    pub fleet: String,
    /// The members speak TLS.
    pub is_encrypted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a valid address of a fleet's store: {why}; write etcd://HOST,HOST,HOST or etcd://HOST:PORT/FLEET, or etcds:// over TLS"
)]
pub struct StoreAddressError {
    text: String,
    why: &'static str,
}

impl FromStr for StoreAddress {
    type Err = StoreAddressError;

    fn from_str(text: &str) -> Result<Self, StoreAddressError> {
        let fail = |why| StoreAddressError { text: text.chars().take(200).collect(), why };
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let is_encrypted = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(fail("the address does not begin with etcd:// or etcds://")),
        };
        let (members, fleet) = rest.split_once('/').unwrap_or((rest, FLEET));
        let fleet = if fleet.is_empty() { FLEET } else { fleet };
        if !KeySpace::is_name(fleet) {
            return Err(fail("the fleet's name has letters other than a-z, 0-9, '-', '.' and '_'"));
        }
        let members: Vec<String> = members
            .split(',')
            .map(member)
            .collect::<Option<_>>()
            .ok_or_else(|| fail("a member is not HOST or HOST:PORT"))?;
        if members.len() > MOST_MEMBERS {
            return Err(fail("the address names more than 16 members"));
        }
        Ok(Self { members, fleet: fleet.to_owned(), is_encrypted })
    }
}

fn member(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address stands in brackets.
        Some((host, port)) if !text.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, PORT),
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_letter)).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_members_and_fleet() {
        let read = |text: &str| text.parse::<StoreAddress>().map(|it| (it.members.join(" "), it.fleet));
        for (text, members, fleet) in [
            ("etcd://a", "a:2379", "default"),
            ("etcd://a,b:1,c", "a:2379 b:1 c:2379", "default"),
            ("etcd://10.0.0.1:2379/lab", "10.0.0.1:2379", "lab"),
            ("etcd://[::1],[::2]:5/", "[::1]:2379 [::2]:5", "default"),
        ] {
            assert_eq!(read(text), Ok((members.to_owned(), fleet.to_owned())));
        }
        for (text, is_encrypted) in [("etcd://a", false), ("etcds://a:1/lab", true)] {
            assert_eq!(text.parse().map(|it: StoreAddress| it.is_encrypted), Ok(is_encrypted));
        }
        let many = format!("etcd://{}", ["a"; 17].join(","));
        for text in
            ["", "a", "http://a", "etcd://", "etcd://a,,b", "etcd://a:x", "etcd://a b", "etcd://a/b/c", &many]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
