//! Parser of card descriptions (`--card`): `name=H200,total=143771MiB,free=140000MiB,cc=9.0`, or a product
//! name such as `2x3060`.
//!
//! Only `name` and `total` are required. Without `free`, all memory of the card counts as free.

use std::str::FromStr;

use super::card::{Card, CardId, CardKind, Counting};
use super::card_likeness::Maker;
use super::card_table;
use super::mac::Mac;
use crate::{Bytes, CardMaker, ParseBytesError};

/// Error: a card description cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardSpecError {
    #[error(
        "`{word}` in card `{spec}` is not of the form key=value; write for example \
        name=RTX4090,total=24GiB,cc=8.9"
    )]
    SplitPair { spec: String, word: String },
    #[error(
        "`{name}` is not a known card{}; describe the card by its own figures: name={},{}",
        near(nearest),
        one_word(name),
        figures(name, nearest)
    )]
    Unknown { name: String, nearest: Vec<&'static str> },
    #[error(
        "`{name}` is sold with several sizes of memory; write its size too, for example --card \"{name} 48GB\""
    )]
    SizeOfMac { name: String },
    #[error(
        "the {name} is sold with {sizes} of memory; add the size to its name: --card \"{name} {largest}GB\""
    )]
    NoSize { name: String, sizes: String, largest: u64 },
    #[error("`{spec}` stands for several cards, but only one card can be given here")]
    Several { spec: String },
    #[error(
        "`{key}={value}` in card `{spec}` is {value} bytes; did you mean {key}={value}{}?",
        unit_of(value)
    )]
    BareNumber { spec: String, key: String, value: String },
    #[error(
        "`{key}` in card `{spec}` is not a known key; the keys are name, total, free, cc, uuid, kind (cuda, \
        host or unified), pool (vmm or legacy), budget"
    )]
    FindKey { spec: String, key: String },
    #[error(
        "the description of card `{spec}` lacks the key `{key}`; write for example \
        name=RTX4090,total=24GiB,cc=8.9"
    )]
    Incomplete { spec: String, key: &'static str },
    #[error(
        "the description of card `{spec}` lacks the key `total`; a card that is known is given by its name \
        alone: --card \"{known}\""
    )]
    KnownName { spec: String, known: &'static str },
    #[error("`{key}={value}` in card `{spec}` cannot be read; write {expected}")]
    ReadValue { spec: String, key: String, value: String, expected: &'static str },
    #[error("`{key}` in card `{spec}`: {error}")]
    ReadSize { spec: String, key: String, error: ParseBytesError },
    #[error(
        "card `{spec}` has {free} free memory and {total} total memory, but free memory cannot exceed \
        total memory"
    )]
    FreeBeyondTotal { spec: String, free: Bytes, total: Bytes },
}

/// The unit that a bare number was meant in: no card has thousands of GiB.
pub fn unit_of(number: &str) -> &'static str {
    if number.parse::<u64>().is_ok_and(|number| number < 1024) { "GiB" } else { "MiB" }
}

fn near(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        names => format!("; similar names are {}", names.join(", ")),
    }
}

/// Those of the nearest card, or the size that was given instead of a name; no numbers to paste for one of
/// which nothing is known.
fn figures(name: &str, nearest: &[&str]) -> String {
    // `780M` is a product, and no card has so little.
    let size = name.replace("GB", "GiB").parse::<Bytes>().ok().filter(|size| *size >= Bytes::gib(1));
    if let Some(size) = size {
        return format!("total={size},cc=8.6").replace(' ', "");
    }
    // Of several versions, none is meant more than another.
    let known = match nearest {
        [only] => card_table::figures(only),
        _ => None,
    };
    known.unwrap_or_else(|| match Maker::of(name) {
        None | Some(Maker::Nvidia) => {
            "total=SIZE,cc=MAJOR.MINOR (nvidia-smi --query-gpu=memory.total,compute_cap)".to_owned()
        }
        Some(Maker::Amd | Maker::Intel | Maker::Apple | Maker::Other) => {
            "total=SIZE (`plimsoll doctor` on that machine states it)".to_owned()
        }
    })
}

fn one_word(name: &str) -> String {
    name.split_whitespace().collect()
}

/// The cards that one description stands for, and what it leaves in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSpec {
    pub cards: Vec<Card>,
    pub doubts: Vec<String>,
}

/// The most cards that `8x3090` may stand for; an engine takes no more.
const MOST_CARDS: usize = 16;

impl FromStr for CardSpec {
    type Err = CardSpecError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut words = spec.split(',').map(str::trim).filter(|word| !word.is_empty());
        let (mut draft, mut count) = (Draft::default(), 1);
        let first = words.clone().next().filter(|word| !word.contains('='));
        if let Some(product) = first {
            let name;
            (count, name) = counted(product);
            draft.know(name)?;
            words.next();
        }
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(CardSpecError::SplitPair { spec: spec.to_owned(), word: word.to_owned() });
            };
            draft.take(spec, key.trim(), value.trim())?;
        }
        draft.doubts.extend(draft.like_host());
        let doubts = std::mem::take(&mut draft.doubts);
        let card = draft.finish(spec)?;
        Ok(Self { cards: vec![card; count], doubts })
    }
}

impl FromStr for Card {
    type Err = CardSpecError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut cards = CardSpec::from_str(spec)?.cards;
        let several = || CardSpecError::Several { spec: spec.to_owned() };
        cards.pop().filter(|_| cards.is_empty()).ok_or_else(several)
    }
}

/// `2x3060` or `3060x2` as a number of cards and a name; a name alone is one card.
fn counted(product: &str) -> (usize, &str) {
    const TIMES: [char; 3] = ['x', 'X', '×'];
    let before = product.split_once(TIMES);
    let behind = product.rsplit_once(TIMES).map(|(name, count)| (count, name));
    let numbers = [before, behind].into_iter().flatten();
    let mut read = numbers.filter_map(|(count, name)| Some((count.trim().parse().ok()?, name.trim())));
    let is_count = |(count, name): &(usize, &str)| (1..=MOST_CARDS).contains(count) && !name.is_empty();
    read.find(is_count).unwrap_or((1, product))
}

/// A number without a unit that is smaller than any card.
fn is_bare(value: &str, size: Bytes) -> bool {
    size < Bytes::mib(1) && !size.is_zero() && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// The doubt about a size of a card in decimal units: vendors write GB and mean GiB.
fn decimal(value: &str, size: Bytes) -> Option<String> {
    let number = value.strip_suffix("GB").or_else(|| value.strip_suffix("gb"))?;
    let number = number.trim();
    Some(format!(
        "total={value} means {size}; for a card that is sold as {number} GB, write total={number}GiB"
    ))
}

#[derive(Default)]
struct Draft<'a> {
    /// The card that the table of known cards has under the product name.
    known: Option<Card>,
    /// Sizes in GB of a known board that is sold with several, where its name tells none.
    sizes: Vec<u64>,
    doubts: Vec<String>,
    name: Option<&'a str>,
    uuid: Option<&'a str>,
    total: Option<Bytes>,
    free: Option<Bytes>,
    budget: Option<Bytes>,
    compute_capability: Option<(u32, u32)>,
    host: bool,
    /// `kind=unified`: a card that takes the host's memory.
    unified: bool,
    /// `kind=cuda` was given.
    is_cuda: bool,
    legacy_pool: Option<bool>,
}

impl<'a> Draft<'a> {
    /// Takes the card that has this product name.
    fn know(&mut self, name: &str) -> Result<(), CardSpecError> {
        let mac = Mac::find(name);
        match (card_table::find(name), mac) {
            (Ok(known), _) => {
                self.sizes = known.sizes(name);
                self.doubts.extend(known.doubt());
                self.doubts.extend(known.larger(name));
                self.known = Some(known.card());
            }
            (Err(_), Some(mac)) => {
                let size_of = || CardSpecError::SizeOfMac { name: mac.chip().to_owned() };
                self.known = Some(mac.card().ok_or_else(size_of)?);
                self.doubts.extend(mac.doubts());
            }
            (Err(nearest), None) => return Err(CardSpecError::Unknown { name: name.to_owned(), nearest }),
        }
        Ok(())
    }

    fn take(&mut self, spec: &str, key: &str, value: &'a str) -> Result<(), CardSpecError> {
        let unreadable = |expected| CardSpecError::ReadValue {
            spec: spec.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let size = || {
            let error = |error| CardSpecError::ReadSize { spec: spec.to_owned(), key: key.to_owned(), error };
            let size: Bytes = value.parse().map_err(error)?;
            if is_bare(value, size) {
                return Err(CardSpecError::BareNumber {
                    spec: spec.to_owned(),
                    key: key.to_owned(),
                    value: value.to_owned(),
                });
            }
            Ok(Some(size))
        };
        match (key, value) {
            ("name", _) => self.name = Some(value),
            ("uuid", _) => self.uuid = Some(value),
            ("total", _) => {
                self.total = size()?;
                self.doubts.extend(self.total.and_then(|total| decimal(value, total)));
            }
            ("free", _) => {
                self.free = size()?;
                // A user who states the free memory knows that the memory is shared.
                self.doubts.retain(|doubt| !doubt.contains("free=SIZE"));
            }
            ("budget", _) => self.budget = size()?,
            ("cc", _) => {
                let capability = compute_capability(value).ok_or_else(|| unreadable("e.g. cc=8.9"))?;
                self.compute_capability = Some(capability);
            }
            // Unknown words are errors rather than defaults: a typo in `kind` would plan for the wrong
            // memory.
            ("kind", "cuda" | "host" | "unified") => {
                (self.host, self.is_cuda) = (value == "host", value == "cuda");
                self.unified = value == "unified";
            }
            ("kind", _) => return Err(unreadable("kind=cuda, kind=host or kind=unified")),
            ("pool", "vmm" | "legacy") => self.legacy_pool = Some(value == "legacy"),
            ("pool", _) => return Err(unreadable("pool=vmm or pool=legacy")),
            _ => {
                return Err(CardSpecError::FindKey { spec: spec.to_owned(), key: key.to_owned() });
            }
        }
        Ok(())
    }

    /// The doubt about a card that is named like the host's memory.
    fn like_host(&self) -> Option<String> {
        const WORDS: [&str; 5] = ["ram", "host", "cpu", "memory", "system"];
        let name = self
            .name
            .filter(|_| !self.host && !self.unified && !self.is_cuda && self.compute_capability.is_none())?;
        let mut words = name.split(|c: char| !c.is_ascii_alphabetic());
        let is_like = words.any(|word| WORDS.iter().any(|like| word.eq_ignore_ascii_case(like)));
        is_like.then(|| format!("the card {name} is planned as a CUDA card; kind=host describes host memory"))
    }

    fn finish(self, spec: &str) -> Result<Card, CardSpecError> {
        let lacks = |key| CardSpecError::Incomplete { spec: spec.to_owned(), key };
        let known = self.known.as_ref();
        let of_host = self.host.then_some("host").or(self.unified.then_some("unified"));
        let name = self.name.or(known.map(|known| known.name.as_str())).or(of_host);
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| lacks("name"))?;
        if let (None, Some(known), [rest @ .., largest]) = (self.total, known, self.sizes.as_slice()) {
            let sizes: Vec<String> = rest.iter().map(u64::to_string).collect();
            let sizes = format!("{} or {largest} GB", sizes.join(", "));
            return Err(CardSpecError::NoSize { name: known.name.clone(), sizes, largest: *largest });
        }
        let total = self.total.or(known.map(|known| known.total));
        let known_name = || card_table::find(name).ok().map(|known| known.name());
        let total = total.ok_or_else(|| match known_name() {
            Some(known) => CardSpecError::KnownName { spec: spec.to_owned(), known },
            None => lacks("total"),
        })?;
        // A described card counts as idle, and a card of the table with its driver's own memory.
        let free = known.filter(|_| self.total.is_none()).map(|known| known.free);
        let free = self.free.or(free).unwrap_or(total);
        if free > total {
            return Err(CardSpecError::FreeBeyondTotal { spec: spec.to_owned(), free, total });
        }
        let compute_capability = self.compute_capability.or(known.and_then(|known| known.compute_capability));
        let card = Card {
            // The UUID wins, so that a description with one meets the real card of a machine.
            id: CardId::new(self.uuid.unwrap_or(name)),
            kind: if self.host { CardKind::Host } else { CardKind::Cuda },
            name: name.to_owned(),
            uuid: self.uuid.map(str::to_owned),
            // Only NVIDIA's cards have a compute capability.
            maker: CardMaker::of_name(name).filter(|_| compute_capability.is_none()).unwrap_or_default(),
            address: None,
            total,
            free,
            compute_capability,
            legacy_pool: self.legacy_pool.unwrap_or(known.is_some_and(|known| known.legacy_pool)),
            shares_host: self.unified
                || known.is_some_and(|known| known.shares_host && !self.is_cuda && !self.host),
            counting: Counting::Driver,
        };
        Ok(match self.budget {
            Some(budget) => card.guarded(budget),
            None => card,
        })
    }
}

pub(super) fn compute_capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_all_of_the_card_that_there_is_and_guard_counts_it() {
        let occupied = |more: &str| {
            let spec = format!("name=H200,total=143771MiB{more},budget=4GiB");
            let card: Card = spec.parse().unwrap();
            (card.total, card.free, card.counting)
        };
        let budget = Bytes::mib(4096);
        assert_eq!(occupied(""), (budget, budget, Counting::Guard));
        let left = Bytes::mib(2048);
        assert_eq!(occupied(",free=2GiB"), (left, left, Counting::Guard));
    }

    #[test]
    fn a_card_is_read_from_its_words() {
        let card: Card = "name=H200,total=143771MiB,free=140000MiB,cc=9.0".parse().unwrap();
        assert_eq!((card.id.as_str(), card.kind), ("H200", CardKind::Cuda));
        assert_eq!((card.total, card.free), (Bytes::mib(143_771), Bytes::mib(140_000)));
        assert_eq!(card.compute_capability, Some((9, 0)));
        assert_eq!("kind=host,total=8GiB".parse::<Card>().unwrap().name, "host");
        let host: Card = "name=ram, kind=host, total=8GiB".parse().unwrap();
        assert_eq!((host.kind, host.free), (CardKind::Host, Bytes::gib(8)));
        let named: Card = "uuid=GPU-1,name=A,total=1GiB,pool=legacy".parse().unwrap();
        assert_eq!((named.id.as_str(), named.legacy_pool), ("GPU-1", true));
    }

    #[test]
    fn a_product_name_stands_for_its_row_and_pairs_change_it() {
        let spec = |text: &str| text.parse::<CardSpec>().unwrap();
        let two = spec("2x3060");
        let [first, second] = two.cards.as_slice() else { panic!("{two:?}") };
        assert_eq!(first, second);
        assert_eq!(
            (first.name.as_str(), first.total, first.free),
            ("GeForce RTX 3060", Bytes::gib(12), Bytes::mib(12_032))
        );
        assert_eq!(first.compute_capability, Some((8, 6)));
        let changed = spec("3090,free=20GiB,name=mine").cards.remove(0);
        assert_eq!((changed.name.as_str(), changed.free), ("mine", Bytes::gib(20)));
        assert!(spec("RX 7900 XTX").doubts.is_empty() && !spec("RX 7900 XTX").cards[0].maker.is_nvidia());
        let sizes = spec("5060ti").doubts.remove(0);
        assert!(
            sizes.contains("8151 MiB") && sizes.contains("GeForce RTX 5060 Ti 16GB with 16311 MiB"),
            "{sizes}"
        );
        assert!(spec("3060").doubts.is_empty(), "the usual size is the largest");
        assert!(spec("5060 Ti 16GB").doubts.is_empty() && spec("5060 Ti 8GB").doubts.is_empty());
        assert!(spec("name=ram,total=8GiB").doubts[0].contains("kind=host describes host memory"));
        for plain in
            ["name=ram,total=8GiB,kind=host", "name=ram,total=8GiB,kind=cuda", "name=Ramona,total=8GiB"]
        {
            assert!(spec(plain).doubts.is_empty(), "{plain}");
        }
        let jetson = spec("Jetson AGX Orin 64GB");
        assert!(jetson.cards[0].shares_host && !spec("3060").cards[0].shares_host);
        assert!(spec("name=Board,total=32GiB,kind=unified").cards[0].shares_host);
        assert!(jetson.cards[0].legacy_pool && jetson.doubts[0].contains("shares its"));
        assert!(spec("Jetson AGX Orin 64GB,free=50GiB").doubts.is_empty());
        let (orin, spark) = (&jetson.cards[0], &spec("DGX Spark").cards[0]);
        // MemTotal of both: `data/sysroot/agx-orin-r39.2` and `data/sysroot/gb10`.
        assert!(orin.free < Bytes::kib(64_324_608) && spark.free < Bytes::kib(125_515_264));
        let sold = spec("name=x,total=24GB").doubts;
        assert!(
            sold[0].contains("total=24GB means 22888 MiB") && sold[0].contains("total=24GiB"),
            "{sold:?}"
        );
    }

    #[test]
    fn a_size_may_stand_behind_the_name_of_a_card_that_has_it() {
        for spec in ["RTX 3060 12GB", "3060 12gb", "3060-12GB", "3060 12 GB", "NVIDIA GeForce RTX 3060 12GiB"]
        {
            assert_eq!(spec.parse::<Card>().unwrap().name, "GeForce RTX 3060", "{spec}");
        }
        for spec in ["3060 10GB", "3060 0GB", "12GB", "GB", "3060 99999999999999999999GB"] {
            assert!(spec.parse::<Card>().is_err(), "{spec}");
        }
    }

    #[test]
    fn a_hostile_name_is_refused_and_not_searched_for_long() {
        for spec in
            ["\u{0}", "x", "0x3090", "99999999999999999999x3090", "17x3090", "é×é", &"9".repeat(1 << 16)]
        {
            assert!(spec.parse::<CardSpec>().is_err(), "{spec:.20}");
        }
    }

    #[test]
    fn a_mac_is_a_card_of_its_own_memory() {
        let spec = |text: &str| text.parse::<CardSpec>().unwrap();
        let mac = spec("M4 Pro 48GB");
        let card = &mac.cards[0];
        assert_eq!((card.name.as_str(), card.maker), ("Apple M4 Pro", CardMaker::Apple));
        assert_eq!((card.total, card.free), (Bytes::gib(48), Bytes::gib(36)));
        assert!(mac.doubts.iter().any(|doubt| doubt.contains("nothing was measured on a Mac")));
        let raised = spec("M4 Pro 48GB,free=44GiB");
        assert!(raised.cards[0].free == Bytes::gib(44) && raised.doubts.len() == 1, "{:?}", raised.doubts);
        assert_eq!(
            "Apple M4 Max".parse::<CardSpec>(),
            Err(CardSpecError::SizeOfMac { name: "Apple M4 Max".to_owned() })
        );
    }

    #[test]
    fn malformed_card_specs_are_rejected_with_a_remedy() {
        for (spec, stated) in [
            ("name=x,H200", "is not of the form key=value"),
            (
                "H301",
                "`H301` is not a known card; describe the card by its own figures: name=H301,total=SIZE,cc=MAJOR.MINOR (nvidia-smi --query-gpu=memory.total,compute_cap)",
            ),
            (
                "RTX 3060 10GB",
                "similar names are GeForce RTX 3060; describe the card by its own figures: name=RTX306010GB,total=12288MiB,cc=8.6",
            ),
            ("24GB", "describe the card by its own figures: name=24GB,total=24576MiB,cc=8.6"),
            ("AGX Orin", "similar names are Jetson AGX Orin 32GB, Jetson AGX Orin 64GB"),
            ("2x3060", "stands for several"),
            ("name=x,total=12", "is 12 bytes; did you mean total=12GiB?"),
            ("name=x,total=12GiB,free=9", "did you mean free=9GiB?"),
            ("name=x", "lacks the key `total`; write for example"),
            ("name=RTX3060", "is given by its name alone: --card \"GeForce RTX 3060\""),
            ("name=x,total=24576", "did you mean total=24576MiB?"),
            ("name=x,total=1023", "did you mean total=1023GiB?"),
            ("total=1GiB", "lacks the key `name`"),
            ("name=x,total=much", "is not a size"),
            ("name=x,total=1GiB,free=2GiB", "free memory cannot exceed total memory"),
            ("name=x,total=1GiB,cc=nine", "write e.g. cc=8.9"),
            (
                "name=x,total=1GiB,color=red",
                "`color` in card `name=x,total=1GiB,color=red` is not a known key",
            ),
            ("name=x,total=1GiB,kind=rom", "kind=cuda, kind=host or kind=unified"),
            ("780M", "name=780M,total=SIZE"),
            (
                "Orin Nano",
                "similar names are Jetson Orin Nano 4GB, Jetson Orin Nano 8GB; describe the card by its own figures: name=OrinNano,total=SIZE",
            ),
        ] {
            let error = spec.parse::<Card>().unwrap_err().to_string();
            assert!(error.contains(stated), "{spec}: {error}");
        }
    }
}
