//! Requests a certificate for this host: first with an invitation, later with the current certificate.

use std::path::Path;
use std::time::Duration;

use ring::signature::KeyPair;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::host::{Grant, HostIdentity, new_key};
use super::invitation::Invitation;
use super::tls::{IdentityOrIo, PeerTls, connect_pinned};
use super::verify::RevokedSerials;
use super::{IdentityError, PEER_PORT, bytes_text};

/// Paths of the peer port.
pub const JOIN: &str = "/plimsoll/fleet/join";
pub const RENEW: &str = "/plimsoll/fleet/renew";
/// Time for a request as a whole.
const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST_ANSWER: u64 = 64 * 1024;

/// An invited host's question for a certificate.
#[derive(Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Of the invitation.
    pub secret: String,
    pub host: String,
    #[serde(with = "bytes_text")]
    pub public_key: Vec<u8>,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("host", &self.host).finish_non_exhaustive()
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RenewRequest {
    #[serde(with = "bytes_text")]
    pub public_key: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cannot reach {address}: {error}")]
    Connect { address: String, error: std::io::Error },
    #[error("{address} is not the host of the invitation: {error}")]
    Pinned { address: String, error: String },
    #[error("{address} does not answer in {} s", PATIENCE.as_secs())]
    Silent { address: String },
    #[error("{address} does not answer as a host of a fleet: {error}")]
    Answer { address: String, error: String },
    #[error("the inviting host refuses: {0}")]
    Refused(String),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Asks for a certificate with an invitation, and writes the identity of this host. Without an `address`,
/// other hosts reach it at the one from which it reaches the authority.
pub async fn join(
    folder: &Path,
    invitation: &Invitation,
    host: &str,
    address: Option<String>,
) -> Result<HostIdentity, JoinError> {
    if HostIdentity::exists(folder) {
        return Err(IdentityError::Exists(folder.to_owned()).into());
    }
    let issuer = &invitation.address;
    let silent = |_| JoinError::Silent { address: issuer.clone() };
    let requested = async {
        let socket = TcpStream::connect(issuer).await;
        let socket = socket.map_err(|error| JoinError::Connect { address: issuer.clone(), error })?;
        let local = socket.local_addr().ok();
        let stream = connect_pinned(socket, &invitation.digest, &invitation.fleet).await;
        let stream = stream.map_err(|error| match error {
            IdentityOrIo::Identity(error) => JoinError::Identity(error),
            error => JoinError::Pinned { address: issuer.clone(), error: error.to_string() },
        })?;
        let (key, pair) = new_key()?;
        let public_key = pair.public_key().as_ref().to_vec();
        let request = JoinRequest { secret: invitation.secret.clone(), host: host.to_owned(), public_key };
        let grant: Grant = ask(stream, issuer, JOIN, &request).await?;
        let found = local.map(|local| std::net::SocketAddr::new(local.ip(), PEER_PORT).to_string());
        let address = address.or(found).unwrap_or_default();
        let identity = HostIdentity::of(grant, address, key);
        check(&identity, &invitation.fleet, host)?;
        identity.write(folder)?;
        Ok(identity)
    };
    timeout(PATIENCE, requested).await.map_err(silent)?
}

/// Asks the authority's host for a new certificate, and writes it in the place of the present one.
pub async fn renew(
    folder: &Path,
    present: &HostIdentity,
    tls: &PeerTls,
    issuer: &str,
) -> Result<HostIdentity, JoinError> {
    let requested = async {
        let failed = |error| JoinError::Connect { address: issuer.to_owned(), error };
        let socket = TcpStream::connect(issuer).await.map_err(failed)?;
        let stream = tls.connect(socket, &present.issuer.host).await.map_err(failed)?;
        let (key, pair) = new_key()?;
        let request = RenewRequest { public_key: pair.public_key().as_ref().to_vec() };
        let grant: Grant = ask(stream, issuer, RENEW, &request).await?;
        take_renewed(folder, present, grant, key)
    };
    timeout(PATIENCE, requested).await.map_err(|_| JoinError::Silent { address: issuer.to_owned() })?
}

/// Writes a new certificate of this host in the place of the present one.
fn take_renewed(
    folder: &Path,
    present: &HostIdentity,
    grant: Grant,
    key: Vec<u8>,
) -> Result<HostIdentity, JoinError> {
    let identity = HostIdentity::of(grant, present.address.clone(), key);
    check(&identity, &present.fleet, &present.host)?;
    if identity.authority != present.authority {
        return Err(
            IdentityError::Key("another authority than that of the invitation signed it".to_owned()).into()
        );
    }
    identity.write(folder)?;
    Ok(identity)
}

impl super::FleetAuthority {
    /// Renews the certificate of the authority's own host, also one that has expired.
    pub fn renew_own(
        &self,
        folder: &Path,
        present: &HostIdentity,
        now: u64,
    ) -> Result<HostIdentity, JoinError> {
        let (key, pair) = new_key()?;
        let grant = self.sign_own(&present.host, pair.public_key().as_ref(), now)?;
        take_renewed(folder, present, grant, key)
    }
}

/// A granted identity is of this fleet and host, and its key is that of the certificate.
fn check(identity: &HostIdentity, fleet: &str, host: &str) -> Result<(), IdentityError> {
    if identity.fleet != fleet || identity.host != host {
        return Err(IdentityError::Key("the certificate is for another host".to_owned()));
    }
    PeerTls::new(identity, &RevokedSerials::default(), false).map(drop)
}

/// Sends a question and reads the answer.
///
/// DECISION: written out, on a connection for this one question. A client of hyper would be one more in the
/// program, for two requests in the life of a certificate.
async fn ask<T: DeserializeOwned>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    address: &str,
    path: &str,
    question: &impl Serialize,
) -> Result<T, JoinError> {
    let failed = |error: &dyn std::fmt::Display| JoinError::Answer {
        address: address.to_owned(),
        error: error.to_string(),
    };
    let body = serde_json::to_vec(question).map_err(|error| failed(&error))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: fleet\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
        Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await.map_err(|error| failed(&error))?;
    stream.flush().await.map_err(|error| failed(&error))?;
    let mut answer = Vec::new();
    let read = stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await;
    let (status, body) = match (read, parts(&answer)) {
        // A server that closes without a goodbye has answered all the same.
        (_, Some(parts)) => parts,
        (Err(error), None) => return Err(failed(&error)),
        (Ok(_), None) => return Err(failed(&"its answer is not valid")),
    };
    if status == 200 {
        return serde_json::from_slice(body).map_err(|error| failed(&error));
    }
    let reported: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let reported = reported["error"]["message"].as_str().map(str::to_owned);
    Err(JoinError::Refused(reported.unwrap_or_else(|| format!("status {status}"))))
}

/// Status and body of a whole answer with a length; `None` for anything else.
fn parts(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (body.len() == length).then_some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_none() {
        let whole = b"HTTP/1.1 403 Forbidden\r\nA: b\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parts(whole), Some((403, &b"{}"[..])));
        for end in 0..whole.len() {
            assert_eq!(parts(&whole[..end]), None, "{end}");
        }
        for text in ["HTTP/1.1 200 OK\r\n\r\n{}", "HTTP/1.1 2", "GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"]
        {
            assert_eq!(parts(text.as_bytes()), None, "{text}");
        }
        plimsoll_fuzz::mutants(&[whole], &[b"content-length", b"\r\n\r\n"], |mutant| {
            let _ = parts(mutant);
        });
    }
}
