//! Refuses a prompt that its model's context cannot hold, before anything is loaded or stopped for it.

use http::StatusCode;
use plimsoll_base::{Reason, counted};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::ProgramKind;
use plimsoll_planner::EngineKind;
use plimsoll_probe::headers::read_token_texts;
use plimsoll_scheduler::ModelId;

use super::{FoundProgram, engine_of, named};
use crate::SchedulerState;
use plimsoll_route::{CertainText, HttpProblem, RequestPrompt};
use plimsoll_task::spawn_blocking;

/// The first build that is known to refuse a prompt of the size of its context with and without
/// `--context-shift` (llama.cpp#17284). Earlier ones may cut it.
const REFUSES_FROM: u32 = 7062;
/// An engine rounds its context up to a multiple of this (`llama-context.cpp: llama_context @ b10605`).
const ROUNDED: u64 = 256;

// DECISION: only what is proven is refused. The engine that would count the tokens is not loaded. The bound
// is the division of the text into the fewest words of the model's own vocabulary; no tokenizer with these
// words gives fewer.
/// The refusal of a prompt that the context of this model, which is not loaded, cannot hold.
pub(crate) async fn overlong(
    state: &SchedulerState,
    model: ModelId,
    prompt: &RequestPrompt<'_>,
) -> Option<HttpProblem> {
    let context = state.statuses.with(model, |status| status.profile.as_ref()?.context)?;
    let holds = context.next_multiple_of(ROUNDED);
    // A token is a byte at least, so that most bodies are not read for this.
    let may_pass = |bytes: usize| u64::try_from(bytes).is_ok_and(|bytes| bytes >= holds);
    if !may_pass(prompt.body.len()) {
        return None;
    }
    let certain = prompt.certain_text().await.filter(|certain| may_pass(certain.text.len()))?;
    let (entry, engine) = (state.entry(model), state.settings.engine.clone());
    let (name, entry) = (entry.name.clone(), ConfiguredModel::clone(&entry));
    let count = move || fewest_tokens(&entry, engine.as_deref(), &certain);
    let tokens = spawn_blocking(count).await.ok().flatten().filter(|tokens| *tokens >= holds)?;
    let text = format!(
        "the prompt has at least {}, but the context of {name} holds only {context}",
        counted(tokens, "token")
    );
    let reason = Reason::new("prompt_too_long", text)
        .fact("model", name)
        .fact("prompt_at_least", tokens)
        .fact("context", context);
    Some(HttpProblem::because(StatusCode::BAD_REQUEST, reason))
}

/// The fewest tokens that the text has with this model; `None` where nothing is proven.
fn fewest_tokens(
    entry: &ConfiguredModel,
    configured: Option<&[String]>,
    certain: &CertainText,
) -> Option<u64> {
    let flags = named::flags(entry, entry.launch.options()?).ok()?;
    // They cut a prompt, change the vocabulary, or print the messages in a way of the user's own.
    let given = |flag: &str| flags.get(flag).is_some();
    let own_template = given("--chat-template") || given("--chat-template-file");
    if given("--context-shift") || given("--override-kv") || (certain.is_templated && own_template) {
        return None;
    }
    let program = FoundProgram::of(entry, configured).ok()?;
    let engine = engine_of(&program.word).filter(|engine| engine.kind == EngineKind::LlamaCpp)?;
    engine.build.filter(|build| *build >= REFUSES_FROM)?;
    let params = flags.params(ProgramKind::LlamaServer).ok()?;
    let texts = read_token_texts(params.model.as_deref()?.as_ref(), engine.kind.dialect()).ok()??;
    Some(texts.fewest_tokens(certain.text.as_bytes()))
}
