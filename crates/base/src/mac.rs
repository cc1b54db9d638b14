//! Reads the chip and the memory of a Mac as a card: `M4 Pro 48GB`.
//!
//! DECISION: the name must state the memory, since each chip is sold with several sizes, and the chip itself
//! decides nothing of a plan.

use crate::card::{Card, CardId, CardKind, Counting};
use crate::{Bytes, CardMaker};

/// Memory from which Metal lets programs use three quarters, and below which two thirds.
const LARGE: Bytes = Bytes::gib(36);

/// A chip of Apple, as `--card` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mac {
    /// `Apple M4 Pro`.
    chip: String,
    /// `None` where the name does not state it.
    memory: Option<Bytes>,
}

impl Mac {
    /// The Mac of this name; `None` if it is no chip of Apple.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let mut words = name.split([' ', '-']).filter(|word| !word.is_empty()).peekable();
        words.next_if_eq(&"apple");
        let generation = words.next()?.strip_prefix('m')?;
        let mut chip = match generation.as_bytes() {
            [b'1'..=b'9'] => format!("Apple M{generation}"),
            _ => return None,
        };
        for (word, shown) in [("pro", " Pro"), ("max", " Max"), ("ultra", " Ultra")] {
            if words.next_if_eq(&word).is_some() {
                chip.push_str(shown);
                break;
            }
        }
        // `48GB` or `48 GB`.
        let memory = words.collect::<String>();
        match memory.as_str() {
            "" => Some(Self { chip, memory: None }),
            memory => Some(Self { chip, memory: Some(size(memory)?) }),
        }
    }

    /// The card, whose free memory is what Metal lets programs use; `None` without a stated size.
    pub(crate) fn card(&self) -> Option<Card> {
        let total = self.memory?;
        Some(Card {
            id: CardId::new(&self.chip),
            kind: CardKind::Cuda,
            name: self.chip.clone(),
            uuid: None,
            maker: CardMaker::Apple,
            address: None,
            total,
            free: working_set(total),
            compute_capability: None,
            legacy_pool: false,
            shares_host: true,
            counting: Counting::Driver,
        })
    }

    /// The name without a size.
    pub(crate) fn chip(&self) -> &str {
        &self.chip
    }

    /// Limits of a plan for it.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let Some(total) = self.memory else { return Vec::new() };
        vec![
            format!(
                "nothing was measured on a Mac: the plan for {} is that of CUDA, although buffers have other \
                    sizes with Metal",
                self.chip
            ),
            format!(
                "Metal lets programs use about {} of the {total} of {} (recommendedMaxWorkingSetSize, which \
                    llama.cpp prints); if `sysctl iogpu.wired_limit_mb` shows another limit, add free=SIZE",
                working_set(total),
                self.chip
            ),
        ]
    }
}

/// `48gb`: sellers write GB and mean GiB.
fn size(word: &str) -> Option<Bytes> {
    let number = ["gib", "gb", "g"].into_iter().find_map(|unit| word.strip_suffix(unit))?;
    number.parse().ok().filter(|size| (8..=1024).contains(size)).map(Bytes::gib)
}

/// `recommendedMaxWorkingSetSize` without a limit of the user's own. Apple states no formula. Logs of Macs
/// have two thirds of 32 GiB (ollama#434), and three quarters of 36 GiB (28991.03 MB, an M4 Max), 64, 96 and
/// 192 GiB (Rapid-MLX#183). Later systems let programs use more of 128 and 256 GiB (ds4#893).
fn working_set(memory: Bytes) -> Bytes {
    if memory < LARGE { memory.scaled(2, 3) } else { memory.scaled(3, 4) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_has_the_working_set_that_its_log_states() {
        for (name, chip, total, free) in [
            ("M2 Max 32GB", "Apple M2 Max", 32, 21_845),
            ("Apple M4 Max 36 GB", "Apple M4 Max", 36, 27_648),
            ("M4 Pro 48GB", "Apple M4 Pro", 48, 36_864),
            ("apple-m2-ultra-192gib", "Apple M2 Ultra", 192, 147_456),
        ] {
            let card = Mac::find(name).unwrap().card().unwrap();
            assert_eq!((card.name.as_str(), card.total), (chip, Bytes::gib(total)));
            assert_eq!(card.free.get() >> 20, free, "{name}");
            assert!(card.shares_host && card.maker == CardMaker::Apple);
        }
    }

    #[test]
    fn other_names_are_no_macs() {
        for name in ["M40", "M4000", "Tesla M4", "M4 Pro Max 48GB", "M4 48", "M4 4GB", "M0", "MX450", "", "M"]
        {
            assert_eq!(Mac::find(name), None, "{name}");
        }
        assert_eq!(Mac::find("Apple M4 Max").unwrap().card(), None);
    }
}
