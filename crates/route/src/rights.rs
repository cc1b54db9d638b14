//! Checks the right that a request needs and the limits of its API key, and writes the audit log.

use std::rc::Rc;

use http::request::Parts;
use http::{Method, StatusCode};
use plimsoll_config::KeyRight;
use plimsoll_scheduler::ModelId;
use serde_json::Value;

use super::access_key::{AccessKey, KeyUse};
use super::api::{Action, Own};
use super::auth::KeyNumber;
use super::model_service::{ModelService, RequestRouter};
use super::problem::HttpProblem;
use super::proxy::ProxyRequest;
use super::query;
use super::server::HttpServer;

/// Beginnings of paths that change an engine for all its clients, or show what others have sent to it.
const OF_ENGINE: [&str; 3] = ["/slots", "/lora-adapters", "/props"];

/// True for a request that concerns all models, so that a key for some of them does not suffice.
pub(super) fn concerns_all(action: Action, head: &Parts, rest: &str) -> bool {
    let has = |name| query::parameter(head.uri.query(), name).is_some();
    match action {
        Action::Own(Own::Logs) => !has("model"),
        Action::Own(Own::LogStream) => rest.trim_matches('/').is_empty(),
        Action::Own(Own::Models) => has("reload"),
        // Memory that is kept free is that of any model, and the configuration is that of all.
        Action::Own(Own::Reload | Own::SaveFlags | Own::UndoFlags | Own::Yield | Own::EndYield) => true,
        _ => false,
    }
}

/// The rights of which a request needs one; none for an empty list.
pub(super) fn needed(action: Action, head: &Parts) -> &'static [KeyRight] {
    use KeyRight::{Change, Operate, Use};
    let path = head.uri.path();
    let has = |name| query::parameter(head.uri.query(), name).is_some();
    match action {
        // Everything that an engine serves, under whatever path.
        Action::Upstream => &[Change],
        Action::Engine | Action::EngineOr(Own::Props)
            if OF_ENGINE.iter().any(|beginning| path.starts_with(beginning))
                && !(path == "/props" && head.method != Method::POST) =>
        {
            &[Change]
        }
        // Tools run programs, and the proxy fetches addresses from this machine.
        Action::AnyEngine => &[Operate],
        Action::Engine | Action::Ollama(_) | Action::Stream | Action::StreamLookup => &[Use],
        // It may load the model.
        Action::EngineOr(_) if has("model") => &[Use],
        Action::Own(Own::Models) if has("reload") => &[Operate],
        Action::EngineOr(own) | Action::Own(own) => own.rights(),
    }
}

impl<H: RequestRouter> HttpServer<H> {
    /// The key of a request if it has a name; one without a name has all rights and no limits.
    fn named_key(&self, head: &Parts) -> Result<Option<Rc<AccessKey>>, HttpProblem> {
        let number: Option<&KeyNumber> = head.extensions.get();
        let Some(number) = number else { return Ok(None) };
        // Revoked since the request began.
        self.settings.keys.get(*number).map(Some).ok_or_else(super::auth::wrong_key)
    }

    /// True if the key of the request may use the model.
    pub(crate) fn permits(&self, head: &Parts, model: ModelId) -> bool {
        match self.named_key(head) {
            Ok(Some(key)) if key.settings.models.is_some() => {
                self.service.local().is_named(model, |name| key.permits(&[name]))
            }
            key => key.is_ok(),
        }
    }

    /// The model of this name or alias, for a client that may use it.
    ///
    /// DECISION: the one way from a name to a model for a client, so that nothing is looked up, cancelled or
    /// counted before its rights are checked.
    pub(crate) fn find_model(&self, head: &Parts, name: &str) -> Result<ModelId, HttpProblem> {
        let model = self.service.local().resolve(name).ok_or_else(|| self.unknown_model(head, name))?;
        self.permitted(head, model)
    }

    pub fn permitted(&self, head: &Parts, model: ModelId) -> Result<ModelId, HttpProblem> {
        if self.permits(head, model) {
            return Ok(model);
        }
        Err(not_permitted(&self.service.local().listing(model).name))
    }

    /// Checks that the key of the request may use a model of this name, which no model has yet.
    pub(crate) fn permitted_name(&self, head: &Parts, name: &str) -> Result<(), HttpProblem> {
        if self.named_key(head)?.is_none_or(|key| key.permits(&[name])) {
            Ok(())
        } else {
            Err(not_permitted(name))
        }
    }

    /// The failures of models that the client may use. One without a model's name is of a request to any.
    pub(super) fn failures(&self, head: &Parts) -> Value {
        let mut list = self.service.local().failures();
        let is_limited = !self.reaches_all(head);
        let may_read = |failure: &Value| match failure["name"].as_str() {
            Some(name) => match self.service.local().resolve(name) {
                Some(model) => self.permits(head, model),
                None => self.permitted_name(head, name).is_ok(),
            },
            None => false,
        };
        if let Some(failures) = list["failures"].as_array_mut().filter(|_| is_limited) {
            failures.retain(may_read);
        }
        list
    }

    /// True if the key of the request may use every model.
    fn reaches_all(&self, head: &Parts) -> bool {
        self.named_key(head).is_ok_and(|key| key.is_none_or(|key| key.settings.models.is_none()))
    }

    /// True for the operator, whom no key of `[keys]` limits.
    pub(crate) fn is_operator(&self, head: &Parts) -> bool {
        self.named_key(head).is_ok_and(|key| key.is_none())
    }

    pub(crate) fn has_right(&self, head: &Parts, right: KeyRight) -> bool {
        self.named_key(head).is_ok_and(|key| key.is_none_or(|key| key.may(&[right]).is_ok()))
    }

    /// Checks a right that only some requests to an endpoint need.
    pub(crate) fn needs_right(&self, head: &Parts, right: KeyRight) -> Result<(), HttpProblem> {
        self.named_key(head)?.map_or(Ok(()), |key| key.may(&[right]))
    }

    /// The status document, with the rights of the client that asks for it.
    pub(super) fn document(&self, head: &Parts) -> Value {
        let mut document = self.service.local().document();
        let rights = KeyRight::ALL.into_iter().filter(|right| self.has_right(head, *right));
        document["server"]["rights"] = rights.map(KeyRight::word).collect();
        document
    }

    /// Counts a request of `bytes` for the model against the limits of its key.
    pub(crate) fn enter(
        &self,
        model: ModelId,
        head: &Parts,
        bytes: usize,
    ) -> Result<Option<KeyUse>, HttpProblem> {
        let Some(key) = self.named_key(head)? else { return Ok(None) };
        self.permitted(head, model)?;
        key.enter(bytes).map(Some)
    }

    pub(crate) fn charge(&self, model: ModelId, request: &ProxyRequest) -> Result<(), HttpProblem> {
        let key_use = self.enter(model, &request.head, request.received.rope.len())?;
        request.key_use.replace(key_use.map(Box::new));
        Ok(())
    }

    /// Logs a change of this server's state, with the name of the key that asked for it.
    pub fn audit(&self, head: &Parts, act: &str, what: &str) {
        let key = self.named_key(head).ok().flatten();
        let key = match &key {
            Some(key) => format!("key {}", key.name()),
            None if self.settings.keys.is_empty() => "no key is required".to_owned(),
            None => "a key without a name".to_owned(),
        };
        tracing::info!("audit {act}{}{what}: {key}", if what.is_empty() { "" } else { " " });
    }
}

fn not_permitted(name: &str) -> HttpProblem {
    let message = format!("the API key does not permit the model '{name}'");
    HttpProblem::new(StatusCode::FORBIDDEN, "model_not_permitted", message)
}
