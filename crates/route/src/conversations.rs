//! Lets clients resume the event stream of an answer: `X-Conversation-Id`, `/v1/stream` and
//! `/v1/streams/lookup`.
//!
//! llama-server keeps the events of such an answer, so that a page that was loaded again reads it from the
//! beginning. A request of a conversation stays in the queue when its client leaves. `DELETE /v1/stream`
//! cancels it, and so does a lack of places or of memory for bodies: it counts for both as if its client had
//! stayed.

pub(crate) mod latest;

use std::rc::Rc;

use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use plimsoll_scheduler::{ClientId, ModelId, ModelState};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::auth::KeyNumber;
use super::body::{ClientBody, receive_json};
use super::body_budget::{BodyState, OccupiedBody};
use super::engine_page;
use super::model_service::{ModelService, RequestRouter};
use super::problem::HttpProblem;
use super::proxy::ProxyRequest;
use super::query;
use super::reply::{self, Reply, ReplyBody};
use super::server::HttpServer;
use plimsoll_task::spawn_local;

#[derive(Deserialize)]
struct StreamLookup {
    conversation_ids: Vec<String>,
}

impl<H: RequestRouter> HttpServer<H> {
    /// Sends a request of a conversation, also if its client leaves while the model loads.
    pub(crate) async fn converse(
        self: &Rc<Self>,
        id: &str,
        model: ModelId,
        request: Box<ProxyRequest>,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        self.permitted(&request.head, model)?;
        let conversation = self.conversations.begin(id, owner(&request.head), model);
        let (notify, reported) = oneshot::channel();
        let (_stays, left) = oneshot::channel::<()>();
        // Without heartbeats: their head would be an answer, and a stop could no longer refuse the request.
        let server = Rc::clone(self);
        spawn_local(async move {
            let holds = (request.received.client, Rc::clone(request.received.occupied()));
            let exchange = Rc::clone(&server).exchange(model, Rc::from(request), Rc::default());
            let work = async {
                let outcome = tokio::select! {
                    outcome = exchange => outcome.map(|answer| answer.map(ReplyBody::Relay)),
                    () = conversation.cancel.notified() => Err(cancelled()),
                };
                conversation.is_waiting.set(false);
                if let Err(Ok(reply)) = notify.send(outcome) {
                    // The engine computes for a client that comes back, so the model stays busy until it has
                    // ended.
                    let mut body = reply.into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                }
            };
            tokio::select! {
                biased;
                () = work => {}
                () = server.is_in_the_way(left, holds) => conversation.is_waiting.set(false),
            }
        });
        reported.await.unwrap_or_else(|_| Err(cancelled()))
    }

    /// Ends when the client of a conversation has left and another one needs what its request holds: the
    /// memory of its body, or the place that it takes among the connections.
    async fn is_in_the_way(&self, left: oneshot::Receiver<()>, (client, body): (ClientId, Rc<OccupiedBody>)) {
        // The other side sends nothing.
        let _ = left.await;
        body.becomes(BodyState::Left);
        let occupied = self.places.enter(client);
        if occupied.settle(client, || false) {
            occupied.place.end();
            tokio::select! {
                () = occupied.place.is_wanted() => {}
                () = body.is_wanted() => {}
            }
        }
    }

    /// `GET` and `DELETE /v1/stream?conv_id=…`, or `/v1/stream/…`.
    pub(crate) async fn stream_of(
        self: &Rc<Self>,
        rest: &str,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let id = query::parameter(head.uri.query(), "conv_id").or_else(|| query::decode_path(rest));
        let id = id.filter(|id| !id.is_empty()).ok_or_else(no_conversation)?.into_owned();
        let is_stop = head.method == Method::DELETE;
        let owner = owner(&head);
        let known = self.conversations.find(&id, owner);
        if self.conversations.is_of_others(&id, owner) {
            return Err(no_stream());
        }
        let model =
            known.as_ref().map_or_else(|| self.model_of_conversation(&id, &head), |known| Some(known.model));
        let model = model.map(|model| self.permitted(&head, model)).transpose()?;
        let is_waiting = known.as_ref().is_some_and(|known| known.is_waiting.get());
        if is_stop {
            self.conversations.forget(&id, owner);
            known.iter().for_each(|known| known.cancel.notify_one());
        }
        // A model that is not loaded has no streams, and is not loaded to say so.
        match model.filter(|model| self.service.local().listing(*model).state == ModelState::Ready) {
            Some(model) => self.to_model(model, head, body).await,
            None if is_stop => Ok(reply::empty(StatusCode::NO_CONTENT)),
            None if is_waiting => Err(still_loading()),
            None => Err(no_stream()),
        }
    }

    /// llama.cpp's page writes the model's name behind the conversation: `ID::MODEL`.
    fn model_of_conversation(&self, id: &str, head: &Parts) -> Option<ModelId> {
        let named =
            query::parameter(head.uri.query(), "model").and_then(|name| self.service.local().resolve(&name));
        named
            .or_else(|| self.service.local().resolve(id.split_once("::")?.1))
            .or_else(|| self.service.local().stand_in(None))
    }

    /// `POST /v1/streams/lookup` with `{"conversation_ids":[…]}`: asks each loaded model for its own.
    pub(crate) async fn lookup_streams(
        &self,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let requested: StreamLookup = receive_json(body, &self.bodies, &self.settings.limits).await?;
        let ids = requested.conversation_ids.iter().map(String::as_str);
        let mut by_model: Vec<(ModelId, Vec<&str>)> = Vec::new();
        for id in ids.take(latest::MOST) {
            let owner = owner(&head);
            let known = self.conversations.find(id, owner).map(|known| known.model);
            let model = known.or_else(|| self.model_of_conversation(id, &head));
            let is_of_client =
                |model: &ModelId| self.permits(&head, *model) && !self.conversations.is_of_others(id, owner);
            let Some(model) = model.filter(is_of_client) else { continue };
            match by_model.iter_mut().find(|(other, _)| *other == model) {
                Some((_, ids)) => ids.push(id),
                None => by_model.push((model, vec![id])),
            }
        }
        let mut found = Vec::new();
        for (model, ids) in by_model {
            let question = json!({ "conversation_ids": ids }).to_string();
            let Some(upstream) = self.service.local().upstream(model) else { continue };
            let answer = engine_page::ask(&upstream, Method::POST, "/v1/streams/lookup", question).await;
            let answer: Option<Value> = answer.and_then(|page| serde_json::from_slice(page.body()).ok());
            let streams = answer.as_ref().and_then(Value::as_array).into_iter().flatten();
            found.extend(streams.take(latest::MOST - found.len()).cloned());
        }
        Ok(reply::json(&Value::Array(found)))
    }
}

/// The key whose conversations a client has.
fn owner(head: &Parts) -> Option<KeyNumber> {
    head.extensions.get().copied()
}

fn cancelled() -> HttpProblem {
    let message = "the request was cancelled by a stop while its model was loading";
    HttpProblem::new(StatusCode::BAD_REQUEST, "cancelled", message)
}

fn no_conversation() -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "conversation_missing", "`conv_id` is missing from the request")
}

fn still_loading() -> HttpProblem {
    let message = "the model of this conversation is loading";
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "stream_loading", message)
        .retry_after(std::time::Duration::from_secs(1))
}

fn no_stream() -> HttpProblem {
    let message = "no loaded model has a stream of this conversation";
    HttpProblem::new(StatusCode::NOT_FOUND, "stream_not_found", message)
}
