//! Requests that another host of the fleet passes on, with the token of the model's seat.

use std::rc::Rc;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use plimsoll_fleet::SeatToken;

use super::body::{ClientBody, receive};
use super::model_service::ModelService;
use super::naming::in_body::named_in_body;
use super::problem::{ErrorShape, HttpProblem};
use super::reply::{self, Reply};
use super::server::HttpServer;

/// Present in a request that was passed on; it is not passed on again.
pub(crate) const HOP: HeaderName = HeaderName::from_static("plimsoll-hop");
/// Token of the seat.
pub(crate) const SEAT: HeaderName = HeaderName::from_static("plimsoll-seat");
/// Name of the model, which body or path may give in another form.
pub(crate) const MODEL: HeaderName = HeaderName::from_static("plimsoll-model");
/// Name of the host that answered a request.
const HOST: HeaderName = HeaderName::from_static("plimsoll-host");
/// In an answer: the seat is not this host's any more, and the router is to look for another.
pub(crate) const DECLINED: HeaderName = HeaderName::from_static("plimsoll-declined");

/// Refusals after which another host may answer.
const ELSEWHERE: [&str; 3] = ["stale_seat", "host_full", "store_restored"];

impl<H: ModelService> HttpServer<H> {
    /// Answers a request of another host. Its key was checked, so no key of a client is asked for.
    pub(super) async fn from_peer(
        self: &Rc<Self>,
        token: SeatToken,
        mut head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let named = head.headers.get(MODEL).and_then(|name| str::from_utf8(name.as_bytes()).ok());
        let model = named.and_then(|name| self.service.resolve(name)).ok_or_else(|| {
            HttpProblem::new(StatusCode::NOT_FOUND, "unknown_model", "this host does not have the model")
        })?;
        let shape = ErrorShape::of(head.uri.path());
        head.extensions.insert(token);
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(&head, &mut received);
        let mut reply = match self.send(model, head, received, named).await {
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
