//! Streams a large request from another host to the engine while it still arrives, without parsing it.
//!
//! The host that passed the request on has already read the body and found the model's name. It keeps the
//! body.
//!
//! DECISION: this host keeps no copy, so it sends nothing twice. If the engine's connection is lost before an
//! answer, it asks the other host to send the request again. It does the same if the model has moved to
//! another host.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Body;
use plimsoll_scheduler::ModelId;

use super::body::{ClientBody, Received};
use super::body_budget::BodyShare;
use super::conversations::latest;
use super::engine_body::ArrivingBody;
use super::limits::Limits;
use super::model_service::{ModelService, Pass, RequestRouter};
use super::problem::HttpProblem;
use super::proxy::ProxyRequest;
use super::reply::{Reply, ReplyBody};
use super::server::{HttpServer, target_of};
use super::stream::Relay;

/// A shorter body arrives with its head, or in one more read.
const LEAST: u64 = 32 * 1024;
/// The most of a body that waits for the engine: hyper takes 16 pieces, each of one read.
const MOST_WAITING: u64 = 16 * 256 * 1024;
/// The engine's connection was lost before an answer.
pub(super) const ENGINE_LOST: &str = "engine_lost";

impl<H: RequestRouter> HttpServer<H> {
    /// The memory for a body that may be cut through.
    pub(super) fn share_of(&self, model: ModelId, head: &Parts, body: &ClientBody) -> Option<BodyShare> {
        let length = body.incoming.size_hint().exact()?;
        let limits = &self.settings.limits;
        let may = head.method == Method::POST
            && (LEAST..=limits.body.get()).contains(&length)
            && latest::named(head).is_none()
            // An engine that knows the model by another name gets a body with that name.
            && self.service.local().upstream(model)?.model().is_none();
        may.then(|| self.bodies.share(body.client.client(), length.min(MOST_WAITING), limits)).flatten()
    }

    /// Passes a body on while it arrives, if the model can answer at once.
    pub(super) async fn carry_through(
        self: &Rc<Self>,
        model: ModelId,
        head: Parts,
        body: ClientBody,
        share: BodyShare,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let request = ProxyRequest {
            target: target_of(&head),
            head,
            received: Received::unread(&self.bodies, body.client.client()),
            named: None,
            upgrades: false,
            access: RefCell::default(),
            owns_origin: false,
            is_of_page: false,
            holds_head: true,
            key_use: RefCell::default(),
        };
        let requested = Instant::now();
        let options = request.options(requested, self.service.local().traces());
        let Some(pass) = self.service.admit_at_once(model, options) else {
            return self.send_whole(model, request.head, body).await;
        };
        let body = ArrivingBody::new(body.incoming, self.settings.limits.body_time, Box::new(share));
        let answer = exchange(&request, pass, body, &self.settings.limits).await;
        self.counted(model, requested, answer).map(|answer| answer.map(ReplyBody::Relay))
    }
}

async fn exchange<P: Pass>(
    request: &ProxyRequest,
    pass: P,
    body: ArrivingBody,
    limits: &Limits,
) -> Result<Response<Relay<P>>, HttpProblem> {
    let (upstream, fault) = (pass.upstream().clone(), body.fault());
    let length = body.length();
    let sent = request.to(&upstream, body.into(), length);
    let answer = match upstream.reuse().await {
        Some(wire) => request.send_on(wire, sent).await.ok(),
        None => match upstream.connect(limits.connect_time).await {
            Ok(wire) => upstream.crowd_in(request.send_on(wire, sent)).await.ok(),
            Err(_) => None,
        },
    };
    match (answer, fault.get()) {
        (Some(answer), _) => request.answered(answer, pass).await,
        (None, Some(fault)) => Err(fault.into()),
        (None, None) => {
            let text = "the engine's connection was lost before an answer; send the request again";
            Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, ENGINE_LOST, text))
        }
    }
}
