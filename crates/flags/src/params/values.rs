//! Model parameters with a few named values, such as flash attention, split mode and type of cache.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLayers {
    /// Not given: as many as fit; planned as all.
    Auto,
    All,
    Count(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitMode {
    None,
    Layer,
    Row,
    Tensor,
}

/// `-np`: the number of parallel requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// Not given: llama-server takes 4 with a unified cache, other programs 1.
    Auto,
    Count(u32),
}

/// One `-ot PATTERN=BUFFER`; the first whose pattern matches a tensor's name wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferOverride {
    pub pattern: String,
    /// `CPU`, `CUDA0`, …
    pub buffer: String,
}

/// Maximum tokens of a draft of n-grams, by its kind (`--spec-ngram-*-size-m`, `--spec-ngram-mod-n-max`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NgramTokens {
    pub simple: u32,
    pub map_k: u32,
    pub map_k4v: u32,
    pub modular: u32,
}

/// Source of a model that is not a local file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RemoteSource {
    /// `USER/REPO[:QUANT]` on a Hugging Face hub.
    Hub(String),
    Address(String),
    /// A repository of Docker Hub.
    Docker(String),
}
