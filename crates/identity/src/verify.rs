//! Verifies a host's certificate on either side of a TLS connection: chain of trust, name, and revocation.
//!
//! A host's name is a URI in its certificate. The network address of a host is not checked. `rustls-webpki`
//! parses the certificates.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::{IdentityError, hex, host, is_name, sha256};

/// Revoked certificates that are kept, by file and by all verifiers of a host.
const MOST_REVOKED: usize = 100_000;

/// Name of a host in its certificate.
pub(crate) fn host_uri(fleet: &str, host: &str) -> String {
    format!("plimsoll://{fleet}/host/{host}")
}

/// Content of a verified host's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    pub host: String,
    pub serial: String,
}

impl PeerCertificate {
    /// Reads a certificate of a host of `fleet`; `None` if it names none.
    pub(crate) fn read(certificate: &CertificateDer<'_>, fleet: &str) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let beginning = host_uri(fleet, "");
        let host = certificate.valid_uri_names().find_map(|uri| uri.strip_prefix(&beginning))?;
        let serial = hex(certificate.serial());
        is_name(host).then(|| Self { host: host.to_owned(), serial })
    }
}

/// Serial numbers of revoked certificates: shared by all connections of a host, and kept in its folder.
#[derive(Clone, Debug, Default)]
pub struct RevokedSerials {
    serials: Arc<RwLock<HashSet<String>>>,
    folder: PathBuf,
}

impl RevokedSerials {
    /// Those that this host has heard of before.
    pub fn read(folder: &Path) -> Self {
        let serials = host::read_revoked(folder).into_iter().collect();
        Self { serials: Arc::new(RwLock::new(serials)), folder: folder.to_owned() }
    }

    pub fn contains(&self, serial: &str) -> bool {
        // A thread that panicked while it held the lock has only added whole serials.
        self.serials.read().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(serial)
    }

    /// Adds the store's revocations; returns the new ones. They are never taken back.
    pub fn add<'a>(
        &self,
        reported: impl Iterator<Item = &'a String>,
    ) -> (Vec<String>, Result<(), IdentityError>) {
        let mut serials = self.serials.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let room = MOST_REVOKED.saturating_sub(serials.len());
        let new: Vec<String> =
            reported.filter(|serial| !serials.contains(*serial)).take(room).cloned().collect();
        if new.is_empty() {
            return (new, Ok(()));
        }
        serials.extend(new.iter().cloned());
        let mut all: Vec<String> = serials.iter().cloned().collect();
        all.sort();
        (new, host::write_revoked(&self.folder, &all))
    }
}

/// Purpose for which an authority's certificate is trusted.
enum Trusted {
    /// This authority.
    Anchor(TrustAnchor<'static>),
    /// The authority that the other side sends, if this is the digest of its certificate.
    Digest(String),
}

/// Verifier of the other side's certificate.
pub(crate) struct PeerVerifier {
    trusted: Trusted,
    fleet: String,
    revoked: RevokedSerials,
    /// A client without a certificate may come: it has an invitation, or is refused later.
    pub(crate) takes_strangers: bool,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for PeerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerVerifier").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

impl PeerVerifier {
    pub(crate) fn of(
        authority: &CertificateDer<'_>,
        fleet: &str,
        revoked: RevokedSerials,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, IdentityError> {
        let anchor = anchor_from_trusted_cert(authority);
        let anchor = anchor.map_err(|error| IdentityError::Key(error.to_string()))?.to_owned();
        let (fleet, trusted) = (fleet.to_owned(), Trusted::Anchor(anchor));
        Ok(Self { trusted, fleet, revoked, takes_strangers: false, provider })
    }

    /// For a host that knows the authority by the digest of an invitation only.
    pub(crate) fn pinned(digest: &str, fleet: &str, provider: Arc<CryptoProvider>) -> Self {
        let (trusted, fleet) = (Trusted::Digest(digest.to_owned()), fleet.to_owned());
        Self { trusted, fleet, revoked: RevokedSerials::default(), takes_strangers: false, provider }
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<(), Error> {
        let sent = match &self.trusted {
            Trusted::Anchor(_) => None,
            Trusted::Digest(digest) => {
                let sent = chain.last().filter(|sent| sha256(sent) == *digest);
                Some(sent.ok_or(CertificateError::UnknownIssuer)?)
            }
        };
        let anchor = match (&self.trusted, sent) {
            (Trusted::Anchor(anchor), _) => anchor.clone(),
            (_, Some(sent)) => anchor_from_trusted_cert(sent).map_err(reported)?,
            (_, None) => return Err(CertificateError::UnknownIssuer.into()),
        };
        let entity = EndEntityCert::try_from(certificate).map_err(reported)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        // The authority signs hosts itself, so whatever else is sent takes no part.
        entity
            .verify_for_usage(algorithms, std::slice::from_ref(&anchor), &[], now, usage, None, None)
            .map_err(reported)?;
        let peer = PeerCertificate::read(certificate, &self.fleet);
        let peer = peer.ok_or(CertificateError::NotValidForName)?;
        if self.revoked.contains(&peer.serial) { Err(CertificateError::Revoked.into()) } else { Ok(()) }
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }
}

fn reported(error: webpki::Error) -> Error {
    use webpki::Error as Wrong;
    Error::InvalidCertificate(match error {
        Wrong::CertExpired { .. } => CertificateError::Expired,
        Wrong::CertNotValidYet { .. } => CertificateError::NotValidYet,
        // An authority of the same name has another key.
        Wrong::UnknownIssuer | Wrong::InvalidSignatureForPublicKey => CertificateError::UnknownIssuer,
        Wrong::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        _ => CertificateError::BadEncoding,
    })
}

/// Hosts speak TLS 1.3 alone.
fn too_old() -> Error {
    Error::General("hosts of a fleet accept only TLS 1.3".to_owned())
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(certificate, chain, KeyUsage::server_auth(), now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.takes_strangers
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(certificate, chain, KeyUsage::client_auth(), now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
