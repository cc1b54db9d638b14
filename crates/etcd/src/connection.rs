//! Connects to the members of the fleet's store (etcd) over TLS, and explains a failed handshake to the
//! operator.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_http::{BoxTransport, Connector};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::access::StoreAccess;

/// Age of settings from which the files are read again: certificates are renewed under the same names.
const RENEW: Duration = Duration::from_secs(600);

/// TLS towards all members.
#[derive(Debug)]
pub(crate) struct StoreTls {
    access: StoreAccess,
    current: Mutex<(Instant, Arc<ClientConfig>)>,
}

impl StoreTls {
    pub(crate) fn new(access: StoreAccess, first: ClientConfig) -> Self {
        Self { access, current: Mutex::new((Instant::now(), Arc::new(first))) }
    }

    /// Settings of the last ten minutes. Files that cannot be read now leave the former ones in use.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0.elapsed() >= RENEW {
            let renewed = self.access.tls().map_or_else(|_| Arc::clone(&current.1), Arc::new);
            *current = (Instant::now(), renewed);
        }
        Arc::clone(&current.1)
    }
}

/// Opens connections to one member.
#[derive(Debug)]
pub(crate) struct TlsMember {
    /// `HOST:PORT`.
    pub(crate) address: String,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) within: Duration,
}

impl Connector for TlsMember {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<BoxTransport>> + Send + '_>> {
        Box::pin(async move {
            let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let connector = TlsConnector::from(Arc::clone(&self.tls));
            let opened = timeout(self.within, async {
                let stream = TcpStream::connect(&self.address).await?;
                let _ = stream.set_nodelay(true);
                connector.connect(name, stream).await.map_err(without_tls)
            });
            let stream = opened.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            Ok(Box::new(stream) as BoxTransport)
        })
    }
}

/// A member that speaks plain HTTP ends the connection.
fn without_tls(error: io::Error) -> io::Error {
    const ENDED: &str =
        "the store ended the TLS handshake; hint: the address of a store without TLS begins with etcd://";
    if error.kind() == io::ErrorKind::UnexpectedEof { io::Error::new(error.kind(), ENDED) } else { error }
}

/// The failure of TLS within an error, with its remedy.
pub(crate) fn tls_failure(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(failure) = inner.or_else(|| error.downcast_ref()) {
            return Some(explained(failure));
        }
        next = error.source();
    }
    None
}

fn explained(failure: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error as Tls};
    let words = match failure {
        Tls::InvalidCertificate(wrong) => match wrong {
            Wrong::UnknownIssuer => {
                "the store's certificate is of an authority that is not trusted; hint: name the file of \
                    that authority as `store-ca`"
            }
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "the store's certificate is for another name; hint: write the member in the address as \
                    the certificate names it"
            }
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "the store's certificate has expired; hint: renew it, or compare the clocks"
            }
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "the store's certificate is not valid yet; hint: compare the clocks"
            }
            other => return format!("the store's certificate is not accepted: {other:?}"),
        },
        Tls::InvalidMessage(_) => {
            "the store does not speak TLS; hint: the address of a store without TLS begins with etcd://"
        }
        // Go's servers answer a missing certificate like a bad one.
        Tls::AlertReceived(
            Alert::BadCertificate | Alert::CertificateExpired | Alert::CertificateRequired | Alert::UnknownCA,
        ) => {
            "the store requires a client certificate of an authority that it trusts (etcd's \
                --trusted-ca-file); hint: set `store-certificate` and `store-certificate-key`, or renew \
                what they name"
        }
        other => return other.to_string(),
    };
    words.to_owned()
}
