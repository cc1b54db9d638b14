//! Lets the hosts of a fleet authenticate each other: certificate authority, invitations, and TLS.
//!
//! One host has the [`FleetAuthority`], which signs the certificate of each host. [`FleetAuthority::admit`]
//! signs for the secret of an [`Invitation`], [`FleetAuthority::renew`] for a host with a current
//! certificate. [`PeerTls`] connects two hosts that have verified each other.
//!
//! Private keys stay in files that only their host's user can read. The only data of this crate in the
//! fleet's store are the serial numbers of revoked certificates.
#![forbid(unsafe_code)]

mod authority;
mod certificate;
mod host;
mod invitation;
mod join;
mod private_file;
mod tls;
mod verify;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub use authority::{AdmissionRefusal, FleetAuthority, IssuedCertificate};
pub use host::{FleetIssuer, Grant, HostIdentity};
pub use invitation::{Invitation, InvitationError};
pub use join::{JOIN, JoinError, JoinRequest, RENEW, RenewRequest, join, renew};
pub use tls::{DistrustedHost, PeerTls, RefusedHandshake};
pub use verify::{PeerCertificate, RevokedSerials};

/// Port of hosts for each other, where an address names none.
pub const PEER_PORT: u16 = 7079;

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
    #[error("{} contains a secret, and other users can read it; hint: chmod 600, in a folder that this user owns", .0.display())]
    NotPrivate(PathBuf),
    #[error("{} is not a valid file of a fleet's identity: {error}", path.display())]
    Content { path: PathBuf, error: serde_json::Error },
    #[error("{} already exists; hint: remove the folder to start a new fleet", .0.display())]
    Exists(PathBuf),
    #[error(
        "`{0}` is not a valid name of a host or fleet; it may contain a-z, 0-9, '-', '.' and '_', 64 characters at most"
    )]
    Name(String),
    #[error("the operating system provides no random numbers")]
    Random,
    #[error("a key or certificate by which this host identifies itself in the fleet cannot be used: {0}")]
    Key(String),
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// True for a name that a host or a fleet may have.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(is_letter)
}

fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| IdentityError::Random)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// Bytes as text in a file: base64.
mod bytes_text {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map_err(de::Error::custom)
    }
}

// Tests of the public interface, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
extern crate self as plimsoll_identity;
#[cfg(test)]
#[path = "../tests/runner.rs"]
mod runner;
