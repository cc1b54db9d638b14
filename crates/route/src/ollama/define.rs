//! Answers Ollama's `/api/create` and `/api/copy`, which derive a model from a served one.
//!
//! DECISION: a request writes no configuration: that file is the operator's. A derived model is a note in the
//! folder of downloads. Without the folder the answer has the lines to write.

use http::StatusCode;
use http::request::Parts;
use plimsoll_hub::DerivedModel;
use plimsoll_ollama::options;
use plimsoll_ollama::request::null_is_empty;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::listing::{JSON, LINES};
use super::{LATEST, refused};
use crate::HttpProblem;
use crate::body::{ClientBody, receive_json};
use crate::listing::ModelListing;
use crate::model_service::{ModelService, RequestRouter};
use crate::reply::{self, Reply};
use crate::server::HttpServer;

/// Fields of a creation that change no answer.
const WITHOUT_EFFECT: [&str; 1] = ["license"];

#[derive(Debug, Deserialize)]
struct Copied {
    #[serde(default, deserialize_with = "null_is_empty")]
    source: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    destination: String,
}

#[derive(Debug, Deserialize)]
struct Created {
    #[serde(default, alias = "name", deserialize_with = "null_is_empty")]
    model: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    from: String,
    system: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    parameters: Map<String, Value>,
    stream: Option<bool>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl<H: RequestRouter> HttpServer<H> {
    pub(super) async fn copy(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let copied: Copied = receive_json(body, &self.bodies, &self.settings.limits).await?;
        if copied.source.is_empty() || copied.destination.is_empty() {
            return Err(refused("source and destination are required".to_owned()));
        }
        // Of a model that is not here, Ollama says so first.
        let (listing, derived) = self.derived_of(head, &copied.source, &copied.destination)?;
        if !self.service.local().derives() {
            let aliases = Value::from(vec![copied.destination]);
            let text = format!("add `aliases = {aliases}` to [models.{}]", Value::from(listing.name));
            return Err(to_write(&text));
        }
        self.derive(head, "copy", derived).await?;
        Ok(reply::empty(StatusCode::OK))
    }

    pub(super) async fn create(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let created: Created = receive_json(body, &self.bodies, &self.settings.limits).await?;
        if created.model.is_empty() {
            return Err(refused("model is required".to_owned()));
        }
        if created.from.is_empty() {
            let text =
                format!("add a section [models.{}] with `model = \"FILE.gguf\"`", Value::from(created.model));
            return Err(to_write(&text));
        }
        let (listing, mut derived) = self.derived_of(head, &created.from, &created.model)?;
        if !self.service.local().derives() {
            return Err(created.for_configuration(&listing.name));
        }
        created.check(&listing)?;
        derived.default.extend(options::parameters(&created.parameters)?);
        derived.system = created.system.filter(|system| !system.is_empty()).or(derived.system);
        self.derive(head, "create", derived).await?;
        let line = |status: &str| format!("{}\n", json!({ "status": status }));
        Ok(match created.stream {
            Some(false) => reply::text(JSON, line("success")),
            _ => reply::text(LINES, line("writing manifest") + &line("success")),
        })
    }

    /// The model that answers to `from`, and what a new name of it begins with: a derived model hands on its
    /// settings.
    fn derived_of(
        &self,
        head: &Parts,
        from: &str,
        name: &str,
    ) -> Result<(ModelListing, DerivedModel), HttpProblem> {
        let (model, from) = self.ollama_model(head, from)?;
        let listing = self.service.local().listing(model);
        let filters = self.service.local().filters(model);
        let own = filters.and_then(|filters| filters.derived.get(&from).cloned()).unwrap_or_default();
        let name = name.strip_suffix(LATEST).unwrap_or(name).to_owned();
        let derived =
            DerivedModel { name, of: listing.name.clone(), default: own.default, system: own.system };
        Ok((listing, derived))
    }

    async fn derive(&self, head: &Parts, act: &'static str, model: DerivedModel) -> Result<(), HttpProblem> {
        self.permitted_name(head, &model.name)?;
        let name = model.name.clone();
        self.service.local().derive(model).await?;
        // Afterwards, because an invalid name may contain anything.
        self.audit(head, act, &name);
        Ok(())
    }
}

impl Created {
    /// Refuses, by its name, a field that a derived model cannot have.
    fn check(&self, of: &ModelListing) -> Result<(), HttpProblem> {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let unknown = |name: &&String| !WITHOUT_EFFECT.contains(&name.as_str());
        let mut others = self.others.iter().filter(|(_, value)| !is_empty(value)).map(|(name, _)| name);
        if let Some(name) = others.find(unknown) {
            let text = "only `from`, `system` and `parameters` define a model here; the rest is taken \
                from its base model";
            return Err(refused(format!("`{name}` is not supported: {text}, {}", of.name)));
        }
        for (name, value) in self.parameters.iter().filter(|(_, value)| !value.is_null()) {
            let has_context = || of.context().zip(options::context(&self.parameters));
            let is_occupied =
                name == "num_ctx" && has_context().is_some_and(|(has, requested)| requested <= has);
            if !is_occupied && !options::is_of_requests(name) {
                return Err(of_engine(name, value, of));
            }
        }
        Ok(())
    }

    /// The refusal where no models are derived, with the lines that make the same.
    fn for_configuration(&self, of: &str) -> HttpProblem {
        let section = Value::from(self.model.as_str());
        let mut text = format!("add the section of {} again as [models.{section}]", Value::from(of));
        if let Some(system) = self.system.as_deref().filter(|system| !system.is_empty()) {
            text += &format!(", with `filters.system = {}`", Value::from(system));
        }
        for (name, value) in self.parameters.iter().filter(|(_, value)| !value.is_null()) {
            text += &format!(", with `filters.default.{name} = {value}`");
        }
        to_write(&text)
    }
}

/// A parameter of the engine, which the derived model shares with its model.
fn of_engine(name: &str, value: &Value, of: &ModelListing) -> HttpProblem {
    let has = match of.context().filter(|_| name == "num_ctx") {
        Some(context) => format!(", whose context is {context} tokens"),
        None => String::new(),
    };
    refused(format!(
        "`parameters.{name}` = {value} is not supported: it is a setting of the engine, which is shared \
            with {}{has}",
        of.name
    ))
}

fn to_write(text: &str) -> HttpProblem {
    let message =
        format!("models are defined in the configuration of this server: {text}, and run `plimsoll reload`");
    HttpProblem::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}
