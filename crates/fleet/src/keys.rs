//! Builds the keys of the fleet's store: a prefix for each fleet and format version, then the record's kind
//! and name.

/// Longest name of a host or of a fleet.
const LONGEST_NAME: usize = 64;

/// Key of one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FleetKey {
    /// The registration of a host; goes with the host's lease.
    Host(String),
    /// Offers of hosts, by the digest of their content. Equal hosts share one record.
    Offers(String),
    /// Models that a host has loaded: advice for placement. Goes with the host's lease.
    State(String),
    /// The host of a model.
    Seat { model: String, number: u32 },
    /// Changed by each claim of a seat on the host.
    Turn(String),
    /// The operator's order that nothing more is seated on the host.
    Drain(String),
    /// A host's certificate that counts no more, by its serial number.
    Revoked(String),
    /// Files that a host lacks and may copy. Goes with the host's lease.
    Copies(String),
}

/// Names of the keys of one fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    prefix: String,
}

impl KeySpace {
    /// The keys of the fleet with this name; `None` for an invalid name.
    pub fn of(fleet: &str) -> Option<Self> {
        // The number is the format's: another one is another set of keys.
        Self::is_name(fleet).then(|| Self { prefix: format!("/plimsoll/{fleet}/1/") })
    }

    /// True for a name that a host or a fleet may have.
    pub fn is_name(name: &str) -> bool {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_letter)
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn text(&self, key: &FleetKey) -> String {
        let prefix = &self.prefix;
        match key {
            FleetKey::Host(name) => format!("{prefix}hosts/{name}"),
            FleetKey::Offers(digest) => format!("{prefix}offers/{digest}"),
            FleetKey::State(name) => format!("{prefix}state/{name}"),
            // The number comes last, because names of models may hold slashes.
            FleetKey::Seat { model, number } => format!("{prefix}seats/{model}/{number}"),
            FleetKey::Turn(name) => format!("{prefix}turns/{name}"),
            FleetKey::Drain(name) => format!("{prefix}drains/{name}"),
            FleetKey::Revoked(serial) => format!("{prefix}revoked/{serial}"),
            FleetKey::Copies(name) => format!("{prefix}copies/{name}"),
        }
    }

    /// Reads a key; `None` for one that this format does not know.
    pub fn read(&self, text: &str) -> Option<FleetKey> {
        let (kind, name) = text.strip_prefix(&self.prefix)?.split_once('/')?;
        let owned = || name.to_owned();
        if kind == "seats" {
            let (model, number) = name.rsplit_once('/')?;
            let number = number.parse().ok()?;
            return (!model.is_empty()).then(|| FleetKey::Seat { model: model.to_owned(), number });
        }
        if !Self::is_name(name) {
            return None;
        }
        Some(match kind {
            "hosts" => FleetKey::Host(owned()),
            "offers" => FleetKey::Offers(owned()),
            "state" => FleetKey::State(owned()),
            "turns" => FleetKey::Turn(owned()),
            "drains" => FleetKey::Drain(owned()),
            "revoked" => FleetKey::Revoked(owned()),
            "copies" => FleetKey::Copies(owned()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back() {
        let space = KeySpace::of("lab").unwrap();
        let name = || "h1".to_owned();
        for key in [
            FleetKey::Host(name()),
            FleetKey::Offers(name()),
            FleetKey::State(name()),
            FleetKey::Seat { model: "org/model:q4".to_owned(), number: 3 },
            FleetKey::Turn(name()),
            FleetKey::Drain(name()),
            FleetKey::Revoked(name()),
            FleetKey::Copies(name()),
        ] {
            assert_eq!(space.read(&space.text(&key)), Some(key));
        }
    }

    #[test]
    fn a_foreign_key_is_none() {
        let space = KeySpace::of("lab").unwrap();
        let long = format!("/plimsoll/lab/1/hosts/{}", "x".repeat(65));
        for text in [
            "",
            "/plimsoll/lab/1/",
            "/plimsoll/lab/2/hosts/a",
            "/plimsoll/lab/1/seats/a",
            "/plimsoll/lab/1/hosts/a b",
            &long,
        ] {
            assert_eq!(space.read(text), None, "{text}");
        }
        assert_eq!(KeySpace::of("a/b"), None);
        assert_eq!(KeySpace::of(""), None);
    }
}
