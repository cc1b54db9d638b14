//! Table of GPUs, and of boards whose GPU shares the host's memory, by product name: `3090`, `RX 7900 XTX`,
//! `Jetson AGX Orin 64GB`.
//!
//! DECISION: the table is data (`data/cards.tsv`), with one row per card. Names are compared without brand,
//! spaces and case, so `rtx3090` and `RTX 3090` are the same card.

use super::card::{Card, CardId, CardKind, Counting};
use super::card_likeness::{Maker, are_alike, is_size, parts};
use crate::{Bytes, CardMaker, Order};

const TABLE: &str = include_str!("../data/cards.tsv");

/// Words of a name that do not tell two cards apart.
const BRANDS: [&str; 15] = [
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
    "graphics",
];

/// Near names that an error lists.
const NEAR: usize = 6;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownCard {
    name: &'static str,
    memory: Bytes,
    compute_capability: Option<(u32, u32)>,
    source: &'static str,
    /// Other names, with commas between them.
    others: &'static str,
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
            others: next().unwrap_or_default(),
        })
    })
}

/// The cards that are known by name, each with its memory.
pub fn known_cards() -> impl Iterator<Item = (&'static str, Bytes)> {
    rows().map(|row| (row.name, row.memory))
}

/// The words of a name without its brand.
fn words(name: &str) -> impl Iterator<Item = String> {
    let name = name.to_ascii_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).map(|word| {
        let digit = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
        // `rtx3090` is a brand and a number.
        if BRANDS.contains(&&word[..digit]) { &word[digit..] } else { word }
    });
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// These words run together: `RTX 4060 Ti 16GB` is `4060ti16gb`.
fn key(name: &str) -> String {
    words(name).collect()
}

/// The key of a name that its owners use for another one, with or without a size: `Ryzen AI Max+ 395 64GB`
/// is `strixhalo64gb`.
fn usual(wanted: String) -> String {
    let of_row = |row: KnownCard| {
        let others = row.others.split(", ").filter(|other| !other.is_empty());
        let mut sizes = others.filter_map(|other| wanted.strip_prefix(&*key(other)));
        let size = sizes.find(|size| size.is_empty() || is_size(size))?;
        Some(key(row.name) + size)
    };
    rows().find_map(of_row).unwrap_or(wanted)
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
    let wanted = usual(key(name));
    if let Some(row) = rows().find(|row| key(row.name) == wanted) {
        return Ok(row);
    }
    // Shops put the size behind the name: `RTX 3060 12GB`.
    if let Some((model, size)) = sized(&wanted)
        && let Some(row) = rows().find(|row| key(row.name) == model && row.is_sold_as(size))
    {
        return Ok(row);
    }
    let (maker, wanted) = (Maker::of(name), parts(words(name)));
    let near = |row: &KnownCard| {
        maker.is_none_or(|maker| maker == row.maker()) && are_alike(&wanted, &parts(words(row.name)))
    };
    Err(rows().filter(near).map(|row| row.name).take(NEAR).collect())
}

/// True for two names of one product. Boards that are sold with several sizes of memory have one GPU, whose
/// name tells none: a `Strix Halo 64GB` has a `Radeon 8060S`.
pub fn is_same_product(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (find(one), find(other)) else { return false };
    one == other || one.is_shared() && other.is_shared() && one.board() == other.board()
}

/// Memory that the driver of an idle card keeps: 240 to 550 MiB.
pub fn kept_by_driver(total: Bytes) -> Bytes {
    total.scaled(1, 64).clamp(Bytes::mib(256), Bytes::mib(512))
}

impl KnownCard {
    /// The card with what others hold of it taken off what is free.
    pub(super) fn card(&self) -> Card {
        let (total, kept) = self.usable();
        Card {
            id: CardId::new(self.name),
            kind: CardKind::Cuda,
            name: self.name.to_owned(),
            uuid: None,
            maker: CardMaker::of_name(self.name).unwrap_or_default(),
            address: None,
            total,
            free: total.saturating_sub(kept),
            compute_capability: self.compute_capability,
            legacy_pool: self.is_shared() && self.name.starts_with("Jetson"),
            shares_host: self.is_shared(),
            counting: Counting::Driver,
        }
    }

    /// Memory that a GPU can take, and the part of it that it finds taken.
    ///
    /// DECISION: of an APU the kernel's own limit, because nothing is known of the machine: half of the
    /// memory (`ttm.pages_limit`, ttm_device.c:ttm_global_init). What the firmware sets aside only adds to
    /// it. Linux shows 1/32 less than the modules have, of which half counts. On NVIDIA's boards it shows 4 %
    /// to 7 % less (`data/sysroot`), and needs some itself.
    fn usable(&self) -> (Bytes, Bytes) {
        match (self.is_shared(), self.compute_capability) {
            (false, _) => (self.memory, kept_by_driver(self.memory)),
            (true, None) => (self.memory.scaled(1, 2), self.memory.scaled(1, 64)),
            (true, Some(_)) => (self.memory, self.memory.scaled(5, 64)),
        }
    }

    /// Limits of a plan for such a card.
    pub(super) fn doubt(&self) -> Option<String> {
        let Self { name, memory, .. } = self;
        let (total, kept) = self.usable();
        match (self.is_shared(), self.compute_capability) {
            (false, _) => None,
            (true, None) => Some(format!(
                "the {name} shares its {memory} of memory with the system, of which Linux gives a GPU half by \
                    default (ttm.pages_limit); the plan has {} of these {total}; where the limit or the memory \
                    that firmware sets aside is larger, add total=SIZE,free=SIZE as `plimsoll doctor` states \
                    them there",
                total.saturating_sub(kept)
            )),
            (true, Some(_)) => Some(format!(
                "the {name} shares its {memory} of memory with the system, for which the plan leaves {kept}; add \
                    free=SIZE, the available memory that `free -m` shows on that machine"
            )),
        }
    }

    /// The key of the board without the size at its end.
    fn board(&self) -> String {
        let key = key(self.name);
        match key.strip_suffix("gb") {
            Some(sized) => sized.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
            None => key,
        }
    }

    fn maker(&self) -> Maker {
        match self.source {
            source if source.contains("amd.com") => Maker::Amd,
            source if source.contains("intel.com") => Maker::Intel,
            _ => Maker::Nvidia,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Names the cards that are sold under the same name with more memory, where the given name has no size.
    pub(super) fn larger(&self, given: &str) -> Option<String> {
        let others: Vec<String> = self
            .versions(given)
            .filter(|row| row.memory > self.memory)
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

    /// The sizes in GB of a board that is sold with several, where the given name has none.
    pub(super) fn sizes(&self, given: &str) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.versions(given).map(|row| row.memory.get() >> 30).collect();
        if sizes.is_empty() || !self.is_shared() {
            return Vec::new();
        }
        sizes.push(self.memory.get() >> 30);
        sizes.order();
        sizes
    }

    /// Other rows of this name with a size behind it, where the given name has none.
    fn versions(&self, given: &str) -> impl Iterator<Item = Self> {
        let own = key(self.name);
        let is_sized = sized(&usual(key(given))).is_some();
        rows().filter(move |row| {
            let key = key(row.name);
            let size = key.strip_prefix(&*own).and_then(|size| size.strip_suffix("gb"));
            !is_sized
                && size.is_some_and(|size| !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit()))
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
        assert_eq!(rows().count(), lines, "a row cannot be read");
        let names = |row: KnownCard| row.others.split(", ").filter(|name| !name.is_empty()).chain([row.name]);
        let mut keys: Vec<String> = rows().flat_map(names).map(key).collect();
        keys.sort();
        let unique = keys.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(unique && lines > 80, "{keys:?}");
        for row in rows() {
            assert!(row.memory >= Bytes::gib(4) && row.memory <= Bytes::gib(288), "{row:?}");
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
            ("Strix Halo", "Strix Halo"),
            ("Ryzen AI Max+ 395", "Strix Halo"),
            ("AMD Ryzen AI Max+ 395 w/ Radeon 8060S", "Strix Halo"),
            ("AMD Radeon 8060S Graphics", "Strix Halo"),
            ("strixhalo 128GB", "Strix Halo"),
            ("Ryzen AI Max+ 395 64GB", "Strix Halo 64GB"),
            ("7900 XTX", "Radeon RX 7900 XTX"),
            ("AMD Radeon RX 7900 XTX", "Radeon RX 7900 XTX"),
            ("W7900", "Radeon PRO W7900"),
            ("R9700", "Radeon AI PRO R9700"),
            ("AMD Radeon AI PRO R9700", "Radeon AI PRO R9700"),
            ("B580", "Arc B580"),
            ("Intel Arc B580 12GB", "Arc B580"),
            ("A770", "Arc A770"),
            ("Arc A770 8GB", "Arc A770 8GB"),
            ("RX 580", "Radeon RX 580"),
            ("Thor", "Jetson AGX Thor 128GB"),
            ("Jetson Thor", "Jetson AGX Thor 128GB"),
            ("Orin Nano Super", "Jetson Orin Nano 8GB"),
        ] {
            assert_eq!(find(stated).map(|row| row.name), Ok(meant), "{stated}");
        }
        let near = find("AGX Orin").unwrap_err();
        assert_eq!(near, ["Jetson AGX Orin 32GB", "Jetson AGX Orin 64GB"]);
        assert!(find("3090 XT").unwrap_err().contains(&"GeForce RTX 3090"));
        // A processor, an older card and a GPU of somebody else are no card of the table, whatever digits
        // they have.
        for absurd in [
            "toaster",
            "Apple M2",
            "Apple M4 Max",
            "Ryzen 5 7600X",
            "Ryzen 9 7900X",
            "Core i9 4090K",
            "RX 570",
            "Intel UHD 770",
            "Iris Xe",
            "Quadro P4000",
            "Radeon 780M",
            "Vega 8",
            "16GB",
            "RTX",
        ] {
            assert!(find(absurd).unwrap_err().is_empty(), "{absurd}: {:?}", find(absurd));
        }
        assert!(find("").unwrap_err().is_empty());
    }

    #[test]
    fn an_apu_needs_its_memory_and_takes_half_of_it_by_default() {
        for name in
            ["Strix Halo", "Ryzen AI Max+ 395", "Radeon 8060S", "2xStrix Halo", "Strix Halo,free=9GiB"]
        {
            let error = name.parse::<crate::CardSpec>().unwrap_err().to_string();
            let stated = "the Strix Halo is sold with 32, 64, 96 or 128 GB of memory; add the size to its name: \
                --card \"Strix Halo 128GB\"";
            assert_eq!(error, stated, "{name}");
        }
        for (name, gib) in [
            ("Strix Halo 128GB", 64),
            ("Ryzen AI Max+ 395 128GB", 64),
            ("Radeon 8060S 64GB", 32),
            ("strix halo 32gb", 16),
            ("Radeon 8050S 32GB", 16),
        ] {
            let spec = name.parse::<crate::CardSpec>().unwrap();
            let card = &spec.cards[0];
            assert_eq!((card.total, card.free), (Bytes::gib(gib), Bytes::mib(gib * 992)), "{name}");
            assert!(
                card.shares_host && spec.doubts[0].contains("half by default (ttm.pages_limit)"),
                "{name}"
            );
        }
        // Of a machine that is looked at nothing is assumed.
        let stated = "Strix Halo,total=123392MiB,free=91136MiB".parse::<crate::CardSpec>().unwrap();
        assert_eq!((stated.cards[0].total, stated.cards[0].free), (Bytes::mib(123_392), Bytes::mib(91_136)));
        assert!(stated.doubts.is_empty(), "{:?}", stated.doubts);
    }
}
