//! Runs the steps of `plimsoll quickstart`: it sends four chat requests, and explains how the daemon reacts
//! to each.

use std::net::SocketAddr;

use plimsoll_base::{Bytes, Card};
use plimsoll_scheduler::{ModelState, ModelView, SchedulerSnapshot};
use plimsoll_serve::DaemonHandle;

use super::client::{Answer, ask, chat};
use super::folder::{Folder, Member};
use super::talk::{quote, say, title};
use crate::report::ErrorReport;

const QUESTION: &str = "Why does a ship have a load line?";

/// Asks both models, then the one that never fits, and reports the outcomes.
pub(super) async fn notify(
    daemon: &DaemonHandle,
    address: SocketAddr,
    folder: &Folder,
) -> Result<(), ErrorReport> {
    let [alpha, beta] = &folder.pair;
    title(format_args!("you send a request to model {}, which is not loaded", alpha.name));
    requested(daemon, address, alpha).await?;
    title(format_args!("you send another request to model {}", alpha.name));
    requested(daemon, address, alpha).await?;
    title(format_args!("you send a request to {}, which does not fit beside {}", beta.name, alpha.name));
    requested(daemon, address, beta).await?;
    refused(address, &folder.giant).await
}

async fn requested(daemon: &DaemonHandle, address: SocketAddr, member: &Member) -> Result<(), ErrorReport> {
    // An answer does not say which models were stopped for it; comparing two snapshots does.
    let before = daemon.snapshot();
    let answer = put(address, member).await?;
    let after = daemon.snapshot();
    let Some(text) = answer.text() else {
        return Err(unexpected(member, &answer));
    };
    let leavers = leavers(&before, &after);
    for leaver in &leavers {
        quote(&departure(&before, &after, leaver, member));
    }
    let loaded = if is_ready(&before, member.name) { "still loaded" } else { "loaded" };
    let (name, took) = (member.name, answer.took.as_millis());
    quote(&format!("{name} is {loaded} and answers after {took} ms: “{}”", text.trim()));
    quote(&holders(&after));
    Ok(())
}

async fn refused(address: SocketAddr, giant: &Member) -> Result<(), ErrorReport> {
    title(format_args!(
        "you send a request to model {}, which has the same file, but is configured for {} conversations at \
            once",
        giant.name, giant.slots
    ));
    let answer = put(address, giant).await?;
    let error = &answer.body["error"];
    // 413 says that no eviction could help. A 503 would ask the client to retry, which never succeeds here.
    if answer.status != http::StatusCode::PAYLOAD_TOO_LARGE {
        return Err(unexpected(giant, &answer));
    }
    quote(&format!("refused at once, with status {} and the reason:", answer.status.as_u16()));
    quote_reason(&error["reason"], 1);
    for hint in error["hints"].as_array().into_iter().flatten() {
        quote(&format!("hint: {}", hint["text"].as_str().unwrap_or_default()));
    }
    Ok(())
}

async fn put(address: SocketAddr, member: &Member) -> Result<Answer, ErrorReport> {
    let model = member.name;
    let answer = ask(address, model, QUESTION).await;
    answer.map_err(|error| ErrorReport::new(format!("cannot send a request to model {model}: {error}")))
}

fn unexpected(member: &Member, answer: &Answer) -> ErrorReport {
    let message = &answer.body["error"]["message"];
    let stated = message.as_str().map_or_else(|| answer.body.to_string(), str::to_owned);
    // The files are the only state of an earlier run that this one reuses.
    let hint = "if a file in the folder was changed, delete the folder and run quickstart again";
    ErrorReport::new(format!("{} gave an unexpected answer: {stated}\nhint: {hint}", member.name))
}

/// Models that were loaded before and are not now.
fn leavers<'a>(before: &'a SchedulerSnapshot, after: &SchedulerSnapshot) -> Vec<&'a ModelView> {
    let gone = |model: &&ModelView| model.state == ModelState::Ready && !is_ready(after, &model.name);
    before.models.iter().filter(gone).collect()
}

fn departure(
    before: &SchedulerSnapshot,
    after: &SchedulerSnapshot,
    leaver: &ModelView,
    newcomer: &Member,
) -> String {
    // The claim exists only once the model is admitted, so it is read from the later snapshot.
    let need = claim(after, newcomer.name);
    // Free memory before the eviction is the number that explains it.
    let free: Bytes = before.cards.iter().map(|card| card.free).sum();
    let capacity: Bytes = before.cards.iter().map(|card| card.capacity).sum();
    format!(
        "model {} needs {}, but of the budget of {} only {} is free:\nmodel {} is idle and least recently \
            used, so it is stopped",
        newcomer.name,
        size(need),
        size(capacity),
        size(free),
        leaver.name
    )
}

fn holders(snapshot: &SchedulerSnapshot) -> String {
    let line = |card: &plimsoll_scheduler::CardView| {
        let holders: Vec<String> = card
            .holders
            .iter()
            .map(|holder| format!("{} holds {}", holder.model, size(holder.claim)))
            .collect();
        format!("{}: {}, {} is free", card.id, holders.join(", "), size(card.free))
    };
    snapshot.cards.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn is_ready(snapshot: &SchedulerSnapshot, name: &str) -> bool {
    let mut models = snapshot.models.iter();
    models.any(|model| model.name == name && model.state == ModelState::Ready)
}

fn claim(snapshot: &SchedulerSnapshot, name: &str) -> Bytes {
    let models = snapshot.models.iter().filter(|model| model.name == name);
    models.flat_map(|model| &model.claim).map(|share| share.bytes).sum()
}

/// Prints a reason tree as received over HTTP, the root first.
fn quote_reason(reason: &serde_json::Value, depth: usize) {
    let text = reason["text"].as_str().unwrap_or_default();
    quote(&format!("{:indent$}{text}", "", indent = depth * 2));
    for cause in reason["because"].as_array().into_iter().flatten() {
        quote_reason(cause, depth + 1);
    }
}

/// Formats a size with one decimal: the models are so small that whole MiB would not add up.
pub(super) fn size(bytes: Bytes) -> String {
    let tenths = bytes.get().saturating_mul(10) / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// Prints the commands to continue with.
pub(super) fn hand_over(address: SocketAddr, folder: &Folder, budget: &Card) {
    let model = folder.pair[0].name;
    title("the server keeps running; Ctrl-C stops it");
    quote(&format!(
        "curl http://{address}/v1/chat/completions -H 'content-type: application/json' -d '{}'",
        chat(model, "hello")
    ));
    quote(&format!("the models: {}", folder.config.display()));
    quote(&format!(
        // `kind=host` makes the budget a limit on host memory, as in the tour, on a machine with GPUs too.
        "to start the server again without this tour: plimsoll serve {} --card name={},kind=host,total={}B",
        folder.config.display(),
        budget.name,
        budget.total.get()
    ));
    quote("to delete the engine and the models again: plimsoll engine remove");
    quote(&format!("the page of this server: http://{address}"));
    quote(&format!("the base URL for other clients: http://{address}/v1"));
    next_steps();
}

/// Prints what to do after the tour.
pub(super) fn next_steps() {
    title("what now");
    quote("will your model fit?              plimsoll plan MODEL.gguf");
    quote("which models fit together?        plimsoll plan *.gguf");
    quote("a configuration of them:          plimsoll plan *.gguf --toml > plimsoll.toml");
    quote("serve them:                       plimsoll serve plimsoll.toml");
    quote("from llama-swap or Ollama:        plimsoll import ollama > plimsoll.toml");
    say("");
}
