//! Opens TLS 1.3 connections between hosts, with a certificate on each side.
//!
//! DECISION: no session is resumed. A resumed session would not be verified again, and connections between
//! hosts are kept anyway.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::IdentityError;
use super::host::HostIdentity;
use super::verify::{PeerCertificate, PeerVerifier, RevokedSerials};

/// Bytes of answers that may wait in the TLS layer; what is more waits where it comes from.
const BUFFER: usize = 256 * 1024;

/// Why a handshake failed, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedHandshake(String);

/// Why a peer failed authentication. It is the error within that of a connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DistrustedHost(String);

impl DistrustedHost {
    /// True if a connection failed because the other side is not the host, and not because it is not reached.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl From<DistrustedHost> for io::Error {
    fn from(distrusted: DistrustedHost) -> Self {
        Self::other(distrusted)
    }
}

/// TLS of this host towards others: both sides show certificates of the fleet.
#[derive(Clone)]
pub struct PeerTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    fleet: String,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(error: impl fmt::Display) -> IdentityError {
    IdentityError::Key(error.to_string())
}

impl PeerTls {
    /// `takes_strangers` for the host that has the authority: hosts with an invitation have no certificate
    /// yet.
    pub fn new(
        identity: &HostIdentity,
        revoked: &RevokedSerials,
        takes_strangers: bool,
    ) -> Result<Self, IdentityError> {
        let authority = CertificateDer::from(identity.authority.clone());
        let verifier = || PeerVerifier::of(&authority, &identity.fleet, revoked.clone(), provider());
        // The authority's own goes along, for hosts that know it by its digest only.
        let chain = || vec![CertificateDer::from(identity.certificate.clone()), authority.clone()];
        let key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.clone()));
        let mut accepting = verifier()?;
        accepting.takes_strangers = takes_strangers;
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(unusable)?.with_client_cert_verifier(Arc::new(accepting));
        let mut config = builder.with_single_cert(chain(), key()).map_err(unusable)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let mut connecting = client_config(verifier()?, Some((chain(), key())))?;
        connecting.resumption = rustls::client::Resumption::disabled();
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            connector: TlsConnector::from(Arc::new(connecting)),
            fleet: identity.fleet.clone(),
        })
    }

    /// Takes a connection. Without a certificate the other side is a stranger.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<(server::TlsStream<S>, Option<PeerCertificate>), RefusedHandshake> {
        let accepted = self.acceptor.accept_with(stream, |connection| {
            connection.set_buffer_limit(Some(BUFFER));
        });
        let stream = accepted.await.map_err(|error| RefusedHandshake(in_words(&error)))?;
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = match shown.and_then(|shown| shown.first()) {
            Some(certificate) => {
                let read = PeerCertificate::read(certificate, &self.fleet);
                Some(read.ok_or_else(|| RefusedHandshake("its certificate names no host".to_owned()))?)
            }
            None => None,
        };
        Ok((stream, certificate))
    }

    /// Opens a connection to this host of the fleet, and to no other one that answers in its place.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
    ) -> io::Result<client::TlsStream<S>> {
        let stream = connect(&self.connector, stream).await.map_err(|error| {
            if matches!(tls_error(&error), Some(rustls::Error::InvalidCertificate(_))) {
                DistrustedHost(in_words(&error)).into()
            } else {
                error
            }
        })?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
        let peer = shown.and_then(|shown| PeerCertificate::read(shown, &self.fleet));
        match peer {
            Some(peer) if peer.host == host => Ok(stream),
            Some(peer) => {
                Err(DistrustedHost(format!("host '{}' answered at the address of host '{host}'", peer.host))
                    .into())
            }
            None => Err(DistrustedHost("its certificate names no host".to_owned()).into()),
        }
    }
}

/// Opens a connection to the host of an invitation, whose authority is known by its digest.
pub(crate) async fn connect_pinned<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    digest: &str,
    fleet: &str,
) -> Result<client::TlsStream<S>, IdentityOrIo> {
    let config = client_config(PeerVerifier::pinned(digest, fleet, provider()), None)?;
    Ok(connect(&TlsConnector::from(Arc::new(config)), stream).await?)
}

/// Failure of a connection with a key or certificate, or of its bytes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityOrIo {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{}", in_words(.0))]
    Io(#[from] io::Error),
}

fn client_config(
    verifier: PeerVerifier,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, IdentityError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(unusable)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(unusable)?,
        None => builder.with_no_client_auth(),
    };
    // The name below is nobody's, and need not travel.
    config.enable_sni = false;
    Ok(config)
}

async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    connector: &TlsConnector,
    stream: S,
) -> io::Result<client::TlsStream<S>> {
    let name = ServerName::try_from("host.plimsoll").map_err(io::Error::other)?;
    connector.connect_with(name, stream, |connection| connection.set_buffer_limit(Some(BUFFER))).await
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Meaning of a failed handshake for an operator.
fn in_words(error: &io::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    let words = match tls_error(error) {
        Some(Error::InvalidCertificate(wrong)) => match wrong {
            CertificateError::Revoked => "its certificate is revoked",
            CertificateError::Expired => "its certificate has expired; let the host join again",
            CertificateError::NotValidYet => "its certificate is not valid yet; compare the clocks",
            CertificateError::UnknownIssuer => "its certificate belongs to another fleet",
            CertificateError::NotValidForName => "its certificate names no host of this fleet",
            _ => "its certificate cannot be read",
        },
        Some(Error::NoCertificatesPresented) => "it presents no certificate of the fleet",
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => "it asks for a certificate",
        Some(Error::AlertReceived(alert)) => return format!("it refuses this host: {alert:?}"),
        Some(Error::InvalidMessage(_)) => "it does not speak TLS",
        _ => return error.to_string(),
    };
    words.to_owned()
}
