//! Which card was chosen: by a variable, an option, an argument or a call, as a report quotes them.
//!
//! Two kinds of number: a variable such as `CUDA_VISIBLE_DEVICES` names cards of the machine and renumbers them, everything else counts among
//! those that are visible.

use crate::evidence::{Choice, Evidence, Quote, Source};
use crate::line::shortened;

/// Variables that hide cards and renumber the rest. Source: CUDA, HIP, ROCr, ggml-vulkan, Level Zero, NVIDIA's container toolkit.
const HIDING: [&str; 8] = [
    "cuda_visible_devices",
    "hip_visible_devices",
    "rocr_visible_devices",
    "ggml_vk_visible_devices",
    "nvidia_visible_devices",
    "gpu_device_ordinal",
    "ze_affinity_mask",
    "oneapi_device_selector",
];
/// Options, arguments and calls that pick one of the visible cards. Source: llama.cpp, PyTorch, CTranslate2, ONNX Runtime, Lightning and what is built on them.
const PICKING: [&str; 22] = [
    "main-gpu",
    "main_gpu",
    " -mg",
    "--gpu-id",
    "--gpu_id",
    "gpu_id",
    "gpu_ranks",
    "--gpu ",
    "--gpu=",
    "device_id",
    "device-id",
    "device_index",
    "device_num",
    "set_device(",
    "setdevice(",
    ".cuda(",
    "cuda.device(",
    "device=",
    "--device ",
    ".to(",
    "devices=[",
    "gpus=[",
];
const LONGEST: usize = 1000;
const MOST: usize = 32;
const MOST_CARDS: usize = 16;

pub(super) fn read(evidence: &mut Evidence, source: Source, text: &str) {
    for (line, row) in (1..).zip(text.lines()).filter(|(_, row)| row.len() <= LONGEST) {
        let lower = row.to_ascii_lowercase();
        let hiding = HIDING.iter().map(|name| (name, true));
        for (name, hides) in hiding.chain(PICKING.iter().map(|name| (name, false))) {
            for (at, _) in lower.match_indices(name).take(4) {
                let cards = listed(&lower[at + name.len()..]);
                if !cards.is_empty() && evidence.choices.len() < MOST {
                    let text = shortened(row.trim()).to_owned();
                    let quote = Quote { source, line, text };
                    evidence.choices.push(Choice { cards, hides, quote });
                }
            }
        }
    }
}

/// `=1`, `'] = "0,2"`, `:1`, ` is set to 1`, `cuda:1`: what stands behind a name, as numbers of cards.
fn listed(behind: &str) -> Vec<u64> {
    let marks = |c: char| {
        matches!(
            c,
            ' ' | '=' | ':' | '"' | '\'' | '[' | ']' | '(' | ')' | '`' | '\\'
        )
    };
    let mut rest = behind.trim_start_matches(marks);
    for words in [
        "is set to",
        "was set to",
        "set to",
        "to ",
        "torch.device",
        "cuda",
        "gpu",
    ] {
        rest = rest.strip_prefix(words).unwrap_or(rest).trim_start_matches(marks);
    }
    let rest = rest.replace(", ", ",");
    let list = rest
        .split(|c: char| !c.is_ascii_digit() && c != ',')
        .next()
        .unwrap_or_default();
    let behind = rest[list.len()..].chars().next();
    // `1920x1080`, `0.9`, `512m` are no cards.
    if behind.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.') {
        return Vec::new();
    }
    list.split(',')
        .map_while(|number| number.parse().ok())
        .filter(|card| *card < 64)
        .take(MOST_CARDS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cards_are_read_behind_every_way_to_choose_one() {
        for (behind, cards) in [
            ("=1", vec![1]),
            ("'] = '1'", vec![1]),
            (":1 GPU_DEVICE_ORDINAL:", vec![1]),
            (" is set to 1", vec![1]),
            ("=0,2,5 python", vec![0, 2, 5]),
            ("'cuda:3')", vec![3]),
            (" 6 -layers", vec![6]),
            ("=GPU-2ab", vec![]),
            ("=1.5", vec![]),
            ("\"cpu\")", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(listed(behind), cards, "{behind}");
        }
    }
}
