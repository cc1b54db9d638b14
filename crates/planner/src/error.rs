//! Errors for plan requests that no engine would accept.

/// Reason why a request cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    // Each message names the flag to change, because the user sees nothing else.
    #[error("-dev names `{name}`, but the number of cards is {cards}; use {of}0 to {of}{last}, or `none`",
        of = interface(name), last = cards.saturating_sub(1))]
    UnknownDevice { name: String, cards: usize },
    #[error("-mg {main} names no card; cards are numbered from 0, and there are only {cards}")]
    UnknownMainGpu { main: u32, cards: usize },
    #[error("a {kind} V cache needs flash attention, which is off ({why}); use -fa on, or -ctv f16")]
    QuantisedCacheNeedsFlashAttention { kind: &'static str, why: &'static str },
    #[error(
        "a cache row of {elements} elements cannot be divided into {kind} blocks of {block} elements; use \
        another cache type"
    )]
    CacheRow { kind: &'static str, elements: u64, block: u64 },
    #[error(
        "-sm row does not work with CUDA since about b9900: the backend no longer splits buffers; use -sm layer"
    )]
    RowSplit,
    #[error("-ot pattern `{pattern}` cannot be read: {why}")]
    OverridePattern { pattern: String, why: String },
    #[error("-ot assigns tensors to `{buffer}`, but the planned cards have no such buffer; use CPU or CUDA0 \
        to CUDA{last}", last = cards.saturating_sub(1))]
    OverrideBuffer { buffer: String, cards: usize },
    #[error("`{what}` of {value} in the header is more than any model has; the file is damaged")]
    Header { what: &'static str, value: u64 },
}

/// The interface that a device's name begins with; CUDA, where the name is of none.
fn interface(name: &str) -> &str {
    ["ROCm", "Vulkan"].into_iter().find(|interface| name.starts_with(interface)).unwrap_or("CUDA")
}
