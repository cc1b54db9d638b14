//! Lists the model architectures, and how their differences affect memory.
//!
//! It holds only what the keys of a GGUF file do not state (llama.cpp: `src/models/*.cpp: load_arch_hparams @
//! b10605`). An architecture without a row is marked unknown.

mod keys;
mod layers;
mod read;
#[cfg(test)]
mod tests;

pub(super) use self::read::read;

/// The rule that tells sliding layers from full ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerPattern {
    /// Every n-th layer is full; the file's `sliding_window_pattern` may set another n.
    Every(u32),
    /// The same, with the full layer first in each group.
    EveryFullFirst(u32),
    /// The file lists the layers.
    Listed,
    /// The file lists the layers, or every n-th is full.
    ListedOrEvery(u32),
    ListedOrEveryFullFirst(u32),
    /// All layers that are not recurrent.
    Attention,
}

/// The rule for the width of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowPattern {
    /// As the file says; without the key, or with 0, nothing slides.
    Stated,
    /// As the file says, or this.
    StatedOr(u32),
    /// This, if the file states any.
    FixedIfStated(u32),
    /// This, unless the file states 0.
    FixedUnlessZero(u32),
    /// As the file says, or this, but only in models of so many layers.
    OnlyWithLayers { window: u32, layers: u32 },
}

/// The rule for recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recurring {
    All,
    /// All, and they attend as well.
    AllAlongsideAttention,
    /// Those that state no KV head.
    WithoutHeads,
    /// Those that state neither a KV head nor a feed-forward.
    WithoutHeadsAndFeedForward,
    /// As the file lists them, or all but every n-th.
    ListedOrAllBut(u32),
}

/// Properties of an architecture that its keys do not state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits {
    sliding: Option<(LayerPattern, WindowPattern)>,
    recurring: Option<Recurring>,
    /// Before b11063, each context's cache covers the trunk and the next-token-prediction layers.
    nextn_cached: bool,
    /// States are kept for draft tokens that may be rejected.
    rolls_back: bool,
    cached: bool,
    causal: bool,
    /// The layers that keep a cache, where the program and not the file says so.
    layers_with_cache: Option<u32>,
    indexer: Option<Indexing>,
    /// The state of lightning attention is sized by the key length.
    lightning: bool,
    rotates: Rotates,
}

/// Are queries and keys rotated by their positions?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotates {
    Always,
    Never,
    /// Unless the file says that its positions were not learned so.
    UnlessDeclined,
}

/// The rule for layers that keep an index key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexing {
    All,
    AfterLeadingDense,
    Listed,
}

const SHARED: Traits = Traits {
    sliding: None,
    recurring: None,
    nextn_cached: true,
    rolls_back: false,
    cached: true,
    causal: true,
    layers_with_cache: None,
    indexer: None,
    lightning: false,
    rotates: Rotates::Always,
};

impl Traits {
    const fn slides(pattern: LayerPattern, window: WindowPattern) -> Self {
        Self { sliding: Some((pattern, window)), ..SHARED }
    }

    const fn recurs(recurring: Recurring) -> Self {
        Self { recurring: Some(recurring), ..SHARED }
    }

    const fn trunk_only(self) -> Self {
        Self { nextn_cached: false, ..self }
    }

    const fn rolls_back(self) -> Self {
        Self { rolls_back: true, ..self }
    }

    const fn uncached(self) -> Self {
        Self { cached: false, ..self }
    }

    const fn both_ways(self) -> Self {
        Self { causal: false, ..self }
    }

    const fn rotates(self, rotates: Rotates) -> Self {
        Self { rotates, ..self }
    }

    const fn indexed(self, indexer: Indexing) -> Self {
        Self { indexer: Some(indexer), ..self }
    }
}

/// The traits of an architecture, and whether they are known to be all there is.
fn traits(name: &str) -> (Traits, bool) {
    // Some forty rows, and one search per model: a map would not pay.
    let special = SPECIAL.iter().find(|(names, _)| names.contains(&name));
    match special {
        Some((_, traits)) => (*traits, true),
        None => (SHARED, PLAIN.contains(&name)),
    }
}

/// The architectures that the shared keys do not describe whole.
#[rustfmt::skip]
const SPECIAL: &[(&[&str], Traits)] = {
    use LayerPattern::*;
    use Recurring::*;
    use WindowPattern::*;
    &[
        // Sliding windows.
        (&["afmoe", "olmo2"], Traits::slides(Every(4), Stated)),
        (&["cohere2"], Traits::slides(Every(4), Stated)),
        (&["cohere2moe"], Traits::slides(ListedOrEveryFullFirst(4), Stated)),
        (&["exaone-moe"], Traits::slides(Every(4), StatedOr(128))),
        // The 1.2B model has no window at all, and only the number of layers distinguishes the two.
        (&["exaone4"], Traits::slides(Every(4), OnlyWithLayers { window: 4096, layers: 64 })),
        (&["gemma2"], Traits::slides(Every(2), StatedOr(4096))),
        (&["gemma3"], Traits::slides(Every(6), Stated)),
        // The number of layers with a cache is a constant in `gemma3n.cpp`, not a key.
        (&["gemma3n"], Traits { layers_with_cache: Some(20), ..Traits::slides(Every(5), Stated) }),
        (&["gemma4", "granite_swa"], Traits::slides(Listed, Stated)),
        // In all builds only the prediction layers' own context caches them.
        (&["mimo2", "step35"], Traits::slides(Listed, Stated).trunk_only()),
        (&["gpt-oss"], Traits::slides(Every(2), Stated)),
        (&["laguna"], Traits::slides(EveryFullFirst(4), Stated)),
        // A file that states 0 has no chunked attention; without the key the chunk is 8192.
        (&["llama4"], Traits::slides(Every(4), FixedUnlessZero(8192))),
        (&["mellum", "muse-glimmer"], Traits::slides(ListedOrEvery(4), Stated)),
        (&["plamo3"], Traits::slides(Every(8), Stated)),
        // The code uses 4096 whatever window the file states.
        (&["smallthinker"], Traits::slides(EveryFullFirst(4), FixedIfStated(4096))),
        // Encoders and diffusion models: no cache.
        // Learned or ALiBi positions: nothing is rotated.
        (&["bert", "jina-bert-v2"], SHARED.uncached().rotates(Rotates::Never)),
        (&["jina-bert-v3", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"], SHARED.uncached()),
        (&["modern-bert"], Traits::slides(EveryFullFirst(3), Stated).uncached()),
        (&["gemma-embedding"], Traits::slides(Every(6), Stated).uncached().both_ways()),
        (&["dream", "llada", "llada-moe", "rnd1"], SHARED.uncached().both_ways()),
        // Recurrent and hybrid.
        (&["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"], Traits::recurs(All)),
        // Attention and Mamba 2 side by side in every layer.
        (&["falcon-h1"], Traits::recurs(AllAlongsideAttention)),
        (&["jamba"], Traits::recurs(WithoutHeads).rotates(Rotates::Never)),
        (&["granitehybrid"], Traits::recurs(WithoutHeads).rotates(Rotates::UnlessDeclined)),
        (&["plamo2", "kimi-linear"], Traits::recurs(WithoutHeads)),
        (&["kimi-k3", "bailingmoe3", "lfm2moe"], Traits::recurs(WithoutHeads).rolls_back()),
        // Layers with short convolutions recur; in some sizes the attention layers slide.
        (&["lfm2"], Traits { recurring: Some(WithoutHeads), ..Traits::slides(Attention, Stated) }.rolls_back()),
        (&["nemotron_h", "nemotron_h_moe"], Traits::recurs(WithoutHeadsAndFeedForward).trunk_only().rolls_back().rotates(Rotates::Never)),
        (&["qwen3next"], Traits::recurs(ListedOrAllBut(4)).trunk_only()),
        (&["qwen35", "qwen35moe"], Traits::recurs(ListedOrAllBut(4)).trunk_only().rolls_back()),
        // Lightning attention: a square state per head instead of a convolution and a scan.
        (&["minimax-01"], Traits { lightning: true, ..Traits::recurs(ListedOrAllBut(8)) }),
        // Sparse attention.
        (&["deepseek32"], SHARED.trunk_only().indexed(Indexing::All)),
        (&["glm-dsa"], SHARED.trunk_only().indexed(Indexing::Listed)),
        (&["minimax-m3"], SHARED.indexed(Indexing::AfterLeadingDense)),
        (&["hy_v3"], SHARED.trunk_only()),
    ]
};

/// The architectures that the shared keys describe whole. Absent, and so planned as unknown: `deepseek4` and
/// `dots3note` (several caches of their own), `graniteswitch` and `nanbeige` (layers that the file does not
/// have). Also `gemma4-assistant`, `dflash` and `eagle3` (drafts that use another model), and speech models.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bitnet", "bloom", "chameleon",
    "chatglm", "codeshell", "cogvlm", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek2-ocr",
    "dots1", "ernie4_5", "ernie4_5-moe", "exaone", "falcon", "gemma", "glm4", "glm4moe", "gpt2", "gptneox",
    "granite", "granitemoe", "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "internlm2",
    "jais", "jais2", "llama", "llama-embed", "maincoder", "minicpm", "minicpm3", "minimax-m2", "mistral3",
    "mistral4", "mpt", "nemotron", "olmo", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2",
    "phi3", "phimoe", "plamo", "plm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl",
    "qwen3vlmoe", "refact", "seed_oss", "smollm3", "stablelm", "starcoder", "starcoder2", "talkie", "xverse",
    // Encoder-decoders: the keys describe the decoder's cache.
    "t5", "t5encoder",
];
