//! Holds the credentials by which the hosts of a fleet trust each other: certificates, or a shared key.

use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};
use plimsoll_base::Bytes;
use plimsoll_config::ServeSettings;
use plimsoll_fleet::FleetEvent;
use plimsoll_identity::{
    FleetAuthority, HostIdentity, IdentityError, PeerCertificate, PeerTls, RevokedSerials, now, renew,
};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{FleetError, FleetMember};
use plimsoll_route::{
    COPY, FILES, HOP, HostRequest, HttpProblem, NEWS, PeerGate, SEAT, no_certificate, shows,
};
use plimsoll_task::spawn_blocking;

/// Longest time between two looks at the certificate's age, and time between two attempts to renew it, at
/// most.
const LOOK: Duration = Duration::from_secs(3600);
/// Longest file with the key of a fleet.
const LONGEST_KEY: Bytes = Bytes::kib(64);
/// Time between two log lines about refused hosts.
const APART: Duration = Duration::from_secs(10);

/// Proof of a host that it belongs to the fleet.
pub(super) enum HostTrust {
    /// The key that the hosts share.
    Key(String),
    Certificates(Box<HostCertificates>),
}

/// The certificate of this host, and what it knows of others'.
pub(super) struct HostCertificates {
    folder: PathBuf,
    identity: RefCell<HostIdentity>,
    tls: RefCell<PeerTls>,
    revoked: RevokedSerials,
    /// Changes with each revocation.
    revocations: watch::Sender<u64>,
    authority: Option<Arc<FleetAuthority>>,
}

/// Why this host's own certificate counts no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    #[error("its certificate is revoked")]
    Revoked,
    #[error("its certificate has expired")]
    Expired,
}

/// Hosts and strangers that were refused.
#[derive(Default)]
pub(super) struct RefusedPeers {
    pub(super) count: u64,
    reported: Option<(Instant, u64)>,
}

impl HostTrust {
    pub(super) fn of(serve: &ServeSettings) -> Result<Self, FleetError> {
        match (&serve.fleet_identity, &serve.fleet_key_file) {
            (Some(_), Some(_)) => Err(FleetError::TwoProofs),
            (Some(folder), None) => {
                let certificates = HostCertificates::read(folder.clone()).map_err(FleetError::Identity)?;
                match certificates.problem() {
                    // The authority's host signs for itself.
                    Some(CertificateProblem::Expired) if certificates.authority.is_some() => {
                        certificates.renew_own()?;
                    }
                    Some(problem) => return Err(FleetError::Certificate { folder: folder.clone(), problem }),
                    None => {}
                }
                Ok(Self::Certificates(Box::new(certificates)))
            }
            (None, Some(path)) => {
                let key = plimsoll_file::read_text(path, LONGEST_KEY);
                let failed = |error| FleetError::ReadKey { path: path.clone(), error };
                let key = key.map_err(failed)?.trim().to_owned();
                if key.len() < 16 { Err(FleetError::ShortKey(path.clone())) } else { Ok(Self::Key(key)) }
            }
            (None, None) => Err(FleetError::NoKey),
        }
    }

    pub(super) fn certificates(&self) -> Option<&HostCertificates> {
        match self {
            Self::Key(_) => None,
            Self::Certificates(certificates) => Some(certificates),
        }
    }
}

impl HostCertificates {
    fn read(folder: PathBuf) -> Result<Self, IdentityError> {
        let identity = HostIdentity::read(&folder)?;
        let authority = FleetAuthority::open(&folder)?.map(Arc::new);
        let revoked = RevokedSerials::read(&folder);
        let tls = PeerTls::new(&identity, &revoked, authority.is_some())?;
        let revocations = watch::Sender::new(0);
        let (identity, tls) = (RefCell::new(identity), RefCell::new(tls));
        Ok(Self { folder, identity, tls, revoked, revocations, authority })
    }

    pub(super) fn identity(&self) -> std::cell::Ref<'_, HostIdentity> {
        self.identity.borrow()
    }

    fn problem(&self) -> Option<CertificateProblem> {
        let identity = self.identity();
        if self.revoked.contains(&identity.serial) {
            return Some(CertificateProblem::Revoked);
        }
        (identity.expires <= now()).then_some(CertificateProblem::Expired)
    }

    pub(super) fn tls(&self) -> PeerTls {
        self.tls.borrow().clone()
    }

    /// Renews the certificate of the host that has the authority, after it was off for long.
    fn renew_own(&self) -> Result<(), FleetError> {
        let Some(authority) = &self.authority else { return Ok(()) };
        let present = self.identity().clone();
        let renewed = authority.renew_own(&self.folder, &present, now()).map_err(FleetError::Renew)?;
        self.replace(renewed).map_err(FleetError::Identity)
    }

    /// Uses a renewed identity from now on.
    fn replace(&self, identity: HostIdentity) -> Result<(), IdentityError> {
        let tls = PeerTls::new(&identity, &self.revoked, self.authority.is_some())?;
        self.tls.replace(tls);
        self.identity.replace(identity);
        Ok(())
    }
}

impl FleetMember {
    /// Address of the port for hosts; `None` if they come to that of clients.
    pub fn peer_port(&self) -> Option<SocketAddr> {
        self.peer_port
    }

    /// Request of another host; `None` for a request of a client.
    pub(crate) fn hop(&self, headers: &HeaderMap) -> Option<Result<HostRequest, HttpProblem>> {
        headers.get(HOP)?;
        if self.peer_port.is_some() {
            let text = "hosts of the fleet forward requests to the fleet's port, not to the port for clients";
            self.refused(None, &text);
            return Some(Err(HttpProblem::new(StatusCode::FORBIDDEN, "wrong_port", text)));
        }
        Some(self.check(headers, None))
    }

    /// Takes revocations of the store.
    pub(super) async fn hear_revocations(&self) {
        self.take_revocations();
        if self.is_out() {
            self.step_out().await;
        }
    }

    /// True for a host whose own certificate counts no more: no other host talks with it.
    pub(super) fn is_out(&self) -> bool {
        self.trust.certificates().is_some_and(|own| own.problem().is_some())
    }

    /// Leaves the fleet, so that the models of this host can be seated elsewhere. It serves what it has
    /// loaded.
    async fn step_out(&self) {
        let Some(problem) = self.trust.certificates().and_then(HostCertificates::problem) else { return };
        tracing::error!("this host is not a member of the fleet any more: {problem}");
        self.submit(FleetEvent::StoreSilent { cause: problem.to_string() });
        self.leave().await;
    }

    fn take_revocations(&self) {
        let Some(certificates) = self.trust.certificates() else { return };
        let node = self.node.borrow();
        if node.view.revoked.is_empty() {
            return;
        }
        let (new, kept) = certificates.revoked.add(node.view.revoked.keys());
        drop(node);
        if let Err(error) = kept {
            tracing::error!("the list of revoked certificates cannot be saved for the next start: {error}");
        }
        if new.is_empty() {
            return;
        }
        for serial in &new {
            tracing::warn!("audit revoke: certificate {serial} of the fleet is no longer valid");
        }
        // New connections are verified anew.
        self.peers.borrow_mut().clear();
        certificates.revocations.send_modify(|count| *count += 1);
    }

    /// Renews the certificate when a third of its life is left, for ever.
    pub(super) async fn keep_certificate(self: Rc<Self>) {
        let Some(certificates) = self.trust.certificates() else { return };
        loop {
            let (renews_at, life) = {
                let identity = certificates.identity();
                (identity.renews_at(), identity.expires.saturating_sub(identity.issued))
            };
            let left = renews_at.saturating_sub(now());
            if left > 0 {
                sleep(Duration::from_secs(left).min(LOOK)).await;
                continue;
            }
            match self.renew(certificates).await {
                Ok(identity) => {
                    tracing::info!("this host's certificate is renewed: {}", identity.serial);
                    if let Err(error) = certificates.replace(identity) {
                        tracing::error!("the renewed certificate cannot be used: {error}");
                    }
                    self.peers.borrow_mut().clear();
                }
                Err(_) if self.is_out() => return self.step_out().await,
                Err(error) => {
                    let expires = certificates.identity().expires.saturating_sub(now());
                    tracing::warn!(
                        "this host's certificate, valid for another {expires} s, was not renewed: {error}"
                    );
                    sleep(Duration::from_secs((life / 30).max(1)).min(LOOK)).await;
                }
            }
        }
    }

    async fn renew(
        &self,
        certificates: &HostCertificates,
    ) -> Result<HostIdentity, plimsoll_identity::JoinError> {
        let present = certificates.identity().clone();
        if let Some(authority) = &certificates.authority {
            let (authority, folder) = (Arc::clone(authority), certificates.folder.clone());
            let renewed = spawn_blocking(move || authority.renew_own(&folder, &present, now()));
            return renewed.await.unwrap_or(Err(IdentityError::Random.into()));
        }
        // Where the store says that the authority's host is now.
        let reported = self.node.borrow().view.host(&present.issuer.host).map(|host| host.address.clone());
        let issuer = reported.unwrap_or_else(|| present.issuer.address.clone());
        renew(&certificates.folder, &present, &certificates.tls(), &issuer).await
    }
}

impl PeerGate for FleetMember {
    fn tls(&self) -> Option<PeerTls> {
        self.trust.certificates().map(HostCertificates::tls)
    }

    fn authority(&self) -> Option<Arc<FleetAuthority>> {
        self.trust.certificates()?.authority.clone()
    }

    fn check(
        &self,
        headers: &HeaderMap,
        shown: Option<&PeerCertificate>,
    ) -> Result<HostRequest, HttpProblem> {
        match &self.trust {
            HostTrust::Certificates(_) => {
                let shown = shown.ok_or_else(no_certificate)?;
                if self.is_revoked(shown) {
                    let text = format!("the certificate of host '{}' is revoked", shown.host);
                    return Err(HttpProblem::new(StatusCode::FORBIDDEN, "revoked_certificate", text));
                }
            }
            HostTrust::Key(key) if !shows(headers, key) => {
                let text = "only hosts of the fleet may forward requests, with the fleet's key";
                return Err(HttpProblem::new(StatusCode::UNAUTHORIZED, "invalid_fleet_key", text));
            }
            HostTrust::Key(_) => {}
        }
        let Some(requested) = headers.get(HOP) else {
            let text =
                "this port accepts only requests forwarded by hosts of the fleet, not those of clients";
            return Err(HttpProblem::new(StatusCode::FORBIDDEN, "not_for_clients", text));
        };
        for (word, request) in
            [(NEWS, HostRequest::News), (FILES, HostRequest::Files), (COPY, HostRequest::Copy)]
        {
            if requested == word {
                return Ok(request);
            }
        }
        let token = headers.get(SEAT).and_then(|token| token.to_str().ok()?.parse().ok());
        token.map(HostRequest::Passed).ok_or_else(|| {
            HttpProblem::new(
                StatusCode::BAD_REQUEST,
                "bad_seat",
                "the forwarded request does not say for which assignment of the model it is",
            )
        })
    }

    fn is_revoked(&self, shown: &PeerCertificate) -> bool {
        self.trust.certificates().is_some_and(|certificates| certificates.revoked.contains(&shown.serial))
    }

    fn revocations(&self) -> watch::Receiver<u64> {
        match self.trust.certificates() {
            Some(certificates) => certificates.revocations.subscribe(),
            // Never changes, and its sender is gone.
            None => watch::channel(0).1,
        }
    }

    fn refused(&self, from: Option<IpAddr>, why: &dyn fmt::Display) {
        let mut refused = self.refused.borrow_mut();
        refused.count += 1;
        let (count, at) = (refused.count, Instant::now());
        let before = match refused.reported {
            Some((reported, _)) if at.saturating_duration_since(reported) < APART => return,
            reported => reported.map_or(0, |(_, count)| count),
        };
        refused.reported = Some((at, count));
        let from = from.map_or_else(|| "a client".to_owned(), |from| from.to_string());
        let others = match count - before {
            0 | 1 => String::new(),
            more => format!(" ({} more since the last line)", more - 1),
        };
        tracing::warn!("fleet: {from} is refused: {why}{others}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_a_hole_of_a_terabyte_are_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let hole = folder.path().join("hole");
        std::fs::File::create(&hole).unwrap().set_len(1 << 40).unwrap();
        for path in [hole, "/dev/zero".into()] {
            let serve = ServeSettings { fleet_key_file: Some(path.clone()), ..ServeSettings::default() };
            let error = HostTrust::of(&serve).err().unwrap().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
