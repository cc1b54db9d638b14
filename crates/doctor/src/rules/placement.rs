//! Recognises memory that was allocated on the wrong GPU.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{Fair, Strong};
use super::RuleFinding;
use crate::cause::Cause;
use crate::facts::{CardHolder, Facts};

rules! {
    context_on_each_card: "nvidia-smi shows a process with an empty context on a second card";
    choice_missed: "the selected card is not the card that refused the memory";
}

/// One process is on several cards, on one of them with little; or several of one name share one card.
fn context_on_each_card(facts: &Facts) -> Option<RuleFinding> {
    let stray = facts.holders.iter().find(|stray| is_stray(stray, &facts.holders))?;
    let text = format!(
        "process {} holds {} on a second card, little more than an empty CUDA context takes",
        stray.name, stray.used
    );
    let weight = if facts.refusals.is_empty() { Strong } else { Fair };
    Some(RuleFinding::new(Cause::WrongDeviceContext, weight, text, [stray.quote.clone()]))
}

fn is_stray(stray: &CardHolder, all: &[CardHolder]) -> bool {
    // A context with cuBLAS and cuDNN loaded stays below this.
    const CONTEXT: Bytes = Bytes::mib(1024);
    let is_context = stray.used <= CONTEXT && stray.pid.is_some();
    let twin = |other: &&CardHolder| {
        let elsewhere = other.pid == stray.pid && other.card != stray.card;
        elsewhere && (is_context || other.used >= stray.used * 2)
    };
    let same =
        |other: &&CardHolder| other.name == stray.name && other.card == stray.card && other.pid != stray.pid;
    // Workers of one program leave a context each on the card of their parent.
    let siblings = all.iter().filter(same).filter(|other| other.used <= CONTEXT).count();
    let owner = all.iter().filter(same).any(|other| other.used >= stray.used * 3);
    all.iter().any(|other| twin(&other)) || (is_context && siblings >= 1 && owner)
}

/// A hidden card has no number, so a refusal of a card beyond the selection is of another one.
fn choice_missed(facts: &Facts) -> Option<RuleFinding> {
    let (choice, card) = (facts.choice_missed()?, facts.refusing_card()?);
    let chosen: Vec<String> = choice.cards.iter().map(u64::to_string).collect();
    let text = format!("card {} was selected, but card {card} refused the memory", chosen.join(", "));
    Some(RuleFinding::new(Cause::WrongDeviceContext, Strong, text, [choice.quote.clone()]))
}
