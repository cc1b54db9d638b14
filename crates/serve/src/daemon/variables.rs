//! Logs the daemon's environment variables that engines do not inherit.

use plimsoll_base::counted;
use plimsoll_config::{Configuration, ConfiguredModel, ServeSettings};
use plimsoll_engine::inherited;
use plimsoll_flags::{ProgramKind, quoted};

/// Logs what engines do not inherit; a check starts none.
pub(super) fn notify(serve: &ServeSettings, roster: &Configuration) {
    let (_, kept) = inherited(std::env::vars_os(), &serve.pass_env);
    if kept.iter().any(|name| name == HUB_TOKEN)
        && let Some(model) = roster.models.iter().find(|model| downloads(model))
    {
        tracing::warn!(
            "engines do not inherit {HUB_TOKEN}, so `{}` cannot download from a private or gated repository; \
            `pass-env = [\"{HUB_TOKEN}\"]` passes it to every engine, and `env` of a model to that one",
            quoted(&model.name)
        );
    }
    if !kept.is_empty() {
        let variables = counted(kept.len(), "variable");
        tracing::info!(
            "engines do not inherit {variables} of this environment; `pass-env` passes those that they need \
            (--log-level debug lists them)"
        );
        tracing::debug!("engines do not inherit {}", kept.join(", "));
    }
}

/// The token of the hub, which an engine needs for its own downloads.
const HUB_TOKEN: &str = "HF_TOKEN";

/// True for a model that its engine downloads, and whose own variables name no token.
fn downloads(model: &ConfiguredModel) -> bool {
    let options = model.launch.options().filter(|options| options.text("--hf-token").is_none());
    let params = options.and_then(|options| options.params(ProgramKind::LlamaServer).ok());
    let is_remote = params.is_some_and(|params| params.remote_sources().iter().any(Option::is_some));
    is_remote && !model.environment(0).iter().any(|(name, _)| name == HUB_TOKEN)
}
