//! Writes one model's JSON entry in `/v1/models` and `/running`, in the shapes of llama-server's router and
//! llama-swap.

use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, masked};
use plimsoll_scheduler::ModelState;
use serde_json::{Value, json};

use super::model_profile::ModelProfile;

/// A model's entry in the JSON listings.
#[derive(Clone, Debug)]
pub struct ModelListing {
    pub name: String,
    pub aliases: Vec<String>,
    pub tags: Vec<String>,
    /// Name for people.
    pub title: Option<String>,
    pub description: String,
    /// The model answers requests but is not listed.
    pub unlisted: bool,
    /// It lies in the folder of downloads.
    pub downloaded: bool,
    /// Names that were derived from it; each has an entry of its own.
    pub derived: Vec<String>,
    pub state: ModelState,
    /// An operator's load of it is under way, whether or not requests wait for it.
    pub load_ordered: bool,
    /// The engine runs, is idle and has freed its memory for the time.
    pub asleep: bool,
    /// The engine's command line; empty before the first start if it depends on the placement.
    pub arguments: Vec<String>,
    /// The section of the preset that it came from, as INI.
    pub preset: Option<String>,
    /// Exit code of the last run if it failed, or 128 plus the signal.
    pub exit_code: Option<i32>,
    /// The engine's own description of the model, once it runs.
    pub meta: Option<Value>,
    pub modalities: Modalities,
    /// Profile from its file and flags; `None` for an engine whose files are not read.
    pub profile: Option<Rc<ModelProfile>>,
    /// Memory of its run, measured or else claimed.
    pub occupied: Option<OccupiedMemory>,
    /// Time until its run ends if no more requests come; `None` for one that stays.
    pub expires_in: Option<Duration>,
    /// Measured memory and growth, once there is a measurement.
    pub memory: Option<Value>,
    /// The part of its cache in host memory, with the depth at full speed.
    pub spill: Option<Value>,
    pub ttl: Option<Duration>,
    /// The engine's address.
    pub address: Option<String>,
    pub pid: Option<u32>,
}

/// Memory of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OccupiedMemory {
    pub total: Bytes,
    pub on_gpus: Bytes,
}

#[derive(Clone, Debug)]
pub struct Modalities {
    pub input: Vec<String>,
    pub output: Vec<String>,
}

impl Modalities {
    /// Those of a model that answers with text.
    pub fn of(takes_images: bool) -> Self {
        let mut all = Self::default();
        all.input.extend(takes_images.then(|| "image".to_owned()));
        all
    }
}

impl Default for Modalities {
    fn default() -> Self {
        let text = || vec!["text".to_owned()];
        Self { input: text(), output: text() }
    }
}

impl ModelListing {
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.state, ModelState::Unloaded | ModelState::Failed)
    }

    /// The entry of this name: one of its own for a derived model. The memory is shown once, at its model.
    pub fn named(self, name: &str) -> Self {
        if !self.derived.iter().any(|derived| derived == name) {
            return self;
        }
        let (name, downloaded) = (name.to_owned(), true);
        let none = Vec::new();
        let own = Self { title: None, memory: None, spill: None, occupied: None, derived: none, ..self };
        Self { name, downloaded, aliases: Vec::new(), ..own }
    }

    /// Tokens that one request may use: as the engine reports, or as planned.
    pub fn context(&self) -> Option<u64> {
        let reported = self.meta.as_ref().and_then(|meta| meta.get("n_ctx")?.as_u64());
        reported.or_else(|| self.profile.as_ref()?.context)
    }

    /// The entry as in llama-server's `/v1/models` (`server-models.cpp:get_router_models @ b10605`).
    pub(crate) fn as_model(&self, created: u64) -> Value {
        let asleep = self.asleep && self.state == ModelState::Ready;
        let value = if asleep { SLEEPING } else { status(self.state) };
        let mut status = json!({ "value": value, "args": masked(&self.arguments) });
        if let Some(preset) = &self.preset {
            status["preset"] = json!(preset);
        }
        if self.state == ModelState::Failed {
            status["failed"] = json!(true);
            status["exit_code"] = json!(self.exit_code);
        }
        let mut model = json!({
            "id": self.name,
            "aliases": self.aliases,
            "tags": self.tags,
            "object": "model",
            // A constant of llama-server, which its clients may compare.
            "owned_by": "llamacpp",
            "created": created,
            "status": status,
            "architecture": {
                "input_modalities": self.modalities.input,
                "output_modalities": self.modalities.output,
            },
            // The configuration is the user's file, so that only downloads are removed over HTTP.
            "source": if self.downloaded { "cache" } else { "preset" },
            "can_remove": self.downloaded,
        });
        if let Some(title) = &self.title {
            model["name"] = json!(title);
        }
        if !self.description.is_empty() {
            model["description"] = json!(self.description);
        }
        if let Some(meta) = &self.meta {
            model["meta"] = meta.clone();
        }
        if let Some(memory) = &self.memory {
            model["memory"] = memory.clone();
        }
        if let Some(spill) = &self.spill {
            model["spill"] = spill.clone();
        }
        if let Some(context) = self.context() {
            // Of OpenRouter and of vLLM; clients look for one or the other.
            model["context_length"] = json!(context);
            model["max_model_len"] = json!(context);
        }
        if let Some(profile) = &self.profile {
            model["capabilities"] = json!(profile.capability_words());
            if let Some(need) = profile.need {
                model["memory"]["planned"] = json!(need);
            }
        }
        model
    }

    /// The entry as in llama-swap's `/running`.
    pub(crate) fn as_running(&self) -> Value {
        let state = match self.state {
            ModelState::Unloaded | ModelState::Failed => "stopped",
            ModelState::Queued | ModelState::Loading => "starting",
            ModelState::Ready => "ready",
            ModelState::Draining | ModelState::Stopping => "stopping",
        };
        let mut running = json!({
            "model": self.name,
            "name": self.title.as_ref().unwrap_or(&self.name),
            "description": self.description,
            "state": state,
            "cmd": masked(&self.arguments).join(" "),
            "proxy": self.address,
            "pid": self.pid,
            // For llama-swap 0 means that time alone never unloads the model.
            "ttl": self.ttl.map_or(0, |ttl| ttl.as_secs()),
        });
        if let Some(memory) = &self.memory {
            running["memory"] = memory.clone();
        }
        if let Some(spill) = &self.spill {
            running["spill"] = spill.clone();
        }
        running
    }
}

/// Word of llama-server's router for an engine that sleeps.
pub(crate) const SLEEPING: &str = "sleeping";

/// State of a model in the words of llama-server's router. The router has no words for waiting and stopping:
/// a waiting model is shown as loading, a stopping one as loaded.
pub fn status(state: ModelState) -> &'static str {
    match state {
        ModelState::Unloaded | ModelState::Failed => "unloaded",
        ModelState::Queued | ModelState::Loading => "loading",
        ModelState::Ready | ModelState::Draining | ModelState::Stopping => "loaded",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn listing(name: &str, state: ModelState) -> ModelListing {
        ModelListing {
            name: name.to_owned(),
            aliases: vec!["alias".to_owned()],
            tags: Vec::new(),
            title: None,
            description: String::new(),
            unlisted: false,
            downloaded: false,
            derived: Vec::new(),
            state,
            load_ordered: false,
            asleep: false,
            arguments: vec!["llama-server".to_owned(), "-c".to_owned(), "4096".to_owned()],
            preset: None,
            exit_code: None,
            meta: None,
            modalities: Modalities::default(),
            profile: None,
            occupied: None,
            expires_in: None,
            memory: None,
            spill: None,
            ttl: Some(Duration::from_secs(300)),
            address: Some("http://127.0.0.1:4000".to_owned()),
            pid: Some(4001),
        }
    }

    #[test]
    fn a_model_has_the_shape_of_llama_servers_router() {
        assert_eq!(
            listing("a", ModelState::Ready).as_model(7),
            json!({
                "id": "a", "aliases": ["alias"], "tags": [], "object": "model", "owned_by": "llamacpp",
                "created": 7, "status": {"value": "loaded", "args": ["llama-server", "-c", "4096"]},
                "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                "source": "preset", "can_remove": false,
            })
        );
        let mut named = listing("a", ModelState::Ready);
        (named.title, named.description) = (Some("A for people".to_owned()), "Thinks.".to_owned());
        assert_eq!(named.as_model(7)["name"], "A for people");
        assert_eq!(named.as_model(7)["description"], "Thinks.");
        assert_eq!(named.as_running()["name"], "A for people");
        let mut asleep = listing("a", ModelState::Ready);
        asleep.asleep = true;
        assert_eq!(asleep.as_model(7)["status"]["value"], "sleeping");
        let mut failed = listing("a", ModelState::Failed);
        failed.exit_code = Some(137);
        let status = &failed.as_model(7)["status"];
        assert_eq!(
            (&status["value"], &status["failed"], &status["exit_code"]),
            (&json!("unloaded"), &json!(true), &json!(137))
        );
    }

    #[test]
    fn secrets_of_a_command_line_are_not_listed() {
        let line = "vllm --api-key sk-1 --hf-token=hf_2 --max-tokens 5 --api-key-file /k -hft hf_3 -c 1";
        let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let shown = "vllm --api-key *** --hf-token=*** --max-tokens 5 --api-key-file /k -hft *** -c 1";
        let mut running = listing("a", ModelState::Ready);
        running.arguments = line;
        assert_eq!(running.as_running()["cmd"], shown);
        assert_eq!(running.as_model(7)["status"]["args"][2], "***");
    }

    #[test]
    fn a_running_model_has_the_shape_of_llama_swaps() {
        assert_eq!(
            listing("a", ModelState::Loading).as_running(),
            json!({
                "model": "a", "name": "a", "description": "", "state": "starting",
                "cmd": "llama-server -c 4096", "proxy": "http://127.0.0.1:4000", "pid": 4001, "ttl": 300,
            })
        );
    }
}
