//! Table of cards and boards by product name: `3090`, `RX 7900 XTX`, `Jetson AGX Orin 64GB`.
//!
//! DECISION: the table is data (`data/cards.tsv`), with one row per card. Names are compared without brand,
//! spaces and case, so `rtx3090` and `RTX 3090` are the same card.

use super::card::{Card, CardId, CardKind, Counting};
use crate::Bytes;

const TABLE: &str = include_str!("../data/cards.tsv");

/// Words of a name that do not tell two cards apart.
const BRANDS: [&str; 14] = [
    "nvidia",
    "geforce",
    "rtx",
    "gtx",
    "quadro",
    "tesla",
    "jetson",
    "amd",
    "radeon",
    "rx",
    "instinct",
    "intel",
    "arc",
    "blackwell",
];

/// Near names that an error lists.
const NEAR: usize = 6;

/// The fewest characters by which a name is distinguished from others.
const TELLING: usize = 3;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownCard {
    name: &'static str,
    memory: Bytes,
    compute_capability: Option<(u32, u32)>,
    source: &'static str,
}

fn rows() -> impl Iterator<Item = KnownCard> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        Some(KnownCard {
            name: next()?,
            memory: next()?.parse().ok()?,
            compute_capability: super::card_spec::compute_capability(next()?),
            source: next()?,
        })
    })
}

/// The words of a name without its brand, run together: `RTX 4060 Ti 16GB` is `4060ti16gb`.
fn key(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let stripped = words.map(|word| {
        let digit = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
        // `rtx3090` is a brand and a number.
        if BRANDS.contains(&&word[..digit]) { &word[digit..] } else { word }
    });
    stripped.collect()
}

/// The key of a name without the size at its end, and the size.
fn sized(key: &str) -> Option<(&str, Bytes)> {
    let text =
        key.strip_suffix("gb").or_else(|| key.strip_suffix("gib")).or_else(|| key.strip_suffix('g'))?;
    // The number of the name may stand right before it: `306012gb` is 3060 with 12 GB, and sizes have at most
    // three digits.
    (1..=3).find_map(|digits| {
        let (model, size) = text.split_at_checked(text.len().checked_sub(digits)?)?;
        let size = size.parse().ok().filter(|size: &u64| *size > 0)?;
        let size = Bytes::gib(size);
        rows().any(|row| self::key(row.name) == model && row.is_sold_as(size)).then_some((model, size))
    })
}

/// Total memory and compute capability of a known card, as `--card` takes them.
pub(super) fn figures(name: &str) -> Option<String> {
    let card = find(name).ok()?;
    let (major, minor) = card.compute_capability?;
    Some(format!("total={}MiB,cc={major}.{minor}", card.memory.get() >> 20))
}

/// The card of this name, or the names that are nearest to it.
pub(super) fn find(name: &str) -> Result<KnownCard, Vec<&'static str>> {
    let wanted = key(name);
    if let Some(row) = rows().find(|row| key(row.name) == wanted) {
        return Ok(row);
    }
    // Shops put the size behind the name: `RTX 3060 12GB`.
    if let Some((model, size)) = sized(&wanted)
        && let Some(row) = rows().find(|row| key(row.name) == model && row.is_sold_as(size))
    {
        return Ok(row);
    }
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let number = digits(&wanted);
    let near = |row: &KnownCard| {
        let key = key(row.name);
        // A name that has parts of a known one, or its number. Short ones are in names that have nothing in
        // common: an Apple M2 is no A2.
        !wanted.is_empty() && (key.contains(&wanted) || key.len() >= TELLING && wanted.contains(&key))
            || number.len() >= TELLING && digits(&key) == number
    };
    Err(rows().filter(near).map(|row| row.name).take(NEAR).collect())
}

/// Memory that the driver of an idle card keeps: 240 to 550 MiB.
pub fn kept_by_driver(total: Bytes) -> Bytes {
    total.scaled(1, 64).clamp(Bytes::mib(256), Bytes::mib(512))
}

impl KnownCard {
    /// The card with the driver's own memory taken off what is free.
    pub(super) fn card(&self) -> Card {
        Card {
            id: CardId::new(self.name),
            kind: CardKind::Cuda,
            name: self.name.to_owned(),
            uuid: None,
            total: self.memory,
            free: self.memory.saturating_sub(kept_by_driver(self.memory)),
            compute_capability: self.compute_capability,
            legacy_pool: self.is_shared() && self.name.starts_with("Jetson"),
            shares_host: self.is_shared(),
            counting: Counting::Driver,
        }
    }

    /// Limits of a plan for such a card.
    pub(super) fn doubt(&self) -> Option<String> {
        if self.compute_capability.is_none() {
            return Some(format!(
                "the card {} does not support CUDA; the plan assumes a CUDA card of the same size, although \
                    buffers and contexts have other sizes with ROCm, Vulkan and SYCL",
                self.name
            ));
        }
        self.is_shared().then(|| {
            format!(
                "the card {} shares its {} of memory with the system; add free=SIZE, the available memory \
                    that `free -m` shows on that machine",
                self.name, self.memory
            )
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Names the cards that are sold under the same name with more memory, where the given name has none.
    pub(super) fn larger(&self, given: &str) -> Option<String> {
        if sized(&key(given)).is_some() {
            return None;
        }
        let own = key(self.name);
        let same = |row: &KnownCard| {
            let key = key(row.name);
            let size = key.strip_prefix(&*own).and_then(|size| size.strip_suffix("gb"));
            size.is_some_and(|size| !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let others: Vec<String> = rows()
            .filter(|row| row.memory > self.memory && same(row))
            .map(|row| format!("{} with {}", row.name, row.memory))
            .collect();
        (!others.is_empty()).then(|| {
            format!(
                "the plan assumes the {} with {}; another version of this card is the {}",
                self.name,
                self.memory,
                others.join(", the ")
            )
        })
    }

    /// Vendors count whole GiB, of which the driver shows a little less.
    fn is_sold_as(&self, size: Bytes) -> bool {
        self.memory.get().div_ceil(1 << 30) == size.get() >> 30
    }

    fn is_shared(&self) -> bool {
        self.source.contains("shared with the host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete_and_its_name_is_its_own() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        let mut keys: Vec<String> = rows().map(|row| key(row.name)).collect();
        assert_eq!(keys.len(), lines, "a row cannot be read");
        keys.sort();
        let unique = keys.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(unique && lines > 80, "{keys:?}");
        for row in rows() {
            assert!(row.memory >= Bytes::gib(4) && row.memory <= Bytes::gib(192), "{row:?}");
            let is_nvidia = row.source.contains("cuda-gpus");
            assert_eq!(row.compute_capability.is_some(), is_nvidia, "{row:?}");
            assert_eq!(find(row.name), Ok(row));
        }
    }

    #[test]
    fn a_name_needs_no_brand_and_a_wrong_one_has_neighbours() {
        for (stated, meant) in [
            ("3090", "GeForce RTX 3090"),
            ("rtx3090", "GeForce RTX 3090"),
            ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
            ("RX 7900 XTX", "Radeon RX 7900 XTX"),
            ("4060ti 16gb", "GeForce RTX 4060 Ti 16GB"),
            ("AGX Orin 64GB", "Jetson AGX Orin 64GB"),
            ("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
            ("NVIDIA H200", "H200"),
        ] {
            assert_eq!(find(stated).map(|row| row.name), Ok(meant), "{stated}");
        }
        let near = find("AGX Orin").unwrap_err();
        assert_eq!(near, ["Jetson AGX Orin 32GB", "Jetson AGX Orin 64GB"]);
        assert!(find("3090 XT").unwrap_err().contains(&"GeForce RTX 3090"));
        for absurd in ["toaster", "Apple M2", "Strix Halo", "Radeon 8060S"] {
            assert!(find(absurd).unwrap_err().is_empty(), "{absurd}");
        }
        assert!(find("").unwrap_err().is_empty());
    }
}
