//! Runs the certificate authority of a fleet: signs certificates, registers them, and makes invitations.
//!
//! Its files are in the folder `authority` of one host. The command line and the daemon both use them, one at
//! a time.

mod refusal;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};

pub use self::refusal::AdmissionRefusal;
use super::certificate::{CertificateText, Holder, sign};
use super::host::{FleetIssuer, Grant, HostIdentity, new_key};
use super::invitation::Invitation;
use super::join::JoinRequest;
use super::private_file::{self, FolderLock};
use super::verify::host_uri;
use super::{IdentityError, bytes_text, hex, is_name, random, sha256};

/// Time for which the authority's own certificate is good.
const LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Clocks of hosts may differ by so much.
const SKEW: u64 = 3600;
/// Length of an Ed25519 key.
const KEY: usize = 32;
/// Certificates that count at a time.
const MOST: usize = 20_000;
/// Those of one host. A host has two while it renews, and ten attempts of which the answers were lost.
///
/// DECISION: a share of the register for each host. A host that renews without end is then refused, its
/// certificates can be revoked in one transaction of the store, and it leaves room for others.
const MOST_OF_HOST: usize = 16;

#[derive(Serialize, Deserialize)]
struct AuthorityFile {
    fleet: String,
    /// Time for which a host's certificate is good.
    lifetime_seconds: u64,
    issuer: FleetIssuer,
    #[serde(with = "bytes_text")]
    key: Vec<u8>,
    #[serde(with = "bytes_text")]
    certificate: Vec<u8>,
}

/// A certificate of a host, in the register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    pub serial: String,
    pub host: String,
    /// Seconds since 1970.
    pub expires: u64,
    pub is_revoked: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct InvitationFile {
    expires: u64,
}

/// The authority of a fleet, with its key.
pub struct FleetAuthority {
    folder: PathBuf,
    file: AuthorityFile,
    key: Ed25519KeyPair,
}

impl std::fmt::Debug for FleetAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetAuthority").field("fleet", &self.file.fleet).finish_non_exhaustive()
    }
}

fn folder_of(identity: &Path) -> PathBuf {
    identity.join("authority")
}

fn unsigned(error: rcgen::Error) -> IdentityError {
    IdentityError::Key(error.to_string())
}

impl FleetAuthority {
    /// Makes an authority and the identity of its host in an empty folder.
    pub fn create(
        identity: &Path,
        fleet: &str,
        issuer: FleetIssuer,
        lifetime: Duration,
        now: u64,
    ) -> Result<Self, IdentityError> {
        let wrong = [fleet, &issuer.host].into_iter().find(|name| !is_name(name));
        if let Some(name) = wrong {
            return Err(IdentityError::Name(name.to_owned()));
        }
        let folder = folder_of(identity);
        private_file::make_folder(&folder.join("invitations"))?;
        let _lock = FolderLock::take(&folder)?;
        let path = folder.join("authority.json");
        if path.exists() {
            return Err(IdentityError::Exists(path));
        }
        let (secret, key) = new_key()?;
        let text = CertificateText {
            serial: &serial()?,
            issuer: fleet,
            subject: fleet,
            holder: Holder::Authority,
            public_key: key.public_key().as_ref(),
            not_before: now.saturating_sub(SKEW),
            not_after: now + LIFE.as_secs(),
        };
        let certificate = sign(&text, &key).map_err(unsigned)?;
        let lifetime_seconds = lifetime.as_secs().max(1);
        let file =
            AuthorityFile { fleet: fleet.to_owned(), lifetime_seconds, issuer, key: secret, certificate };
        let authority = Self { folder, file, key };
        let (host_key, host_pair) = new_key()?;
        let (name, address) = (authority.file.issuer.host.clone(), authority.file.issuer.address.clone());
        let grant = authority.sign(&name, host_pair.public_key().as_ref(), now)?;
        HostIdentity::of(grant, address, host_key).write(identity)?;
        // Last, so that a folder with an authority is whole.
        private_file::write(&path, &authority.file)?;
        Ok(authority)
    }

    /// The authority in the folder of this host's identity; `None` if another host has it.
    pub fn open(identity: &Path) -> Result<Option<Self>, IdentityError> {
        let folder = folder_of(identity);
        let path = folder.join("authority.json");
        if !path.exists() {
            return Ok(None);
        }
        let file: AuthorityFile = private_file::read(&path)?;
        let key = Ed25519KeyPair::from_pkcs8(&file.key);
        let key = key.map_err(|error| IdentityError::Key(error.to_string()))?;
        Ok(Some(Self { folder, file, key }))
    }

    /// SHA-256 of the certificate.
    pub fn digest(&self) -> String {
        sha256(&self.file.certificate)
    }

    pub fn lifetime(&self) -> Duration {
        Duration::from_secs(self.file.lifetime_seconds)
    }

    /// Makes an invitation for one host.
    pub fn invite(&self, valid: Duration, now: u64) -> Result<Invitation, IdentityError> {
        let _lock = FolderLock::take(&self.folder)?;
        self.forget_invitations(now);
        let secret = hex(&random::<32>()?);
        let path = self.invitation(&secret);
        private_file::write(&path, &InvitationFile { expires: now.saturating_add(valid.as_secs()) })?;
        let address = self.file.issuer.address.clone();
        Ok(Invitation { fleet: self.file.fleet.clone(), address, digest: self.digest(), secret })
    }

    /// Signs the certificate of an invited host. The invitation is used up by that, and by nothing else.
    pub fn admit(&self, request: &JoinRequest, now: u64) -> Result<Grant, AdmissionRefusal> {
        let _lock = FolderLock::take(&self.folder)?;
        // Its digest names the file, so a guess of any length or letters reaches no other one.
        let path = self.invitation(&request.secret);
        let used = path.with_extension("used");
        if used.exists() {
            return Err(AdmissionRefusal::Used);
        }
        if !path.exists() {
            return Err(AdmissionRefusal::Unknown);
        }
        if private_file::read::<InvitationFile>(&path)?.expires <= now {
            return Err(AdmissionRefusal::Expired);
        }
        if !is_name(&request.host) {
            return Err(AdmissionRefusal::Name(request.host.chars().take(80).collect()));
        }
        let counts = |one: &IssuedCertificate| one.host == request.host && !one.is_revoked;
        if request.public_key.len() != KEY {
            return Err(AdmissionRefusal::PublicKey);
        }
        if self.issued(now)?.iter().any(counts) {
            return Err(AdmissionRefusal::Taken(request.host.clone()));
        }
        fs::rename(&path, &used).map_err(|error| IdentityError::Write { path, error })?;
        Ok(self.sign(&request.host, &request.public_key, now)?)
    }

    /// Signs a new certificate for a host that has shown its present one.
    pub fn renew(
        &self,
        host: &str,
        serial: &str,
        public_key: &[u8],
        now: u64,
    ) -> Result<Grant, AdmissionRefusal> {
        let _lock = FolderLock::take(&self.folder)?;
        if public_key.len() != KEY {
            return Err(AdmissionRefusal::PublicKey);
        }
        let issued = self.issued(now)?;
        let present = issued.iter().find(|one| one.serial == serial && one.host == host && !one.is_revoked);
        present.ok_or_else(|| AdmissionRefusal::Revoked(host.to_owned()))?;
        if issued.iter().filter(|one| one.host == host && !one.is_revoked).count() >= MOST_OF_HOST {
            return Err(AdmissionRefusal::Often(host.to_owned()));
        }
        Ok(self.sign(host, public_key, now)?)
    }

    /// Signs a new certificate for the host that has this authority.
    pub(crate) fn sign_own(&self, host: &str, public_key: &[u8], now: u64) -> Result<Grant, IdentityError> {
        let _lock = FolderLock::take(&self.folder)?;
        self.sign(host, public_key, now)
    }

    /// Marks all certificates of a host as revoked, and gives them; later ones are not signed for them.
    pub fn revoke(&self, host: &str, now: u64) -> Result<Vec<IssuedCertificate>, IdentityError> {
        let _lock = FolderLock::take(&self.folder)?;
        let mut issued = self.issued(now)?;
        let its = issued.iter_mut().filter(|one| one.host == host);
        its.for_each(|one| one.is_revoked = true);
        private_file::write(&self.register(), &issued)?;
        Ok(issued.into_iter().filter(|one| one.host == host).collect())
    }

    /// Certificates that have not expired.
    pub fn issued(&self, now: u64) -> Result<Vec<IssuedCertificate>, IdentityError> {
        let path = self.register();
        if !path.exists() {
            return Ok(Vec::new());
        }
        let mut issued: Vec<IssuedCertificate> = private_file::read(&path)?;
        issued.retain(|one| one.expires > now);
        Ok(issued)
    }

    /// Signs a certificate and enters it in the register; the caller has the lock.
    fn sign(&self, host: &str, public_key: &[u8], now: u64) -> Result<Grant, IdentityError> {
        let serial = serial()?;
        let expires = now.saturating_add(self.file.lifetime_seconds);
        let text = CertificateText {
            serial: &serial,
            issuer: &self.file.fleet,
            subject: host,
            holder: Holder::Host { uri: &host_uri(&self.file.fleet, host) },
            public_key,
            not_before: now.saturating_sub(SKEW),
            not_after: expires,
        };
        let certificate = sign(&text, &self.key).map_err(unsigned)?;
        let mut issued = self.issued(now)?;
        // Revoked ones stay until they expire, so that a revocation can be repeated, and take no room.
        if issued.iter().filter(|one| !one.is_revoked).count() >= MOST {
            return Err(IdentityError::Key(format!("at most {MOST} certificates can be valid at a time")));
        }
        let serial = hex(&serial);
        issued.push(IssuedCertificate {
            serial: serial.clone(),
            host: host.to_owned(),
            expires,
            is_revoked: false,
        });
        private_file::write(&self.register(), &issued)?;
        Ok(Grant {
            fleet: self.file.fleet.clone(),
            host: host.to_owned(),
            serial,
            issued: now,
            expires,
            certificate,
            authority: self.file.certificate.clone(),
            issuer: self.file.issuer.clone(),
        })
    }

    fn register(&self) -> PathBuf {
        self.folder.join("issued.json")
    }

    fn invitation(&self, secret: &str) -> PathBuf {
        self.folder.join("invitations").join(sha256(secret.as_bytes()))
    }

    /// Removes what expired a day ago; until then a late host gets the reason.
    fn forget_invitations(&self, now: u64) {
        let Ok(entries) = fs::read_dir(self.folder.join("invitations")) else { return };
        for entry in entries.flatten().map(|entry| entry.path()) {
            let file = private_file::read::<InvitationFile>(&entry);
            if file.is_ok_and(|file| file.expires.saturating_add(24 * 3600) < now) {
                let _ = fs::remove_file(&entry);
            }
        }
    }
}

/// A random positive serial number, with a first byte that is not zero.
fn serial() -> Result<[u8; 16], IdentityError> {
    let mut serial = random::<16>()?;
    serial[0] = (serial[0] & 0x7f) | 0x40;
    Ok(serial)
}
