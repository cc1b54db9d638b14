//! Answers LM Studio's listing of models (`/api/v0/models`), from which Zed and others read context lengths.

use plimsoll_scheduler::ModelState;
use serde_json::{Value, json};

use super::listing::ModelListing;
use super::model_profile::ModelAbility;

impl ModelListing {
    pub(crate) fn as_lm_studio(&self) -> Value {
        let profile = self.profile.as_deref();
        let can = |capability| profile.is_some_and(|profile| profile.can(capability));
        let kind = match () {
            () if can(ModelAbility::Embedding) => "embeddings",
            () if can(ModelAbility::Vision) => "vlm",
            () => "llm",
        };
        let is_loaded = matches!(self.state, ModelState::Ready | ModelState::Draining);
        let mut model = json!({
            "id": self.name,
            "object": "model",
            "type": kind,
            "publisher": "",
            "arch": profile.map_or("", |profile| &profile.architecture),
            "compatibility_type": "gguf",
            "quantization": profile.map_or("", |profile| profile.quantization),
            "state": if is_loaded { "loaded" } else { "not-loaded" },
        });
        // A model has the configured context in each load, so that is the most.
        if let Some(context) = self.context() {
            model["max_context_length"] = json!(context);
            if is_loaded {
                model["loaded_context_length"] = json!(context);
            }
        }
        if can(ModelAbility::Tools) {
            model["capabilities"] = json!(["tool_use"]);
        }
        model
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::listing::tests::listing;
    use super::super::model_profile::ModelProfile;
    use super::*;

    #[test]
    fn a_model_is_listed_with_its_context_before_and_after_its_load() {
        let mut model = listing("a", ModelState::Unloaded);
        assert_eq!(model.as_lm_studio()["type"], "llm");
        assert_eq!(model.as_lm_studio().get("max_context_length"), None);
        model.profile = Some(Rc::new(ModelProfile {
            architecture: "qwen3".to_owned(),
            quantization: "Q4_K",
            context: Some(4096),
            capabilities: vec![ModelAbility::Completion, ModelAbility::Vision, ModelAbility::Tools],
            ..ModelProfile::default()
        }));
        let unloaded = model.as_lm_studio();
        assert_eq!((&unloaded["state"], &unloaded["type"]), (&json!("not-loaded"), &json!("vlm")));
        assert_eq!(
            (&unloaded["max_context_length"], unloaded.get("loaded_context_length")),
            (&json!(4096), None)
        );
        model.state = ModelState::Ready;
        assert_eq!(model.as_lm_studio()["loaded_context_length"], 4096);
        assert_eq!(model.as_lm_studio()["arch"], "qwen3");
    }
}
