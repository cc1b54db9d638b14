//! Answers requests from other hosts of the fleet: clients' requests, store records, model files, and
//! certificates.
//!
//! A client's request comes with the token of the model's seat. A seat is the fleet's record that a model is
//! loaded on a host. Its token is the revision of the store at which the seat was claimed.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use plimsoll_identity::{
    AdmissionRefusal, FleetAuthority, Grant, JOIN, JoinRequest, PeerCertificate, PeerTls, RENEW, RenewRequest,
};
use plimsoll_scheduler::ModelId;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;

use super::body::{ClientBody, receive};
use super::client;
use super::connection::ClientConnection;
use super::cut_through::ENGINE_LOST;
use super::host_request::HostRequest;
use super::model_service::{ModelService, RequestRouter};
use super::naming::in_body::named_in_body;
use super::problem::{ErrorShape, HttpProblem};
use super::reply::{self, Reply};
use super::server::{HttpServer, handed_over};
use super::stream::BrokenAnswer;
use plimsoll_task::spawn_blocking;

/// Present in a request that was passed on; it is not passed on again.
pub const HOP: HeaderName = HeaderName::from_static("plimsoll-hop");
/// Token of the seat.
pub const SEAT: HeaderName = HeaderName::from_static("plimsoll-seat");
/// Name of the model, which body or path may give in another form.
pub const MODEL: HeaderName = HeaderName::from_static("plimsoll-model");
/// Name of the host that answered a request.
pub const HOST: HeaderName = HeaderName::from_static("plimsoll-host");
/// In an answer: the seat is not this host's any more, and the router is to look for another.
pub const DECLINED: HeaderName = HeaderName::from_static("plimsoll-declined");

/// Value of [`HOP`] with which a host asks for the news of the fleet.
pub const NEWS: &str = "news";
/// The same with which it asks for model files, and orders this host to copy some.
pub const FILES: &str = "files";
pub const COPY: &str = "copy";

/// Refusals after which another host may answer.
const ELSEWHERE: [&str; 4] = ["stale_seat", "host_full", "store_restored", ENGINE_LOST];
/// Longest request for a certificate.
const LONGEST: usize = 16 * 1024;

/// Membership of this host, as the port for other hosts sees it.
pub trait PeerGate {
    /// TLS with certificates of the fleet; `None` where hosts share a key.
    fn tls(&self) -> Option<PeerTls>;

    /// The fleet's authority, if this host has it.
    fn authority(&self) -> Option<Arc<FleetAuthority>>;

    /// Checks a request that came to this port.
    fn check(&self, headers: &HeaderMap, shown: Option<&PeerCertificate>)
    -> Result<HostRequest, HttpProblem>;

    fn is_revoked(&self, shown: &PeerCertificate) -> bool;

    /// Changes with each revocation.
    fn revocations(&self) -> watch::Receiver<u64>;

    /// Counts and logs what was refused.
    fn refused(&self, from: Option<IpAddr>, why: &dyn fmt::Display);
}

/// The other side of a connection to the port for hosts.
pub(super) struct Peer {
    pub(super) gate: Rc<dyn PeerGate>,
    pub(super) shown: Option<PeerCertificate>,
    pub(super) address: Option<IpAddr>,
}

impl<H: RequestRouter> HttpServer<H> {
    /// Answers one request that came to the port for hosts.
    pub(super) async fn answer_peer(
        self: Rc<Self>,
        request: Request<Incoming>,
        client: Rc<ClientConnection>,
        peer: Rc<Peer>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = BrokenAnswer> + use<H>>, Infallible> {
        let in_use = client.begin();
        let shape = ErrorShape::of(request.uri().path());
        let (head, incoming) = request.into_parts();
        let reply = match (&head.method, head.uri.path()) {
            (&Method::POST, JOIN) => peer.join(incoming).await,
            (&Method::POST, RENEW) => peer.renew(incoming).await,
            _ => match peer.gate.check(&head.headers, peer.shown.as_ref()) {
                Ok(requested) => {
                    let body = ClientBody { incoming, client: Rc::clone(&client) };
                    let host = peer.shown.as_ref().map(|shown| client::host(&shown.host));
                    match self.let_in(&client, host).await {
                        Ok(()) => self.from_peer(requested, head, body).await,
                        Err(full) => Err(full),
                    }
                }
                Err(problem) => {
                    peer.gate.refused(peer.address, &problem.message);
                    Err(problem)
                }
            },
        };
        let reply = reply.unwrap_or_else(|problem| reply::problem(&problem, shape));
        Ok(handed_over(reply, &client, in_use))
    }

    /// Answers a request of another host. The host was checked, so no key of a client is asked for.
    pub(super) async fn from_peer(
        self: &Rc<Self>,
        requested: HostRequest,
        mut head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let token = match requested {
            HostRequest::Passed(token) => token,
            HostRequest::News => {
                let mut listener = self.service.news()?;
                let ending = self.ending(&head);
                return Ok(reply::feed("application/x-ndjson", ending, move |cx| listener.poll_next(cx)));
            }
            HostRequest::Files => return Ok(reply::files(self.service.give_files(&head).await?)),
            HostRequest::Copy => return Ok(reply::files(self.service.copy_files(&head)?)),
        };
        let named = head.headers.get(MODEL).and_then(|name| str::from_utf8(name.as_bytes()).ok());
        let model = named.and_then(|name| self.service.local().resolve(name)).ok_or_else(|| {
            HttpProblem::new(StatusCode::NOT_FOUND, "unknown_model", "this host does not have the model")
        })?;
        let shape = ErrorShape::of(head.uri.path());
        head.extensions.insert(token);
        let answered = match self.share_of(model, &head, &body) {
            Some(share) => Box::pin(self.carry_through(model, head, body, share)).await,
            None => self.send_whole(model, head, body).await,
        };
        let mut reply = match answered {
            Ok(reply) => reply,
            Err(problem) => {
                let mut reply = reply::problem(&problem, shape);
                if ELSEWHERE.contains(&&*problem.code) {
                    reply.headers_mut().insert(DECLINED, HeaderValue::from_static("1"));
                }
                reply
            }
        };
        reply.headers_mut().extend(self.service.host_name().map(|name| (HOST, name)));
        Ok(reply)
    }
}

impl<H: RequestRouter> HttpServer<H> {
    /// Reads a body to its end, and sends it to the model.
    pub(super) async fn send_whole(
        self: &Rc<Self>,
        model: ModelId,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(&head, &mut received);
        self.send(model, head, received, named).await
    }
}

impl Peer {
    /// Signs the certificate of a host that has an invitation.
    async fn join<P: super::model_service::Pass>(&self, body: Incoming) -> Result<Reply<P>, HttpProblem> {
        let authority = self.authority()?;
        let request: JoinRequest = question(body).await?;
        let host: String = request.host.chars().take(64).collect();
        self.granted(&host, move || authority.admit(&request, plimsoll_identity::now())).await
    }

    /// Signs a new certificate for the host whose present one was shown.
    async fn renew<P: super::model_service::Pass>(&self, body: Incoming) -> Result<Reply<P>, HttpProblem> {
        let authority = self.authority()?;
        let shown =
            self.shown.clone().filter(|shown| !self.gate.is_revoked(shown)).ok_or_else(no_certificate)?;
        let request: RenewRequest = question(body).await?;
        let host = shown.host.clone();
        let now = plimsoll_identity::now();
        self.granted(&host, move || authority.renew(&shown.host, &shown.serial, &request.public_key, now))
            .await
    }

    fn authority(&self) -> Result<Arc<FleetAuthority>, HttpProblem> {
        self.gate.authority().ok_or_else(|| {
            let text = "this host does not have the fleet's authority";
            HttpProblem::new(StatusCode::NOT_FOUND, "no_authority", text)
        })
    }

    async fn granted<P: super::model_service::Pass>(
        &self,
        host: &str,
        sign: impl FnOnce() -> Result<Grant, AdmissionRefusal> + Send + 'static,
    ) -> Result<Reply<P>, HttpProblem> {
        // It waits for the disk, and for a command that has the lock.
        let granted = spawn_blocking(sign).await;
        let failed =
            || HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "authority_failed", "no signature");
        match granted.map_err(|_| failed())? {
            Ok(grant) => {
                tracing::info!("audit certificate: host '{host}' has certificate {}", grant.serial);
                Ok(reply::json(&json!(grant)))
            }
            Err(refusal) => {
                self.gate.refused(self.address, &format_args!("no certificate for '{host}': {refusal}"));
                Err(HttpProblem::new(StatusCode::FORBIDDEN, refusal.code(), refusal.to_string()))
            }
        }
    }
}

pub fn no_certificate() -> HttpProblem {
    let text = "this port is for hosts of the fleet, which must present a certificate";
    HttpProblem::new(StatusCode::UNAUTHORIZED, "no_certificate", text)
}

async fn question<T: DeserializeOwned>(body: Incoming) -> Result<T, HttpProblem> {
    let wrong = |text: String| HttpProblem::new(StatusCode::BAD_REQUEST, "bad_request", text);
    let body = Limited::new(body, LONGEST).collect().await;
    let body = body.map_err(|error| wrong(error.to_string()))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))
}
