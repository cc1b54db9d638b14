//! Finds the cards that llama.cpp's flags `-dev`, `-mg` and `-ts` name.

use plimsoll_base::{Card, Order};
use plimsoll_flags::{ModelParams, SplitMode, device_number};

use crate::{PlanError, PlanRequest};

/// Cards that flags name, as positions in the machine's list, lowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedCards {
    pub cards: Vec<usize>,
    /// The model must use these cards and no others.
    pub only: bool,
}

/// Returns the cards that `params` names on a machine with this many.
pub fn named(params: &ModelParams, cards: usize) -> Result<NamedCards, PlanError> {
    // Flags number all cards of the machine, but with `-dev`, `-mg` and `-ts` count within its list
    // (`llama.cpp: llama_prepare_model_devices @ b10605`). `-mg` without `-sm none` has no effect.
    if cards == 0 {
        return Ok(NamedCards::default());
    }
    let list = match params.devices.as_slice() {
        [] => None,
        names => Some(listed(names, cards)?),
    };
    let main = chosen(params, list.as_deref(), cards)?;
    let drafts = listed(&params.draft_devices, cards)?;
    let only = main.is_some();
    let mut named = main.unwrap_or_default();
    // `-dev none` puts everything on the host, which requires no card at all.
    if only && named.is_empty() && drafts.is_empty() {
        return Ok(NamedCards::default());
    }
    named.extend(drafts);
    for over in params.overrides.iter().chain(&params.draft_overrides) {
        if let Some((_, number)) = device_number(&over.buffer) {
            let unknown = || PlanError::OverrideBuffer { buffer: over.buffer.clone(), cards };
            named.push(there(number, cards).ok_or_else(unknown)?);
        }
    }
    named.order();
    named.dedup();
    Ok(NamedCards { cards: named, only })
}

/// The cards of the model itself; `None` if the flags leave that open.
fn chosen(
    params: &ModelParams,
    list: Option<&[usize]>,
    cards: usize,
) -> Result<Option<Vec<usize>>, PlanError> {
    match (params.split_mode, params.main_gpu, list) {
        (_, _, Some([])) => Ok(Some(Vec::new())),
        // The engine's main card is the first of its list.
        (SplitMode::None, None, list) => Ok(list.map(|list| list.iter().take(1).copied().collect())),
        (SplitMode::None, Some(main), list) => {
            let at = usize::try_from(main).unwrap_or(usize::MAX);
            let card = list.map_or(there(at, cards), |list| list.get(at).copied());
            let unknown = PlanError::UnknownMainGpu { main, cards: list.map_or(cards, <[usize]>::len) };
            card.map(|card| Some(vec![card])).ok_or(unknown)
        }
        (_, _, Some(list)) => Ok(Some(list.to_vec())),
        (_, _, None) => Ok(shared(&params.tensor_split, cards)),
    }
}

/// The cards with a share by hand; zero shares, and shares of absent cards, choose none.
fn shared(shares: &[f32], cards: usize) -> Option<Vec<usize>> {
    let given = shares.iter().take(cards).enumerate().filter(|(_, share)| **share > 0.0);
    Some(given.map(|(i, _)| i).collect()).filter(|given: &Vec<usize>| !given.is_empty())
}

/// Card numbers for a list of device names; `none` and devices that are no cards give none.
fn listed(names: &[String], cards: usize) -> Result<Vec<usize>, PlanError> {
    // A device that is no card (RPC, OpenCL) is not ours to count.
    let find = |name: &String| {
        let (_, number) = device_number(name)?;
        Some(there(number, cards).ok_or_else(|| PlanError::UnknownDevice { name: name.clone(), cards }))
    };
    names.iter().filter_map(find).collect()
}

/// The interface that the engine will use: that of `-dev`, else of the first card's vendor.
pub fn interface(request: &PlanRequest<'_>) -> &'static str {
    let named = request.params.devices.iter().find_map(|name| device_number(name));
    match (named, request.cards.first().and_then(Card::pci_vendor)) {
        (Some((interface, _)), _) => interface,
        (None, Some(0x1002)) => "ROCm",
        (None, Some(_)) => "Vulkan",
        (None, None) => "CUDA",
    }
}

fn there(number: usize, cards: usize) -> Option<usize> {
    (number < cards).then_some(number)
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::{Options, ProgramKind};

    use super::*;

    fn names(line: &str) -> Result<NamedCards, PlanError> {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let params = Options::from_argv(&argv).unwrap().params(ProgramKind::LlamaServer);
        named(&params.unwrap(), 4)
    }

    #[test]
    fn flags_name_exact_cards_or_required_cards_or_none() {
        for (line, cards, only) in [
            ("", &[][..], false),
            ("-mg 1", &[], false),
            ("-sm none", &[], false),
            ("-dev none", &[], false),
            ("-dev Vulkan0", &[0], true),
            ("-dev ROCm3,ROCm1", &[1, 3], true),
            ("-dev RPC0", &[], false),
            ("-ot exps=Vulkan2,attn=Vulkan_Host", &[2], false),
            ("-ts 0,0", &[], false),
            ("-dev CUDA1", &[1], true),
            ("-dev CUDA3,CUDA1", &[1, 3], true),
            ("-sm none -mg 1", &[1], true),
            ("-sm none -mg 0", &[0], true),
            ("-dev CUDA3,CUDA1 -sm none", &[3], true),
            ("-dev CUDA3,CUDA1 -sm none -mg 1", &[1], true),
            ("-ts 3,0,1", &[0, 2], true),
            ("-ts 1,1,1,1,1", &[0, 1, 2, 3], true),
            ("-sm none -ts 0,1", &[], false),
            ("-ot exps=CUDA2,attn=CPU", &[2], false),
            ("-devd CUDA1", &[1], false),
            ("-dev none -devd CUDA1", &[1], true),
            ("-dev CUDA0 -devd CUDA2", &[0, 2], true),
        ] {
            let cards = cards.to_vec();
            assert_eq!(names(line).unwrap(), NamedCards { cards, only }, "{line}");
        }
    }

    #[test]
    fn an_absent_card_is_refused_by_name() {
        for (line, words) in [
            ("-dev CUDA4", "-dev names `CUDA4`, but the number of cards is 4"),
            ("-dev Vulkan4", "use Vulkan0 to Vulkan3, or `none`"),
            ("-dev ROCm99999999999999999999,ROCm7", "use ROCm0 to ROCm3, or `none`"),
            ("-sm none -mg 4", "-mg 4 names no card; cards are numbered from 0, and there are only 4"),
            (
                "-dev CUDA1 -sm none -mg 1",
                "-mg 1 names no card; cards are numbered from 0, and there are only 1",
            ),
            ("-ot exps=CUDA9", "`CUDA9`, but the planned cards have no such buffer"),
        ] {
            let error = names(line).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
