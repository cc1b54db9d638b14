//! What of a card decides which kernels run.

/// A card with matrix units (Turing or later).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    pub name: &'static str,
    /// Multiprocessors.
    pub processors: u64,
    /// Ada or later: kernels for few tokens are chosen otherwise.
    pub ada: bool,
    /// Blocks of the attention kernel for many tokens that one multiprocessor holds at once.
    pub attention_blocks: u64,
    /// The same of the kernel for few tokens, with an f16 cache.
    pub vector_blocks: u64,
    /// The same with a quantised cache.
    pub vector_blocks_quantised: u64,
}

impl Card {
    /// The blocks at once follow from the recorded traces of `data/traces`.
    pub const H200: Self = Self {
        name: "H200",
        processors: 132,
        ada: true,
        attention_blocks: 2,
        vector_blocks: 3,
        vector_blocks_quantised: 2,
    };

    /// The blocks at once are assumed to be those of the H200.
    pub const RTX3090: Self = Self {
        name: "RTX3090",
        processors: 82,
        ada: false,
        ..Self::H200
    };

    pub const ALL: [Self; 2] = [Self::H200, Self::RTX3090];
}
