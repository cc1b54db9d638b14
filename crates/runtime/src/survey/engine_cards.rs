//! Keeps a model off the cards that its engine has no backend for.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_base::{Backends, Card, CardId, CardKind, Reason};
use plimsoll_config::{ConfiguredModel, Launch};
use plimsoll_engine::{Visible, child_environment, program};

/// The backends of a model's engine. Where all cards are NVIDIA's no engine is asked: nothing depends on it.
pub(crate) fn backends(
    entry: &ConfiguredModel,
    program: Option<&Path>,
    inherited: &[(OsString, OsString)],
    cards: &[Card],
) -> Backends {
    // Another program than a llama-server has its backends in no known place, and one before it neither.
    let is_own = matches!(entry.launch, Launch::LlamaServer { .. });
    let program = program.filter(|program| is_own || program.ends_with("llama-server"));
    let Some(program) = program.filter(|_| cards.iter().any(|card| !card.maker.is_nvidia())) else {
        return Backends::Unsure;
    };
    let own = entry.environment(0);
    let environment = child_environment(inherited.to_vec(), &own, &Visible::AsInherited, None, None);
    program::backends(program, &environment)
}

/// The cards that the engine cannot use, or an error where `cards` of its section names one of them.
///
/// DECISION: an engine whose backends are unknown is placed on NVIDIA's cards, as most are built for these;
/// on others only where there are no such, or where the model's `cards` names them.
pub(crate) fn excluded(
    entry: &ConfiguredModel,
    backends: &Backends,
    cards: &[Card],
) -> Result<Vec<CardId>, Reason> {
    let gpus = || cards.iter().filter(|card| card.kind == CardKind::Cuda);
    if gpus().all(|card| card.maker.is_nvidia()) {
        return Ok(Vec::new());
    }
    let has_nvidia = gpus().any(|card| card.maker.is_nvidia());
    let is_usable = |card: &Card| {
        let guess = card.maker.is_nvidia() || !has_nvidia || entry.names_card(card);
        backends.can_use(card.maker).unwrap_or(guess)
    };
    if let Some(card) = gpus().find(|card| entry.names_card(card) && !is_usable(card)) {
        return Err(cannot_use(entry, backends, card));
    }
    Ok(gpus().filter(|card| !is_usable(card)).map(|card| card.id.clone()).collect())
}

fn cannot_use(entry: &ConfiguredModel, backends: &Backends, card: &Card) -> Reason {
    let has = match backends {
        Backends::Known(known) if known.is_empty() => "computes on the processor alone".to_owned(),
        Backends::Known(known) => {
            let words: Vec<&str> = known.iter().map(|backend| backend.device_word()).collect();
            format!("computes with {} alone", words.join(" and "))
        }
        Backends::Unsure => "has unknown backends".to_owned(),
    };
    let own = card.maker.own_backend();
    let text = format!(
        "{}: the engine {has}, and `cards` names {}, a card of {}; give an engine with {own} or Vulkan, or \
            another card",
        entry.origin.0,
        card.name,
        card.maker.name()
    );
    Reason::new("no_backend", text).fact("card", card.id.as_str())
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Backend;

    use super::*;

    fn entry(lines: &str) -> ConfiguredModel {
        let text = format!("[models.a]\ncmd = 'x ${{PORT}}'\n{lines}\n");
        plimsoll_config::parse("x.toml", &text, &|_| None).unwrap().models.remove(0)
    }

    fn cards(names: &[&str]) -> Vec<Card> {
        names.iter().map(|name| format!("name={name},total=8GiB").parse().unwrap()).collect()
    }

    #[test]
    fn an_engine_is_kept_off_the_cards_that_it_has_no_backend_for() {
        let (nvidia, amd, intel) = ("NVIDIA L4", "AMD Radeon RX 7900 XTX", "Intel Arc B580");
        let known = |backends: &[Backend]| Backends::Known(backends.to_vec());
        let off = |lines: &str, backends: &Backends, names: &[&str]| {
            let excluded = excluded(&entry(lines), backends, &cards(names));
            excluded.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let all = [nvidia, amd, intel];
        assert_eq!(off("", &known(&[Backend::Cuda]), &all).unwrap(), [amd, intel]);
        assert_eq!(off("", &known(&[Backend::Hip]), &all).unwrap(), [nvidia, intel]);
        assert_eq!(off("", &known(&[Backend::Sycl, Backend::Cuda]), &all).unwrap(), [amd]);
        assert!(off("", &known(&[Backend::Vulkan]), &all).unwrap().is_empty());
        assert_eq!(off("", &known(&[]), &all).unwrap(), all, "it computes on the processor");
        assert_eq!(off("", &Backends::Unsure, &all).unwrap(), [amd, intel]);
        assert!(off("", &Backends::Unsure, &[amd, intel]).unwrap().is_empty());
        // Where all cards are NVIDIA's nothing changes.
        assert!(off("", &known(&[]), &[nvidia]).unwrap().is_empty());
        let named = format!("cards = [\"{amd}\"]");
        assert_eq!(off(&named, &Backends::Unsure, &all).unwrap(), [intel]);
        let refused = off(&named, &known(&[Backend::Cuda]), &all).unwrap_err();
        assert!(refused.text.contains("computes with CUDA alone"), "{}", refused.text);
        assert!(refused.text.contains("give an engine with HIP or Vulkan"), "{}", refused.text);
    }
}
