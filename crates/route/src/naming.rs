//! Chooses the model for a request: the one named in the body or in `?model=`, or else a default.

pub(crate) mod in_body;

use std::borrow::Cow;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use plimsoll_base::{Advice, Hint};
use plimsoll_scheduler::ModelId;

use self::in_body::named_in_body;
use super::body::{ClientBody, Received, receive};
use super::broken_json::broken_json;
use super::model_key::ModelKey;
use super::model_service::{ModelService, RequestRouter};
use super::problem::HttpProblem;
use super::reply::Reply;
use super::server::HttpServer;
use super::{headers, query};

/// Header of an answer that names the model, where the request named another one.
const X_PLIMSOLL_MODEL: HeaderName = HeaderName::from_static("x-plimsoll-model");

/// The model that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChosenModel {
    pub model: ModelId,
    /// The request named a model that is not configured.
    pub(crate) stands_in: bool,
}

impl<H: RequestRouter> HttpServer<H> {
    /// Finds the model named in the body, or else in `?model=`, or else the one that stands in.
    pub(crate) fn model_of(
        &self,
        head: &Parts,
        received: &Received,
        named: Option<&ModelKey>,
    ) -> Result<ChosenModel, HttpProblem> {
        let Some(name) = name_of(head, named) else {
            let model =
                self.service.local().stand_in(None).ok_or_else(|| self.no_model_named(head, received))?;
            return Ok(ChosenModel { model: self.permitted(head, model)?, stands_in: false });
        };
        if let Some(model) = self.service.local().resolve(&name) {
            return Ok(ChosenModel { model: self.permitted(head, model)?, stands_in: false });
        }
        let model =
            self.service.local().stand_in(Some(&name)).ok_or_else(|| self.unknown_model(head, &name))?;
        let model = self.permitted(head, model)?;
        tracing::debug!("model `{name}` is not configured, so the only configured model answers");
        Ok(ChosenModel { model, stands_in: true })
    }

    /// Reads an order about a model: `{"model":…}`. It must name one that is configured.
    pub(crate) async fn receive_model(&self, head: &Parts, body: ClientBody) -> Result<ModelId, HttpProblem> {
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(head, &mut received);
        let name = name_of(head, named.as_ref().map(|(named, _)| named));
        let name = name.ok_or_else(|| self.no_model_named(head, &received))?;
        self.find_model(head, &name)
    }

    /// Names the model in an answer to a request that named another one.
    pub(crate) fn name_model(&self, chosen: ChosenModel, reply: &mut Reply<H::Pass>) {
        if !chosen.stands_in {
            return;
        }
        if let Ok(name) = HeaderValue::from_str(&self.service.local().listing(chosen.model).name) {
            reply.headers_mut().insert(X_PLIMSOLL_MODEL, name);
        }
    }

    /// The model that an order for all names all the same, in its body.
    pub(crate) async fn model_in_body(
        &self,
        head: &Parts,
        body: ClientBody,
    ) -> Result<Option<ModelId>, HttpProblem> {
        let mut received = receive(body, &self.bodies, &self.settings.limits).await?;
        let named = named_in_body(head, &mut received);
        let Some(name) = name_of(head, named.as_ref().map(|(named, _)| named)) else { return Ok(None) };
        self.find_model(head, &name).map(Some)
    }

    fn no_model_named(&self, head: &Parts, received: &Received) -> HttpProblem {
        // The name may be there and unreadable: bodies are searched as they came, never decompressed.
        if head.headers.contains_key(CONTENT_ENCODING) {
            return compressed();
        }
        let is_form =
            headers::text(&head.headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("multipart/"));
        let is_json = head.method == Method::POST && !is_form;
        is_json.then(|| broken_json(&received.rope)).flatten().unwrap_or_else(|| {
            let message = "model name is missing from the request";
            HttpProblem::new(StatusCode::BAD_REQUEST, "model_missing", message).hint(self.names(head))
        })
    }

    pub(crate) fn unknown_model(&self, head: &Parts, name: &str) -> HttpProblem {
        let refusal = self.service.local().refusal(name);
        // Its words are of the model's configuration.
        if let Some(problem) = refusal.filter(|_| self.permitted_name(head, name).is_ok()) {
            return problem;
        }
        let mut known = self.entries(head).map(|listing| listing.name);
        let same = known.find(|known| known.eq_ignore_ascii_case(name));
        let meant = same.map_or_else(String::new, |same| format!("; did you mean '{same}'?"));
        let message = format!("model '{name}' not found{meant}");
        HttpProblem::new(StatusCode::NOT_FOUND, "model_not_found", message).hint(self.names(head))
    }

    /// The names that the client may use. Unlisted models answer by name, and no message reveals them.
    fn names(&self, head: &Parts) -> Hint {
        let names: Vec<String> = self.entries(head).map(|listing| listing.name).collect();
        let names = names.join(", ");
        Hint::new(Advice::Other(format!("name one of these models: {names}")))
    }
}

pub(super) fn name_of<'a>(head: &'a Parts, named: Option<&'a ModelKey>) -> Option<Cow<'a, str>> {
    let in_body = named.map(|named| Cow::Borrowed(named.name.as_str()));
    let name = in_body.filter(|name| !name.is_empty());
    name.or_else(|| query::parameter(head.uri.query(), "model")).filter(|name| !name.is_empty())
}

fn compressed() -> HttpProblem {
    let message = "the request body is compressed; send it as it is";
    HttpProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "body_compressed", message)
}
