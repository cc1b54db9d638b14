//! Keeps this host's key, its certificate and the authority's certificate in one file.

use std::fmt;
use std::path::Path;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use serde::{Deserialize, Serialize};

use super::{IdentityError, bytes_text, private_file};

const FILE: &str = "host.json";
const REVOKED: &str = "revoked.json";

/// The host that has the fleet's authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetIssuer {
    pub host: String,
    /// Peer port of the host when this was written.
    pub address: String,
}

/// A certificate that an authority has signed, and what goes with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    pub fleet: String,
    pub host: String,
    pub serial: String,
    /// Seconds since 1970.
    pub issued: u64,
    pub expires: u64,
    #[serde(with = "bytes_text")]
    pub certificate: Vec<u8>,
    #[serde(with = "bytes_text")]
    pub authority: Vec<u8>,
    pub issuer: FleetIssuer,
}

/// A host as the fleet knows it, with its private key.
#[derive(Clone, Serialize, Deserialize)]
pub struct HostIdentity {
    pub fleet: String,
    pub host: String,
    /// Where other hosts reach its peer port.
    pub address: String,
    pub issuer: FleetIssuer,
    pub serial: String,
    /// Seconds since 1970.
    pub issued: u64,
    pub expires: u64,
    #[serde(with = "bytes_text")]
    pub(crate) key: Vec<u8>,
    #[serde(with = "bytes_text")]
    pub(crate) certificate: Vec<u8>,
    #[serde(with = "bytes_text")]
    pub(crate) authority: Vec<u8>,
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key: this output ends up in logs and bug reports.
        let mut text = f.debug_struct("HostIdentity");
        text.field("fleet", &self.fleet).field("host", &self.host).field("serial", &self.serial);
        text.finish_non_exhaustive()
    }
}

impl HostIdentity {
    /// The identity that an authority has granted.
    pub(crate) fn of(grant: Grant, address: String, key: Vec<u8>) -> Self {
        let Grant { fleet, host, serial, issued, expires, certificate, authority, issuer } = grant;
        Self { fleet, host, address, issuer, serial, issued, expires, key, certificate, authority }
    }

    pub fn read(folder: &Path) -> Result<Self, IdentityError> {
        private_file::read(&folder.join(FILE))
    }

    pub fn exists(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    pub fn write(&self, folder: &Path) -> Result<(), IdentityError> {
        private_file::make_folder(folder)?;
        private_file::write(&folder.join(FILE), self)
    }

    /// The time from which on the certificate is to be renewed: a third of its life is left then.
    pub fn renews_at(&self) -> u64 {
        self.expires.saturating_sub(self.expires.saturating_sub(self.issued) / 3)
    }
}

/// Serials that this host has seen revoked; they stay so when the store forgets them.
pub(crate) fn read_revoked(folder: &Path) -> Vec<String> {
    private_file::read(&folder.join(REVOKED)).unwrap_or_default()
}

pub(crate) fn write_revoked(folder: &Path, serials: &[String]) -> Result<(), IdentityError> {
    private_file::write(&folder.join(REVOKED), &serials)
}

/// A new key: as it is kept, and ready for use.
pub(crate) fn new_key() -> Result<(Vec<u8>, Ed25519KeyPair), IdentityError> {
    let secret = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| IdentityError::Random)?;
    let key = Ed25519KeyPair::from_pkcs8(secret.as_ref());
    let key = key.map_err(|error| IdentityError::Key(error.to_string()))?;
    Ok((secret.as_ref().to_vec(), key))
}
