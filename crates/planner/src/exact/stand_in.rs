//! Lines of phantom (CUDA, HIP and Vulkan without a card) in an engine's log.

use plimsoll_base::Bytes;

use super::line::{BufferPlace, CardInterface, EngineLogLine, place_of};

/// Memory of a card after a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrownMemory {
    /// Bytes that the engine's backend holds.
    pub held: Bytes,
    /// Bytes that a driver takes of the card for them.
    pub taken: Bytes,
    /// Length of the prompt.
    pub tokens: u64,
}

/// `CUDA runtime 13`, `ROCm runtime`, `Vulkan device`, `static CUDA runtime`, `CUDA0 asked for 130033792 bytes`,
/// `CUDA0 holds 512 bytes and takes 2097152 after 8192 tokens`, `CUDA0 opened cuBLAS`,
/// `3 kernels without code for the card`.
pub(super) fn read(words: &str) -> EngineLogLine<'_> {
    let words: Vec<&str> = words.split_ascii_whitespace().take(11).collect();
    let card = |name: &str| match place_of(name) {
        Some(BufferPlace::Card(card)) => Some(card),
        _ => None,
    };
    let bytes = |digits: &str| digits.parse().ok().map(Bytes::new);
    let read = match words[..] {
        ["CUDA", "runtime", version] => {
            version.parse().ok().map(|version| EngineLogLine::Runtime(CardInterface::Cuda(version)))
        }
        ["ROCm", "runtime"] => Some(EngineLogLine::Runtime(CardInterface::Rocm)),
        ["Vulkan", "device"] => Some(EngineLogLine::Runtime(CardInterface::Vulkan)),
        ["static", "CUDA", "runtime"] => Some(EngineLogLine::StaticRuntime),
        [place, "asked", "for", asked, "bytes"] => {
            card(place).zip(bytes(asked)).map(|(card, bytes)| EngineLogLine::Asked { card, bytes })
        }
        [place, "holds", held, "bytes", "and", "takes", taken, "after", tokens, "tokens"] => {
            let memory = bytes(held).zip(bytes(taken)).zip(tokens.parse().ok());
            let memory = memory.map(|((held, taken), tokens)| GrownMemory { held, taken, tokens });
            card(place).zip(memory).map(|(card, memory)| EngineLogLine::Grown { card, memory })
        }
        [count, "kernels", "without", "code", "for", "the", "card"] => {
            count.parse().ok().map(EngineLogLine::WithoutCode)
        }
        [place, "opened", "cuBLAS"] => card(place).map(EngineLogLine::Cublas),
        _ => None,
    };
    read.unwrap_or(EngineLogLine::Nothing)
}
