//! Table of the cards for which allocation traces can be generated.

use plimsoll_pool::demand::Capability;

/// A card with matrix units (Turing or later).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorCard {
    pub name: &'static str,
    pub capability: Capability,
    /// Multiprocessors.
    pub processors: u64,
}

impl GeneratorCard {
    pub const H200: Self = Self { name: "H200", capability: 900, processors: 132 };

    pub const RTX3090: Self = Self { name: "RTX3090", capability: 860, processors: 82 };
}
