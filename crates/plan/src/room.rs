//! Holds what a plan is made for: cards, host memory, and doubts about both.

use std::net::IpAddr;
use std::str::FromStr;

use plimsoll_base::{
    BusRate, Bytes, Card, CardId, CardKind, CardSpec, HOST_CARD, ParseBytesError, Reason, unit_of,
};
use plimsoll_flags::Options;
use plimsoll_planner::HostRoom;

use super::{Estimate, HostLimit, PlannedHost};

/// Memory of a host: `32GiB` or `total=32GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSize(pub Bytes);

/// Error: a size of host memory cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostSizeError {
    #[error(transparent)]
    Read(#[from] ParseBytesError),
    #[error("`{text}` is {bytes}; did you mean {size}{}?", unit_of(size))]
    BareNumber { text: String, size: String, bytes: Bytes },
    #[error(
        "this option is the size of host memory; `--listen {address}:8080` of `plimsoll serve` is an address"
    )]
    Address { address: String },
}

impl FromStr for HostSize {
    type Err = HostSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = text.strip_prefix("total=").unwrap_or(text);
        // llama-server's `--host` is an address.
        if size == "localhost" || size.parse::<IpAddr>().is_ok() {
            return Err(HostSizeError::Address { address: size.to_owned() });
        }
        let bytes: Bytes = size.parse()?;
        if bytes < Bytes::mib(1) {
            return Err(HostSizeError::BareNumber { text: text.to_owned(), size: size.to_owned(), bytes });
        }
        Ok(Self(bytes))
    }
}

/// The machine that is planned for.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub cards: Vec<Card>,
    /// `None` if it is not known.
    pub host: Option<PlannedHost>,
    /// The measured rate between host memory and the cards.
    pub bus: Option<BusRate>,
    pub doubts: Vec<Reason>,
}

impl Room {
    /// The described cards, beside host memory of this size.
    ///
    /// Cards of one name are numbered: two `name=H200` are `H200` and `H200#2`. Beside cards, described host
    /// memory is that of the machine, and no card of its own.
    pub fn described(specs: &[CardSpec], host: Option<HostSize>) -> Self {
        let mut cards: Vec<Card> = Vec::with_capacity(specs.len());
        for card in specs.iter().flat_map(|spec| &spec.cards) {
            let same = cards
                .iter()
                // A UUID distinguishes cards already; only cards without one, or with the same one, need a
                // number.
                .filter(|other| other.name == card.name && other.uuid == card.uuid)
                .count();
            let id =
                if same == 0 { card.id.clone() } else { CardId::new(&format!("{}#{}", card.id, same + 1)) };
            cards.push(Card { id, ..card.clone() });
        }
        let of_host =
            |HostSize(total)| PlannedHost { room: HostRoom { total, free: total }, is_shared: false };
        let mut host = host.map(of_host);
        if cards.iter().any(|card| card.kind == CardKind::Cuda) {
            let described = cards.iter().find(|card| card.kind == CardKind::Host);
            host = host.or(described.map(|card| PlannedHost {
                room: HostRoom { total: card.total, free: card.free },
                is_shared: false,
            }));
            cards.retain(|card| card.kind == CardKind::Cuda);
        }
        let doubts = specs.iter().flat_map(|spec| &spec.doubts);
        Self {
            cards,
            host,
            bus: None,
            doubts: doubts.map(|doubt| Reason::new("card_in_doubt", doubt.clone())).collect(),
        }
    }

    /// The host's memory beside cards that do not share it, if it is known.
    pub fn host_beside(&self) -> Option<Card> {
        let is_apart = |card: &Card| card.kind == CardKind::Cuda && !card.shares_host;
        let PlannedHost { room, .. } = self.host.filter(|host| !host.is_shared)?;
        self.cards.iter().all(is_apart).then(|| Card::of_host(room.total, room.free))
    }

    /// The host's memory where engines' caches of prompts are counted: beside cards, or as the only one.
    pub fn host_counted(&self) -> Option<Card> {
        let is_own = |card: &&Card| card.kind == CardKind::Host && card.id.as_str() == HOST_CARD;
        self.host_beside().or_else(|| self.cards.iter().find(is_own).cloned())
    }

    /// The limit that the host's memory sets.
    pub fn limit<'a>(&'a self, estimate: &'a Estimate) -> HostLimit<'a> {
        HostLimit { estimate, cards: &self.cards, host: self.host }
    }

    /// Doubts that hold for every plan of these flags.
    pub fn doubts(&self, options: &Options) -> Vec<Reason> {
        let flags = options.remarks();
        let flags = flags.iter().map(|remark| Reason::new("flag_misread", remark.to_string()));
        flags.chain(self.doubts.iter().cloned()).collect()
    }
}
