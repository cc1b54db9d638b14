//! Answers the listings of Ollama's API: `/api/tags`, `/api/show`, `/api/ps`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use plimsoll_config::{DerivedFilters, RequestFilters};
use plimsoll_ollama::{StoreEndpoint, request};
use serde_json::{Map, Value, json};

use crate::HttpProblem;
use crate::body::{ClientBody, receive_order};
use crate::listing::ModelListing;
use crate::model_profile::ModelProfile;
use crate::model_service::{ModelService, RequestRouter};
use crate::reply::{self, Reply};
use crate::server::HttpServer;

pub(super) const LINES: &str = "application/x-ndjson";
pub(super) const JSON: &str = "application/json; charset=utf-8";
const NO_FILES: &str =
    "models and their files are given in the configuration of this server, and not by requests";
/// Time until a model leaves that never does: what a Go client can read.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl<H: RequestRouter> HttpServer<H> {
    pub(crate) async fn ollama_listing(
        &self,
        listing: StoreEndpoint,
        head: &Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        match listing {
            StoreEndpoint::Tags => {
                let models: Vec<Value> = self.entries(head).map(|model| tag(&model)).collect();
                Ok(reply::json(&json!({ "models": models })))
            }
            StoreEndpoint::Running => {
                let running = self.listed(head).filter(ModelListing::is_running);
                let models: Vec<Value> = running.map(|model| process(&model)).collect();
                Ok(reply::json(&json!({ "models": models })))
            }
            StoreEndpoint::Show => {
                let order = receive_order(body, &self.bodies, &self.settings.limits).await?;
                let (model, name) = self.ollama_model(head, &request::model_of(&order)?.0)?;
                let listing = self.service.local().listing(model);
                let filters = self.service.local().filters(model);
                let derived = filters.as_ref().and_then(|filters| filters.derived.get(&name));
                let mut shown = show(&listing, filters.as_deref());
                if let Some(derived) = derived {
                    show_derived(&mut shown, &listing.name, derived);
                }
                Ok(reply::json(&shown))
            }
            StoreEndpoint::Pull => self.pull(head, body).await,
            StoreEndpoint::Delete => self.delete(head, body).await,
            StoreEndpoint::Create => self.create(head, body).await,
            StoreEndpoint::Copy => self.copy(head, body).await,
            StoreEndpoint::Push => {
                Err(HttpProblem::new(StatusCode::NOT_IMPLEMENTED, "not_supported", NO_FILES))
            }
        }
    }
}

fn tag(model: &ModelListing) -> Value {
    let known = ModelProfile::default();
    let profile = model.profile.as_deref().unwrap_or(&known);
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": time(profile.modified.unwrap_or(UNIX_EPOCH)),
        "size": profile.file_size.get(),
        "digest": profile.digest,
        "details": details(profile),
        "capabilities": profile.capability_words(),
    })
}

fn process(model: &ModelListing) -> Value {
    let mut process = tag(model);
    // A model that loads has a claim, and no measurement yet.
    let [occupied, on_cards] =
        model.occupied.map(|occupied| [occupied.total.get(), occupied.on_gpus.get()]).unwrap_or_default();
    process["size"] = json!(occupied);
    process["size_vram"] = json!(on_cards);
    process["expires_at"] = json!(time(SystemTime::now() + model.expires_in.unwrap_or(FOREVER).min(FOREVER)));
    if let Some(context) = model.context() {
        process["context_length"] = json!(context);
    }
    process
}

fn show(model: &ModelListing, filters: Option<&RequestFilters>) -> Value {
    let known = ModelProfile::default();
    let profile = model.profile.as_deref().unwrap_or(&known);
    let mut info = Map::new();
    let mut notify = |key: String, value: Value| drop(info.insert(key, value));
    if !profile.architecture.is_empty() {
        let architecture = &profile.architecture;
        notify("general.architecture".to_owned(), json!(architecture));
        notify("general.parameter_count".to_owned(), json!(profile.parameters));
        notify(format!("{architecture}.embedding_length"), json!(profile.embedding_length));
        // Clients size their prompts by it, so it is what a request may use and not what the model was
        // trained for.
        if let Some(context) = model.context() {
            notify(format!("{architecture}.context_length"), json!(context));
        }
    }
    // VS Code shows this name.
    let name = if profile.base_name.is_empty() { &model.name } else { &profile.base_name };
    notify("general.basename".to_owned(), json!(name));
    let of_flags = profile.parameters_set.iter().map(|(name, value)| format!("{name} {value}"));
    let of_requests = filters.map_or_else(Vec::new, |filters| parameters(&filters.default));
    let lines: Vec<String> = of_flags.chain(of_requests).collect();
    json!({
        "license": "",
        "modelfile": format!("# {} is a model of plimsoll serve\n", model.name),
        "parameters": lines.join("\n"),
        "template": "",
        "system": filters.and_then(|filters| filters.system.as_deref()).unwrap_or_default(),
        "modified_at": time(profile.modified.unwrap_or(UNIX_EPOCH)),
        "details": details(profile),
        "model_info": info,
        "capabilities": profile.capability_words(),
    })
}

/// A line for each value: Ollama repeats a name that has several.
fn parameters(set: &Map<String, Value>) -> Vec<String> {
    let line = |(name, value): (&String, &Value)| match value {
        Value::Array(values) => values.iter().map(|value| format!("{name} {value}")).collect(),
        value => vec![format!("{name} {value}")],
    };
    set.iter().flat_map(line).collect()
}

/// Own settings of a derived model.
fn show_derived(shown: &mut Value, of: &str, derived: &DerivedFilters) {
    let system = derived.system.as_deref().unwrap_or_default();
    let lines = parameters(&derived.default);
    let mut file = format!("FROM {of}\n");
    if !system.is_empty() {
        file += &format!("SYSTEM {}\n", Value::from(system));
    }
    lines.iter().for_each(|line| file += &format!("PARAMETER {line}\n"));
    shown["modelfile"] = json!(file);
    shown["parameters"] = json!(lines.join("\n"));
    shown["system"] = json!(system);
    shown["details"]["parent_model"] = json!(of);
}

fn details(profile: &ModelProfile) -> Value {
    json!({
        "parent_model": "",
        "format": if profile.architecture.is_empty() { "" } else { "gguf" },
        "family": profile.architecture,
        "families": [profile.architecture],
        "parameter_size": profile.size_label,
        "quantization_level": profile.quantization.to_uppercase(),
    })
}

fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use plimsoll_scheduler::ModelState;

    use super::*;
    use crate::listing::tests::listing;

    #[test]
    fn a_parameter_of_several_values_has_a_line_for_each() {
        let set = json!({ "stop": ["<end>", "\n"], "top_k": 3 });
        let lines = parameters(set.as_object().unwrap());
        assert_eq!(lines, [r#"stop "<end>""#, r#"stop "\n""#, "top_k 3"]);
    }

    #[test]
    fn settings_of_a_model_are_shown() {
        let profile = ModelProfile {
            quantization: "q6_K",
            parameters_set: vec![("temperature", "0.2".to_owned())],
            ..ModelProfile::default()
        };
        let listing = ModelListing { profile: Some(profile.into()), ..listing("m", ModelState::Ready) };
        let filters = RequestFilters { system: Some("You are short.".to_owned()), ..Default::default() };
        let shown = show(&listing, Some(&filters));
        assert_eq!(shown["parameters"], "temperature 0.2");
        assert_eq!(shown["system"], "You are short.");
        assert_eq!(shown["details"]["quantization_level"], "Q6_K");
    }
}
