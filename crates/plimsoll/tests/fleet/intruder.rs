//! Malicious client for tests of the port on which fleet hosts talk to each other. It trusts every server and
//! presents any credentials.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

/// What the client shows.
pub(crate) enum Shown<'a> {
    Nothing,
    /// Certificate and key of this folder.
    Host(&'a Path),
    /// The same, with a chain of 200 KB behind it.
    Huge(&'a Path),
}

/// A connection to the port of a host.
pub(crate) struct Visit(StreamOwned<ClientConnection, TcpStream>);

impl Visit {
    pub(crate) fn of(address: SocketAddr, shown: Shown<'_>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Credulous));
        let config = match shown {
            Shown::Nothing => builder.with_no_client_auth(),
            Shown::Host(folder) => {
                let (certificate, key) = read(folder);
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            Shown::Huge(folder) => {
                let (certificate, key) = read(folder);
                let junk = (0..4).map(|_| CertificateDer::from(vec![0x30; 50_000]));
                let chain = std::iter::once(certificate).chain(junk).collect();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("anyone").unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket))
    }

    /// Status and text of the answer; an error if the connection is refused.
    pub(crate) fn ask(mut self, request: &str) -> Result<(u16, String), ()> {
        self.0.write_all(request.as_bytes()).map_err(drop)?;
        let mut answer = Vec::new();
        // A server that closes without a goodbye has answered all the same.
        let _ = self.0.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.map(|status| (status, text)).ok_or(())
    }
}

pub(crate) fn read(folder: &Path) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let file = std::fs::read(folder.join("host.json")).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
    let bytes = |field: &str| super::rig::decode_bytes(file[field].as_str().unwrap());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(bytes("key")));
    (CertificateDer::from(bytes("certificate")), key)
}

/// Trusts every server.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
