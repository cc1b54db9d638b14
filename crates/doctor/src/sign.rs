//! What a line of an engine means for the scheduler: the coarse sign of a phrase in [`saying`](super::saying).

use plimsoll_base::Stage;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// The card's memory ran out.
    CardMemory,
    /// Host memory ran out.
    HostMemory,
    /// The card or its driver reported another error.
    CardFault,
    PortTaken,
    NotStarted,
    MissingLibrary,
    UnknownFlag,
    ModelFile,
}

/// True if the engine says with `line` that it cannot go on. Some stay all the same, with their memory.
pub fn gives_up(line: &str, stage: Stage) -> bool {
    // `ggml.c: ggml_abort` closes with `FILE:LINE: MESSAGE`; these are the messages of a lost device.
    let aborts =
        line.ends_with(": CUDA error") || line.ends_with(": ROCm error") || line.contains("GGML_ASSERT(");
    aborts || (stage == Stage::Loading && line.contains("failed to load model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_is_told_from_complaining() {
        let abort = "/x/ggml/src/ggml-cuda/ggml-cuda.cu:107: CUDA error";
        assert!(gives_up(abort, Stage::Serving));
        assert!(gives_up(
            "srv load_model: failed to load model, 'x'",
            Stage::Loading
        ));
        // A router of adapters may say this while it serves on.
        assert!(!gives_up("failed to load model", Stage::Serving));
        assert!(!gives_up(
            "RuntimeError: CUDA error: out of memory",
            Stage::Serving
        ));
    }
}
