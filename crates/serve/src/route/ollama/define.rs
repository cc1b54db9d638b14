//! Ollama's `/api/create` and `/api/copy`: the entry of the configuration that does the same.
//!
//! DECISION: a request writes no configuration. That file is the operator's, and it is what a restart serves.

use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refused;
use crate::route::HttpProblem;
use crate::route::body::{ClientBody, receive};
use crate::route::model_service::ModelService;
use crate::route::reply::Reply;
use crate::route::server::HttpServer;

#[derive(Debug, Deserialize)]
struct Copied {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
}

#[derive(Debug, Deserialize)]
struct Created {
    #[serde(default, alias = "name")]
    model: String,
    #[serde(default)]
    from: String,
    system: Option<String>,
    #[serde(default)]
    parameters: Map<String, Value>,
}

impl<H: ModelService> HttpServer<H> {
    pub(super) async fn copy(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let copied: Copied = self.asked(body).await?;
        if copied.source.is_empty() || copied.destination.is_empty() {
            return Err(refused("source and destination are required".to_owned()));
        }
        // Of a model that is not here, Ollama says so first.
        let model = self.permitted(head, self.ollama_model(head, &copied.source)?)?;
        let name = self.service.listing(model).name;
        let aliases = Value::from(vec![copied.destination]);
        Err(to_write(&format!("add `aliases = {aliases}` to [models.{}]", Value::from(name))))
    }

    pub(super) async fn create(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let created: Created = self.asked(body).await?;
        if created.model.is_empty() {
            return Err(refused("model is required".to_owned()));
        }
        if created.from.is_empty() {
            let text =
                format!("add a section [models.{}] with `model = \"FILE.gguf\"`", Value::from(created.model));
            return Err(to_write(&text));
        }
        let model = self.permitted(head, self.ollama_model(head, &created.from)?)?;
        let name = Value::from(self.service.listing(model).name);
        let mut text = format!("add the section of {name} again as [models.{}]", Value::from(created.model));
        if let Some(system) = created.system.filter(|system| !system.is_empty()) {
            text += &format!(", with `filters.system = {}`", Value::from(system));
        }
        for (name, value) in created.parameters.iter().filter(|(_, value)| !value.is_null()) {
            text += &format!(", with `filters.default.{name} = {value}`");
        }
        Err(to_write(&text))
    }

    async fn asked<T: for<'de> Deserialize<'de>>(&self, body: ClientBody) -> Result<T, HttpProblem> {
        let received = receive(body, &self.bodies, &self.settings.limits).await?;
        serde_json::from_slice(&received.rope.copy(0..received.rope.len()))
            .map_err(|error| refused(format!("the body is not a valid request of this API: {error}")))
    }
}

fn to_write(text: &str) -> HttpProblem {
    let message =
        format!("models are defined in the configuration of this server: {text}, and run `plimsoll reload`");
    HttpProblem::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}
