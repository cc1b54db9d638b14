//! llama-server flags that stand for several others: a model to download and the settings to run it with
//! (`common/arg.cpp: --fim-qwen-*, --gpt-oss-*, … @ b10605`).

use super::{ModelParams, Parallel};

struct Bundle {
    name: &'static str,
    model: &'static str,
    draft: Option<&'static str>,
    context: u32,
    batches: Option<(u32, u32)>,
    slots: Option<u32>,
    embeddings: bool,
}

const fn bundle(name: &'static str, model: &'static str, batches: Option<(u32, u32)>) -> Bundle {
    Bundle {
        name,
        model,
        draft: None,
        context: 0,
        batches,
        slots: None,
        embeddings: false,
    }
}

const QWEN_DRAFT: Option<&str> = Some("ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF");
const SMALL: Option<(u32, u32)> = Some((1024, 1024));
const GPT_OSS: Option<(u32, u32)> = Some((32_768, 2048));

static BUNDLES: [Bundle; 11] = [
    Bundle {
        context: 2048 * 32,
        slots: Some(32),
        embeddings: true,
        ..bundle(
            "--embd-gemma-default",
            "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF",
            Some((2048, 2048)),
        )
    },
    bundle(
        "--fim-qwen-1.5b-default",
        "ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF",
        SMALL,
    ),
    bundle(
        "--fim-qwen-3b-default",
        "ggml-org/Qwen2.5-Coder-3B-Q8_0-GGUF",
        SMALL,
    ),
    bundle(
        "--fim-qwen-7b-default",
        "ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF",
        SMALL,
    ),
    Bundle {
        draft: QWEN_DRAFT,
        ..bundle("--fim-qwen-7b-spec", "ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF", SMALL)
    },
    Bundle {
        draft: QWEN_DRAFT,
        ..bundle(
            "--fim-qwen-14b-spec",
            "ggml-org/Qwen2.5-Coder-14B-Q8_0-GGUF",
            SMALL,
        )
    },
    bundle(
        "--fim-qwen-30b-default",
        "ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF",
        SMALL,
    ),
    Bundle {
        context: 131_072 * 2,
        slots: Some(2),
        ..bundle("--gpt-oss-20b-default", "ggml-org/gpt-oss-20b-GGUF", GPT_OSS)
    },
    Bundle {
        context: 131_072 * 2,
        slots: Some(2),
        ..bundle("--gpt-oss-120b-default", "ggml-org/gpt-oss-120b-GGUF", GPT_OSS)
    },
    bundle(
        "--vision-gemma-4b-default",
        "ggml-org/gemma-3-4b-it-qat-GGUF",
        None,
    ),
    bundle(
        "--vision-gemma-12b-default",
        "ggml-org/gemma-3-12b-it-qat-GGUF",
        None,
    ),
];

impl ModelParams {
    pub(crate) fn take_bundle(&mut self, name: &str) {
        let Some(bundle) = BUNDLES.iter().find(|bundle| bundle.name == name) else {
            return;
        };
        self.remote = Some(bundle.model.to_owned());
        if let Some(draft) = bundle.draft {
            self.draft_remote = Some(draft.to_owned());
        }
        // llama.cpp assigns these without looking at earlier flags; flags after the bundle win again.
        self.context = bundle.context;
        if let Some((batch, micro_batch)) = bundle.batches {
            (self.batch, self.micro_batch) = (batch, micro_batch);
        }
        if let Some(slots) = bundle.slots {
            self.parallel = Parallel::Count(slots);
        }
        self.embeddings |= bundle.embeddings;
    }
}
