//! Finds causes that a single log line of an engine shows, such as a full card, and ggml's abort messages.

use std::fmt;

use plimsoll_base::Stage;
use serde::{Serialize, Serializer};

use super::cause::named;
use super::formats::fits;

named! {
    /// Cause of an engine's end, as far as a single line shows it. Among several lines, the first in this
    /// order counts.
    CauseSign {
        CardMemory = "engine_out_of_memory": "the engine ran out of card memory",
        HostMemory = "engine_out_of_host_memory": "the engine ran out of host memory",
        CardFault = "engine_card_fault": "the card or its driver failed",
        PortTaken = "engine_port_taken": "the engine found its port already in use",
        NotStarted = "engine_not_started": "the engine could not be started",
        MissingLibrary = "engine_missing_library": "the engine lacks a shared library",
        UnknownFlag = "engine_unknown_flag": "the engine rejected its command line",
        ModelFile = "engine_model_file": "the engine could not read its model",
    }
}

impl CauseSign {
    /// The sign of a flag in the phrase tables, which is its code without `engine_`.
    pub(super) fn named(flag: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|sign| sign.code().strip_prefix("engine_") == Some(flag))
    }
}

/// True if `line` has the whole shape of an abort of ggml, or of llama-server's failed load.
///
/// It starts a check of the engine and is never a verdict: the line is text that the engine prints, and a
/// client may have chosen it. Some engines survive such a line, others hang with their memory.
pub fn gives_up(line: &str, stage: Stage) -> bool {
    // The path of an abort must begin the line: llama-server quotes a request's text in the middle of a line
    // of its own.
    let starts_as = |kind| !line.starts_with(char::is_whitespace) && fits(kind, line);
    starts_as("abort") || (stage == Stage::Loading && starts_as("failed_load"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_of_ggml_is_distinguished_from_a_complaint() {
        for line in [
            "/x/ggml/src/ggml-cuda/ggml-cuda.cu:107: CUDA error",
            "/build/ggml/src/ggml.c:1650: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed",
            "0.12.345.678 E /app/ggml/src/ggml-cuda/ggml-cuda.cu:98: ROCm error",
        ] {
            assert!(gives_up(line, Stage::Serving), "{line}");
        }
        assert!(gives_up("srv    load_model: failed to load model, 'x'", Stage::Loading));
        // A router of adapters may print this while it goes on serving.
        assert!(!gives_up("srv    load_model: failed to load model, 'x'", Stage::Serving));
        assert!(!gives_up("RuntimeError: CUDA error: out of memory", Stage::Serving));
    }

    /// Client text in an engine's log: a quoted, cut or inner abort is none.
    #[test]
    fn words_of_a_request_never_have_the_shape_of_an_abort() {
        for line in [
            "srv  operator(): got exception: parse error: last read: 'GGML_ASSERT(\u{1}'",
            "INFO Received request cmpl-1: prompt: '/x/ggml.c:1: GGML_ASSERT(1) failed'",
            "GGML_ASSERT(x) failed",
            "root ::= GGML_ASSERT(",
            "hello: CUDA error",
            "ggml-cuda.cu:107: CUDA error",
            "/x/y.cu: CUDA error",
            "/x y/ggml.c:10: CUDA error",
            "/x/ggml.c:10: CUDA error of the client",
            "/x/ggml.c:1a: CUDA error",
            "failed to load model",
            "prompt: srv load_model: failed to load model",
            "",
        ] {
            assert!(!gives_up(line, Stage::Loading), "{line}");
            assert!(!gives_up(line, Stage::Serving), "{line}");
        }
    }
}
