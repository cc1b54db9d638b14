//! Parser for the buffer sizes in an engine's log: `FUNCTION: PLACE KIND buffer size = N MiB`.
//!
//! A line must match completely, because the log also quotes texts of the model file.

use std::fmt;

use plimsoll_base::Bytes;

use super::stand_in::{self, GrownMemory};

/// Longer lines are texts of the model file.
const LONGEST: usize = 512;

/// The purpose of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    Weights,
    Adapter,
    /// Keys and values, recurrent state or compressed state.
    Cache,
    Compute,
    Output,
    /// A buffer of unknown purpose.
    Other,
}

/// The place of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferPlace {
    /// `CUDA0` is 0.
    Card(usize),
    Host,
}

/// The interface by which an engine uses cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardInterface {
    /// The CUDA runtime, by its major version.
    Cuda(u32),
    Rocm,
    Vulkan,
}

impl fmt::Display for CardInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(version) => write!(f, "CUDA {version}"),
            Self::Rocm => f.write_str("ROCm"),
            Self::Vulkan => f.write_str("Vulkan"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EngineLogLine<'a> {
    Buffer {
        place: BufferPlace,
        kind: BufferKind,
        bytes: Bytes,
    },
    /// A row of `llama-fit-params --fit-print`: whole mebibytes, rounded down.
    Row {
        place: BufferPlace,
        weights: Bytes,
        cache: Bytes,
        compute: Bytes,
    },
    /// A context or a projector begins: the buffers that follow are its own.
    Begins,
    /// The context has its compute buffers; its caches came before.
    Reserved,
    Context(u64),
    Build(u32),
    FlashAttentionOff,
    /// The compute buffers of several cards did not fit with four copies of everything, so there is one.
    CopiesDropped,
    /// Everything is allocated: the server makes its slots.
    Ready,
    /// The interface that the engine uses cards by: the stand-in's own line.
    Runtime(CardInterface),
    /// A CUDA runtime inside of the engine, for which nothing can stand in.
    StaticRuntime,
    /// Bytes of a card that the engine has asked for in all.
    Asked {
        card: usize,
        bytes: Bytes,
    },
    /// Memory of a card after a prompt.
    Grown {
        card: usize,
        memory: GrownMemory,
    },
    /// The engine uses cuBLAS on this card.
    Cublas(usize),
    /// Number of kernels whose occupancy is an estimate, because the engine has no machine code of them for the card.
    WithoutCode(u32),
    /// An error message of the engine.
    Complaint(&'a str),
    Nothing,
}

pub(super) fn read(line: &str) -> EngineLogLine<'_> {
    // The lines are those of `llama-model.cpp: load_tensors`, `llama-kv-cache.cpp`,
    // `llama-memory-recurrent.cpp`, `llama-kv-cache-dsv4.cpp`, `llama-context.cpp: sched_reserve`,
    // `llama-adapter.cpp`, `tools/mtmd/clip.cpp @ b10605, b8799`.
    let text = without_prefix(line.trim_end());
    if text.len() > LONGEST {
        return EngineLogLine::Nothing;
    }
    // A row of --fit-print has no function name, so it is tried first.
    if let Some(row) = row(text) {
        return row;
    }
    match text.split_once(": ") {
        Some((function, rest)) if is_name(function) => of_function(function, rest.trim(), text),
        _ => announced(text),
    }
}

/// A line that begins with the name of one of the engine's functions.
fn of_function<'a>(function: &str, rest: &'a str, text: &'a str) -> EngineLogLine<'a> {
    if let Some(buffer) = buffer(rest) {
        return buffer;
    }
    match function {
        "llama_context" if rest == "constructing llama_context" => EngineLogLine::Begins,
        "sched_reserve" if is_graph_size(rest) => EngineLogLine::Reserved,
        "clip_ctx" if rest.starts_with("CLIP using ") => EngineLogLine::Begins,
        "llama_context" if rest.starts_with("n_ctx ") => {
            let tokens = rest.split_once('=').and_then(|(_, n)| n.trim().parse().ok());
            tokens.map_or(EngineLogLine::Nothing, EngineLogLine::Context)
        }
        "plimsoll_phantom" => stand_in::read(rest),
        _ if FLASH_ATTENTION_OFF.contains(&rest) => EngineLogLine::FlashAttentionOff,
        _ if rest.starts_with("compute buffer allocation failed, retrying without pipeline") => {
            EngineLogLine::CopiesDropped
        }
        _ => announced(text),
    }
}

/// `graph nodes = 998` (b8799), `graph: nodes = 1382, …` and, where a prompt and a token differ,
/// `graph (pp bs=512, tg bs=1): nodes = 998 / 966, …` (llama-context.cpp:sched_reserve @ 0.5.0).
fn is_graph_size(words: &str) -> bool {
    words.strip_prefix("graph").is_some_and(|rest| {
        let rest = rest.rsplit_once(": ").map_or(rest, |(_, sizes)| sizes);
        rest.trim_start().starts_with("nodes")
    })
}

/// b8799 and b10605.
const FLASH_ATTENTION_OFF: [&str; 2] =
    ["Flash Attention was auto, set to disabled", "Flash Attention not supported, set to disabled"];

/// A line whose function name differs between builds. Nothing is allocated after the slots, and the lines that follow
/// quote the model's chat template.
fn announced(text: &str) -> EngineLogLine<'_> {
    // These functions print metadata of the file, which may hold any words.
    let quotes_a_file = ["llama_model_loader:", "print_info:", "load:"];
    if quotes_a_file.iter().any(|function| text.starts_with(function)) {
        return EngineLogLine::Nothing;
    }
    // The message follows the last colon: builds differ in the names before it.
    let words = text.rsplit(": ").next().unwrap_or(text).trim();
    if words.starts_with("initializing, n_slots") || words.starts_with("initializing slots, n_slots") {
        return EngineLogLine::Ready;
    }
    if let Some(build) = build(words) {
        return EngineLogLine::Build(build);
    }
    // Logged for every backend that is linked in, because the engine first looks for it as a plugin.
    if text.contains("failed to find ggml_backend_init") {
        return EngineLogLine::Nothing;
    }
    if COMPLAINTS.iter().any(|word| text.contains(word)) {
        return EngineLogLine::Complaint(text);
    }
    EngineLogLine::Nothing
}

/// Words of error messages.
const COMPLAINTS: [&str; 14] = [
    "error",
    "failed",
    "fail to",
    "not supported",
    "unsupported",
    "not support",
    "requires",
    "invalid",
    "unable to",
    "unknown model",
    "not implemented",
    "couldn't",
    "GGML_ASSERT",
    "what():",
];

/// Removes a prefix like `0.00.129.365 E `.
fn without_prefix(line: &str) -> &str {
    let clock =
        |word: &str| word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let Some((first, rest)) = line.split_once(' ').filter(|(first, _)| clock(first)) else {
        return strip_level(line);
    };
    if first.contains('.') { strip_level(rest.trim_start()) } else { line }
}

fn strip_level(text: &str) -> &str {
    let levels = ["I ", "W ", "E ", "D ", "T "];
    let level = levels.iter().find_map(|level| text.strip_prefix(level));
    level.unwrap_or(text).trim_start()
}

fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'~' | b':');
    !text.is_empty() && text.len() < 64 && text.bytes().all(letter)
}

/// `CUDA0 model buffer size =  4096.00 MiB`.
fn buffer(text: &str) -> Option<EngineLogLine<'static>> {
    let (what, size) = text.split_once(" buffer size = ")?;
    let (place, kind) = what.split_once(' ')?;
    let bytes = mebibytes(size.trim().strip_suffix(" MiB")?)?;
    Some(EngineLogLine::Buffer { place: place_of(place)?, kind: kind_of(kind.trim()), bytes })
}

fn kind_of(words: &str) -> BufferKind {
    match words {
        "model" => BufferKind::Weights,
        "LoRA" => BufferKind::Adapter,
        "KV" | "RS" => BufferKind::Cache,
        "compute" => BufferKind::Compute,
        "output" => BufferKind::Output,
        _ if words.ends_with(" state") => BufferKind::Cache,
        _ => BufferKind::Other,
    }
}

/// Beginnings of the names that engines give to cards.
const CARDS: [&str; 3] = ["CUDA", "ROCm", "Vulkan"];

/// `CUDA0` is a card; `CUDA_Host`, `CPU`, `CPU_Mapped` and the like are the host's.
pub(super) fn place_of(name: &str) -> Option<BufferPlace> {
    let number = |card: &&str| name.strip_prefix(card)?.parse().ok();
    if let Some(number) = CARDS.iter().find_map(number) {
        return Some(BufferPlace::Card(number));
    }
    let of_the_host = name == "Host" || name.starts_with("CPU") || name.ends_with("_Host");
    of_the_host.then_some(BufferPlace::Host)
}

/// A decimal number of mebibytes with up to four places, to the nearest byte.
fn mebibytes(text: &str) -> Option<Bytes> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text, "0"));
    let digits =
        |part: &str| (1..=12).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole.trim()) || !digits(fraction) || fraction.len() > 4 {
        return None;
    }
    // Integers throughout: a float would lose bytes of large buffers.
    let parts = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let whole = Bytes::mib(whole.trim().parse().ok()?);
    let fraction: u64 = fraction.parse().ok()?;
    Some(whole + Bytes::new(((fraction << 20) + parts / 2) / parts))
}

/// `CUDA0 4650 512 258 `, which `common/fit.cpp: common_fit_print` writes.
fn row(text: &str) -> Option<EngineLogLine<'static>> {
    let mut words = text.split_ascii_whitespace();
    let is_card = |name: &str| CARDS.iter().any(|card| name.starts_with(card));
    let place = words.next().filter(|&name| name == "Host" || is_card(name))?;
    let mut next = || words.next()?.parse().ok().map(Bytes::mib);
    let (weights, cache, compute) = (next()?, next()?, next()?);
    let row = EngineLogLine::Row { place: place_of(place)?, weights, cache, compute };
    words.next().is_none().then_some(row)
}

/// `build 10605 (unknown) with GNU …`, `b8799-abc`.
fn build(words: &str) -> Option<u32> {
    let rest = words.strip_prefix("build ").or(words.strip_prefix('b'))?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let ends = rest[digits..].starts_with([' ', '-']);
    // 0 and 1 are what builds outside a checkout are stamped with.
    rest[..digits].parse().ok().filter(|&build| ends && build > 1)
}
