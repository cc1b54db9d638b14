//! Compares product names of GPUs, to suggest the cards that a user who gave an unknown name may have meant.
//!
//! DECISION: a name is like another one if one has all parts of the other and the maker is the same. Equal
//! digits are no likeness: an RX 580 is no B580, a P4000 no A4000, and a Ryzen 5 7600X no RX 7600.

use crate::CardMaker;

/// The maker of a GPU, as far as a name tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Nvidia,
    Amd,
    Intel,
    Apple,
    /// A processor, or a GPU of somebody else.
    Other,
}

/// Words by which makers are known.
const MAKERS: [(Maker, &[&str]); 5] = [
    (
        Maker::Other,
        &["ryzen", "epyc", "athlon", "core", "xeon", "snapdragon", "adreno", "mali", "iris", "uhd"],
    ),
    (Maker::Nvidia, &["nvidia", "geforce", "rtx", "gtx", "quadro", "tesla", "jetson", "titan"]),
    (Maker::Amd, &["amd", "radeon", "rx", "instinct", "vega", "ryzen", "strix"]),
    (Maker::Intel, &["intel", "arc", "iris", "uhd"]),
    (Maker::Apple, &["apple"]),
];

impl Maker {
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::all_of(name).next()
    }

    /// The makers whose words a name has, that of its processor first.
    fn all_of(name: &str) -> impl Iterator<Item = Self> {
        let name = name.to_ascii_lowercase();
        let has = move |known: &[&str]| {
            name.split(|c: char| !c.is_ascii_alphabetic()).any(|word| known.contains(&word))
        };
        MAKERS.iter().filter(move |(_, known)| has(known)).map(|(maker, _)| *maker)
    }
}

impl CardMaker {
    /// The maker of a GPU by its product name, or by its processor's; `None` where the name tells none.
    pub fn of_name(name: &str) -> Option<Self> {
        Maker::all_of(name).find_map(|maker| match maker {
            Maker::Nvidia => Some(Self::Nvidia),
            Maker::Amd => Some(Self::Amd),
            Maker::Intel => Some(Self::Intel),
            Maker::Apple => Some(Self::Apple),
            Maker::Other => None,
        })
    }
}

/// Letters and digits of each word apart, but those of a size: `a4000 16gb` is `a`, `4000` and `16gb`.
pub(super) fn parts(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut parts = Vec::new();
    for word in words {
        if is_size(&word) {
            parts.push(word);
            continue;
        }
        let mut rest = word.as_str();
        while let Some(first) = rest.chars().next() {
            let is_other = |c: char| c.is_ascii_digit() != first.is_ascii_digit();
            let (part, after) = rest.split_at(rest.find(is_other).unwrap_or(rest.len()));
            parts.push(part.to_owned());
            rest = after;
        }
    }
    parts
}

/// `16gb`, `16gib` or `16g`.
pub(super) fn is_size(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    ["g", "gb", "gib"].contains(&unit) && unit.len() < text.len()
}

/// The fewest characters by which a name is distinguished from others.
const TELLING: usize = 3;

/// True if one of two names has all parts of the other. A short one is in names that have nothing in common
/// with it: an Apple M2 is no A2. A size alone is no name.
pub(super) fn are_alike(wanted: &[String], known: &[String]) -> bool {
    let is_telling = |parts: &[String]| parts.iter().map(String::len).sum::<usize>() >= TELLING;
    let has_all = |all: &[String], of: &[String]| of.iter().all(|part| all.contains(part));
    let is_bare_size = wanted.iter().all(|part| is_size(part));
    !is_bare_size && is_telling(wanted) && has_all(known, wanted)
        || is_telling(known) && has_all(wanted, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(wanted: &str, known: &str) -> bool {
        let parts = |name: &str| parts(name.split(' ').map(str::to_owned));
        are_alike(&parts(wanted), &parts(known))
    }

    #[test]
    fn parts_are_compared_and_not_digits() {
        for (wanted, known) in
            [("3090 xt", "3090"), ("agx orin", "agx orin 64gb"), ("3060 10gb", "3060"), ("h100 pcie", "h100")]
        {
            assert!(alike(wanted, known), "{wanted} {known}");
        }
        for (wanted, known) in
            [("p4000", "a4000"), ("580", "b5800"), ("16gb", "5060 ti 16gb"), ("m2", "a2"), ("", "3090")]
        {
            assert!(!alike(wanted, known), "{wanted} {known}");
        }
    }

    #[test]
    fn a_maker_is_known_by_a_whole_word() {
        assert_eq!(Maker::of("RX 580"), Some(Maker::Amd));
        assert_eq!(Maker::of("Intel UHD 770"), Some(Maker::Other));
        assert_eq!(Maker::of("rtx3090"), Some(Maker::Nvidia));
        assert_eq!((Maker::of("B580"), Maker::of("archer")), (None, None));
        for (name, maker) in [
            ("AMD Ryzen AI Max+ 395", Some(CardMaker::Amd)),
            ("Ryzen AI Max+ 395", Some(CardMaker::Amd)),
            ("Strix Halo", Some(CardMaker::Amd)),
            ("Intel(R) UHD Graphics 770 (ADL-S GT1)", Some(CardMaker::Intel)),
            ("NVIDIA L4", Some(CardMaker::Nvidia)),
            ("Apple M2", Some(CardMaker::Apple)),
        ] {
            assert_eq!(CardMaker::of_name(name), maker, "{name}");
        }
    }
}
