//! Our own memory on a card that was not meant.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Holder};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "context_on_each_card",
        source: "nvidia-smi: one process with a bare context on a further card",
        test: context_on_each_card,
    },
    Rule {
        name: "card_twice",
        source: "NCCL: init.cc compares the ranks' bus ids",
        test: card_twice,
    },
    Rule {
        name: "visible_devices",
        source: "CUDA reads CUDA_VISIBLE_DEVICES once, at its start",
        test: visible_devices,
    },
    Rule {
        name: "stray_context",
        source: "a thread without cudaSetDevice works on card 0",
        test: stray_context,
    },
    Rule {
        name: "other_main_card",
        source: "llama.cpp: --main-gpu stays 0 where tensors are sent elsewhere",
        test: other_main_card,
    },
    Rule {
        name: "choice_missed",
        source: "the card that was chosen against the one that the refusal names; a hidden card has no number",
        test: choice_missed,
    },
    Rule {
        name: "cards_set_apart",
        source: "the report's own words",
        test: cards_set_apart,
    },
];

/// One process is on several cards, on one of them with little; or several of one name are on a card that is one's own.
fn context_on_each_card(evidence: &Evidence) -> Option<Finding> {
    let stray = evidence
        .holders
        .iter()
        .find(|stray| is_stray(stray, &evidence.holders))?;
    let text = format!(
        "{} holds {}, hardly more than a context, on a further card",
        stray.name, stray.used
    );
    let weight = if evidence.refusals.is_empty() {
        Strong
    } else {
        Fair
    };
    Some(Finding::new(
        Cause::WrongDeviceContext,
        weight,
        text,
        vec![stray.quote.clone()],
    ))
}

fn is_stray(stray: &Holder, all: &[Holder]) -> bool {
    const CONTEXT: Bytes = Bytes::mib(1024);
    let is_context = stray.used <= CONTEXT && stray.pid.is_some();
    let twin = |other: &&Holder| {
        let elsewhere = other.pid == stray.pid && other.card != stray.card;
        elsewhere && (is_context || other.used >= stray.used * 2)
    };
    let same =
        |other: &&Holder| other.name == stray.name && other.card == stray.card && other.pid != stray.pid;
    let siblings = all
        .iter()
        .filter(same)
        .filter(|other| other.used <= CONTEXT)
        .count();
    let owner = all.iter().filter(same).any(|other| other.used >= stray.used * 3);
    all.iter().any(|other| twin(&other)) || (is_context && siblings >= 1 && owner)
}

fn card_twice(evidence: &Evidence) -> Option<Finding> {
    let quote = evidence.quote(Saying::CardTwice)?;
    let text = "two ranks are on one card, and each should have its own";
    Some(Finding::new(Cause::WrongDeviceContext, Strong, text, vec![quote]))
}

fn visible_devices(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.said.get(&Saying::VisibleDevices)?;
    let unheeded = evidence.said.get(&Saying::NotHeeded);
    let near = unheeded.is_some_and(|seen| seen.first.line.abs_diff(told.first.line) <= 8);
    let weight = match near {
        true => Decisive,
        false if told.count >= 2 && !evidence.ran_out() => Weak,
        false => return None,
    };
    let quotes = evidence.quotes(&[Saying::VisibleDevices, Saying::NotHeeded]);
    let text = "the choice of cards was made, and did not take effect";
    Some(Finding::new(Cause::WrongDeviceContext, weight, text, quotes).told())
}

fn stray_context(evidence: &Evidence) -> Option<Finding> {
    // A board that shares its memory has one card.
    let told = evidence
        .quote(Saying::StrayContext)
        .filter(|_| !evidence.is_unified() && !evidence.says(Saying::ProgramFault))?;
    let picked = evidence
        .choices
        .iter()
        .any(|choice| choice.cards.iter().any(|card| *card > 0));
    let chosen = picked || evidence.says(Saying::DeviceChoice);
    let weight = match (chosen, evidence.refusals.is_empty()) {
        (_, false) => Weak,
        _ if evidence.says_any(&[Saying::TakenBefore, Saying::NobodyShown]) => Weak,
        _ if evidence.says_any(&[Saying::IllegalAccess, Saying::DriverFault])
            || !evidence.xids.is_empty() =>
        {
            Weak
        }
        _ if evidence.startup.is_some() => Weak,
        (true, true) => Decisive,
        (false, true) => Strong,
    };
    let text = "memory or a context is on a card that was not meant";
    Some(Finding::new(Cause::WrongDeviceContext, weight, text, vec![told]).told())
}

fn other_main_card(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::DeviceChoice)?;
    let (weight, quote) = match (evidence.quote(Saying::IllegalAccess), evidence.refusal()) {
        (Some(access), _) => (Decisive, access),
        (None, Some(refusal)) => (Fair, refusal.quote.clone()),
        (None, None) => return None,
    };
    let text = "the main card is named, beside a failure on a card";
    Some(Finding::new(Cause::WrongDeviceContext, weight, text, vec![told, quote]).told())
}

fn choice_missed(evidence: &Evidence) -> Option<Finding> {
    let (choice, card) = (evidence.choice_missed()?, evidence.refusing_card()?);
    let chosen: Vec<String> = choice.cards.iter().map(u64::to_string).collect();
    let text = format!(
        "card {} was chosen, and card {card} is what refused",
        chosen.join(", ")
    );
    Some(Finding::new(
        Cause::WrongDeviceContext,
        Strong,
        text,
        vec![choice.quote.clone()],
    ))
}

/// A report that sets its first card against others tells where memory is, not how much.
fn cards_set_apart(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::CardsSetApart)?;
    let known =
        evidence.says(Saying::StrayContext) || evidence.is_unified() || evidence.says(Saying::ProgramFault);
    let weight = if evidence.was_refused() { Weak } else { Fair };
    let text = "the first card is set against others";
    (!known).then(|| Finding::new(Cause::WrongDeviceContext, weight, text, vec![told]).told())
}
