//! Finds refusals whose cause is memory that other processes hold on the card.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{self, Fair, Strong, Weak};
use super::RuleFinding;
use super::card::has_grown;
use crate::cause::Cause;
use crate::facts::{Facts, LoadStage, Purpose, Quote};
use crate::pattern::Pattern;

rules! {
    listed_processes: "the process table of nvidia-smi or of `rocm-smi --showpids` shows these processes";
    used_by_nobody: "nvidia-smi shows a full card, but its table does not list the processes that hold the \
        memory";
    unworded: "PyTorch reports each refusal of its own allocator, so a CUDA error without such a report \
        comes from a CUDA context or from pinned memory";
    no_room_for_context: "a CUDA context needs several hundred MiB";
    taken_before: "llama.cpp prints `using device … - N MiB free` when it starts";
    small_victim: "the buffers of a camera (libargus) take tens of MiB";
    desktop_on_card: "a display server holds memory of the card that it drives; ggml's legacy pool fails on a \
        full card without having grown";
}

fn occupied(facts: &Facts) -> Bytes {
    facts.holders.iter().map(|holder| holder.used).sum()
}

/// The holders may be this program and its workers. Without a refusal, a table shows the largest.
fn listed_processes(facts: &Facts) -> Option<RuleFinding> {
    let ran_out = facts.ran_out();
    let card = facts.card().or(facts.model.named_cards.filter(|_| !ran_out))?;
    let largest = facts.holders.iter().max_by_key(|holder| holder.used)?;
    let counted = if ran_out { occupied(facts) } else { largest.used };
    let weight = if counted.scaled(3, 1) >= card { Fair } else { Weak };
    let is_large = weight == Fair || !ran_out && counted.scaled(4, 1) >= card;
    let text = format!("process {} holds {} of the card's {card}", largest.name, largest.used);
    let speaks = is_large && facts.torch.is_none() && (ran_out || facts.series.is_empty());
    speaks.then(|| RuleFinding::new(Cause::ForeignProcess, weight, text, [largest.quote.clone()]))
}

/// Half of a card is used, and the listed processes hold less than half of that: containers, other users, an
/// exited process.
fn used_by_nobody(facts: &Facts) -> Option<RuleFinding> {
    let usage = facts.usage.as_ref()?;
    let occupied = occupied(facts);
    // With buffers in the log the program itself may be the holder.
    let alone = facts.torch.is_none() && facts.buffers.is_empty() && facts.xids.is_empty();
    // Only the whole output of nvidia-smi lists processes; people quote its figures alone.
    let alone = alone && (usage.quote.text.starts_with('|') || !facts.holders.is_empty());
    let nobody = usage.used.scaled(2, 1) >= usage.total && occupied.scaled(2, 1) < usage.used && alone;
    let text = format!(
        "{} of {} are in use on the card, but the listed processes hold only {occupied}",
        usage.used, usage.total
    );
    nobody.then(|| RuleFinding::new(Cause::ForeignProcess, Fair, text, [usage.quote.clone()]))
}

fn unworded(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::Unworded).or_else(|| refused_in_wsl(facts))?;
    if facts.torch.is_some() || facts.says(Pattern::PinCall) || facts.is_unified() {
        return None;
    }
    // Windows and WSL allow little pinned memory; elsewhere a context is the usual request outside the
    // allocator.
    if facts.says_any(&[Pattern::Windows, Pattern::Wsl]) {
        let text = "memory was refused outside PyTorch's allocator, on Windows or WSL, where little memory \
            can be pinned";
        return Some(RuleFinding::new(Cause::HostPinnedLimit, Fair, text, [line]));
    }
    let text = "memory was refused outside PyTorch's allocator: the card had no room for a CUDA context";
    Some(RuleFinding::new(Cause::ForeignProcess, Weak, text, [line]))
}

/// A call of the run time without a buffer's name, in WSL, before anything is served.
fn refused_in_wsl(facts: &Facts) -> Option<Quote> {
    let refusal = facts.refusal().filter(|_| facts.says(Pattern::Wsl))?;
    let early =
        refusal.at_run_time && refusal.purpose == Purpose::Unknown && refusal.stage != LoadStage::Serving;
    early.then(|| refusal.quote.clone())
}

/// The process holds nothing yet, so other processes fill the card.
fn no_room_for_context(facts: &Facts) -> Option<RuleFinding> {
    let call = facts.quote(Pattern::ContextCall)?;
    let holds_some = facts.torch.is_some() || !facts.buffers.is_empty();
    // A refused size means that the context had already been made.
    let unsized_only = facts.refusals.iter().all(|refusal| refusal.requested.is_none());
    let alone = unsized_only && !holds_some && !facts.is_unified();
    let text = "the program could allocate nothing, because the card had no room for a CUDA context";
    (alone && facts.ran_out()).then(|| RuleFinding::new(Cause::ForeignProcess, Fair, text, [call]))
}

fn taken_before(facts: &Facts) -> Option<RuleFinding> {
    let taken = facts.taken_before()?;
    let mut quotes = facts.quotes(&[Pattern::CardFree, Pattern::CardTotals]);
    quotes.push(facts.refusal()?.quote.clone());
    quotes.extend(facts.holders.iter().max_by_key(|holder| holder.used).map(|holder| holder.quote.clone()));
    let text = format!(
        "other processes hold {taken} of the card; without them, the refused request would \
        fit"
    );
    // A table may have been printed while the program held memory.
    Some(of_neighbour(facts, Strong, text, quotes).proven_if(facts.card_free.is_some()))
}

/// A camera needs little, so a refusal means that another process holds nearly everything.
fn small_victim(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::Camera)?;
    let starved = facts.says_any(&[Pattern::NvMap, Pattern::OutOfMemory]);
    let text = "a request for a camera's buffers, which take tens of MiB, was refused";
    starved.then(|| RuleFinding::new(Cause::ForeignProcess, Fair, text, [line]))
}

/// Another process holds memory. Where the GPU shares the host's memory, any use of it counts, so nothing is
/// proven.
pub(super) fn of_neighbour(
    facts: &Facts,
    weight: EvidenceWeight,
    text: String,
    quotes: impl IntoIterator<Item = Quote>,
) -> RuleFinding {
    RuleFinding::new(Cause::ForeignProcess, weight, text, quotes).proven_if(!facts.says(Pattern::SharesHost))
}

/// The user says so, and nothing else explains the refusal: no buffer is named, and the pool had not grown.
fn desktop_on_card(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::Desktop)?;
    let refusal = facts.refusal().filter(|refusal| refusal.at_run_time && refusal.requested.is_none())?;
    let unexplained = matches!(refusal.purpose, Purpose::Unknown | Purpose::Pool) && !has_grown(facts);
    let early = refusal.stage != LoadStage::Serving && facts.torch.is_none() && !facts.is_unified();
    let text = "the card also drives a desktop, which holds some of its memory";
    (unexplained && early)
        .then(|| RuleFinding::new(Cause::ForeignProcess, Fair, text, [line, refusal.quote.clone()]))
}
