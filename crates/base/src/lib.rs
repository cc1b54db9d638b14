//! Types that all other crates share: memory sizes, cards, a model's memory on each card, and explanations
//! for users.
//!
//! A claim is the memory that an engine may take on a card. All types are plain values without input or
//! output.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod backend;
mod bus_rate;
mod bytes;
mod card;
mod card_likeness;
mod card_names;
mod card_spec;
mod card_table;
mod company;
mod counted;
mod curve;
mod demand;
mod ending;
mod exit;
mod explain;
mod id_map;
mod mac;
mod masking;
mod order;
mod printable;
mod priority;
mod round;
mod secret_name;

pub use backend::{Backend, Backends, CardMaker};
pub use bus_rate::BusRate;
pub use bytes::{Bytes, ParseBytesError};
pub use card::{Card, CardId, CardKind, CardLimit, Counting, HOST_CARD, Share};
pub use card_names::{CardNames, FindCardError, find_card, find_cards, is_card_identity};
pub use card_spec::{CardSpec, CardSpecError, unit_of};
pub use card_table::{is_same_product, kept_by_driver, known_cards};
pub use company::{Company, ModelGroup, RunningModel};
pub use counted::counted;
pub use curve::{Curve, Slots};
pub use demand::{
    CacheOverflow, CardShares, DeclaredSize, DividedSize, HostNeed, MemoryModel, ModelNeed, NamedDemand,
    NeedSize, Placement, PromptCache, RequestedMemory, RunId, UnknownSize,
};
pub use ending::{AllocationLimit, End, Shortfall, Stage};
pub use exit::Exit;
pub use explain::{Advice, Fact, Hint, Reason, Source, SpillAdvice, SpillWay};
pub use id_map::{IdHasher, IdMap};
pub use masking::{masked, masked_text};
pub use order::Order;
pub use printable::{indented, is_control, one_line};
pub use priority::Priority;
pub use round::round_u64;
pub use secret_name::{ends_as_secret, may_name_secret};
