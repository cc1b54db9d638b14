//! The rows. Data: a row is a flag, the order is llama.cpp's.

use super::{Effect, Flag, Known, Takes};

const fn row(names: &'static [&'static str], takes: Takes) -> Flag {
    Flag {
        names,
        negations: &[],
        env: None,
        takes,
        effect: Effect::None,
        known: Known::Today,
    }
}

const fn bare(names: &'static [&'static str]) -> Flag {
    row(names, Takes::Nothing)
}

const fn value(names: &'static [&'static str]) -> Flag {
    row(names, Takes::Value)
}

const fn number(names: &'static [&'static str]) -> Flag {
    row(names, Takes::Number)
}

const fn two_values(names: &'static [&'static str]) -> Flag {
    row(names, Takes::TwoValues)
}

const fn switch(names: &'static [&'static str], negations: &'static [&'static str]) -> Flag {
    let mut flag = row(names, Takes::Switch);
    flag.negations = negations;
    flag
}

impl Flag {
    const fn env(mut self, env: &'static str) -> Self {
        self.env = Some(env);
        self
    }

    const fn does(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    const fn removed(mut self, instead: &'static str) -> Self {
        self.known = Known::Before(instead);
        self
    }

    const fn ik(mut self) -> Self {
        self.known = Known::Ik;
        self
    }

    const fn preset_only(mut self) -> Self {
        self.known = Known::Preset;
        self
    }
}

/// Every flag known.
pub static FLAGS: &[Flag] = &[
    bare(&["-h", "--help", "--usage"]),
    bare(&["--version"]),
    bare(&["-cl", "--cache-list"]),
    bare(&["--completion-bash"]),
    number(&["-t", "--threads"]).env("LLAMA_ARG_THREADS"),
    number(&["-tb", "--threads-batch"]),
    value(&["-C", "--cpu-mask"]),
    value(&["-Cr", "--cpu-range"]),
    value(&["--cpu-strict"]),
    number(&["--prio"]),
    value(&["--poll"]),
    value(&["-Cb", "--cpu-mask-batch"]),
    value(&["-Crb", "--cpu-range-batch"]),
    number(&["--cpu-strict-batch"]),
    number(&["--prio-batch"]),
    number(&["--poll-batch"]),
    value(&["-lcs", "--lookup-cache-static"]),
    value(&["-lcd", "--lookup-cache-dynamic"]),
    number(&["-c", "--ctx-size"])
        .env("LLAMA_ARG_CTX_SIZE")
        .does(Effect::Context),
    number(&["-n", "--predict", "--n-predict"]).env("LLAMA_ARG_N_PREDICT"),
    number(&["-b", "--batch-size"])
        .env("LLAMA_ARG_BATCH")
        .does(Effect::Batch),
    number(&["-ub", "--ubatch-size"])
        .env("LLAMA_ARG_UBATCH")
        .does(Effect::MicroBatch),
    number(&["--keep"]),
    bare(&["--swa-full"])
        .env("LLAMA_ARG_SWA_FULL")
        .does(Effect::FullSlidingCache),
    number(&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"])
        .env("LLAMA_ARG_CTX_CHECKPOINTS")
        .does(Effect::Checkpoints),
    number(&["-cms", "--checkpoint-min-step"]).env("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT"),
    number(&["-cram", "--cache-ram"])
        .env("LLAMA_ARG_CACHE_RAM")
        .does(Effect::HostCache),
    switch(&["-kvu", "--kv-unified"], &["-no-kvu", "--no-kv-unified"])
        .env("LLAMA_ARG_KV_UNIFIED")
        .does(Effect::UnifiedCache),
    switch(&["--cache-idle-slots"], &["--no-cache-idle-slots"]).env("LLAMA_ARG_CACHE_IDLE_SLOTS"),
    switch(&["--context-shift"], &["--no-context-shift"]).env("LLAMA_ARG_CONTEXT_SHIFT"),
    value(&["-fa", "--flash-attn"])
        .env("LLAMA_ARG_FLASH_ATTN")
        .does(Effect::FlashAttention),
    switch(&["--perf"], &["--no-perf"]).env("LLAMA_ARG_PERF"),
    switch(&["-e", "--escape"], &["--no-escape"]),
    value(&["-r", "--reverse-prompt"]),
    bare(&["-sp", "--special"]),
    switch(&["--warmup"], &["--no-warmup"]),
    bare(&["--spm-infill"]),
    value(&["--samplers"]),
    value(&["-s", "--seed"]),
    value(&["--sampler-seq", "--sampling-seq"]),
    bare(&["--ignore-eos"]),
    value(&["--temp", "--temperature"]),
    number(&["--top-k"]).env("LLAMA_ARG_TOP_K"),
    value(&["--top-p"]),
    value(&["--min-p"]),
    value(&["--top-nsigma", "--top-n-sigma"]),
    value(&["--xtc-probability"]),
    value(&["--xtc-threshold"]),
    value(&["--typical", "--typical-p"]),
    number(&["--repeat-last-n"]),
    value(&["--repeat-penalty"]),
    value(&["--presence-penalty"]),
    value(&["--frequency-penalty"]),
    value(&["--dry-multiplier"]),
    value(&["--dry-base"]),
    number(&["--dry-allowed-length"]),
    number(&["--dry-penalty-last-n"]),
    value(&["--dry-sequence-breaker"]),
    value(&["--adaptive-target"]),
    value(&["--adaptive-decay"]),
    value(&["--dynatemp-range"]),
    value(&["--dynatemp-exp"]),
    number(&["--mirostat"]),
    value(&["--mirostat-lr"]),
    value(&["--mirostat-ent"]),
    value(&["-l", "--logit-bias"]),
    value(&["--grammar"]),
    value(&["--grammar-file"]),
    value(&["-j", "--json-schema"]),
    value(&["-jf", "--json-schema-file"]),
    bare(&["-bs", "--backend-sampling"])
        .env("LLAMA_ARG_BACKEND_SAMPLING")
        .does(Effect::BackendSampling),
    value(&["--pooling"])
        .env("LLAMA_ARG_POOLING")
        .does(Effect::Pooling),
    value(&["--rope-scaling"]).env("LLAMA_ARG_ROPE_SCALING_TYPE"),
    value(&["--rope-scale"]).env("LLAMA_ARG_ROPE_SCALE"),
    value(&["--rope-freq-base"]).env("LLAMA_ARG_ROPE_FREQ_BASE"),
    value(&["--rope-freq-scale"]).env("LLAMA_ARG_ROPE_FREQ_SCALE"),
    number(&["--yarn-orig-ctx"]).env("LLAMA_ARG_YARN_ORIG_CTX"),
    value(&["--yarn-ext-factor"]).env("LLAMA_ARG_YARN_EXT_FACTOR"),
    value(&["--yarn-attn-factor"]).env("LLAMA_ARG_YARN_ATTN_FACTOR"),
    value(&["--yarn-beta-slow"]).env("LLAMA_ARG_YARN_BETA_SLOW"),
    value(&["--yarn-beta-fast"]).env("LLAMA_ARG_YARN_BETA_FAST"),
    switch(&["-kvo", "--kv-offload"], &["-nkvo", "--no-kv-offload"])
        .env("LLAMA_ARG_KV_OFFLOAD")
        .does(Effect::CacheOffload),
    switch(&["--repack"], &["-nr", "--no-repack"]).env("LLAMA_ARG_REPACK"),
    bare(&["--no-host"]).env("LLAMA_ARG_NO_HOST"),
    value(&["-ctk", "--cache-type-k"])
        .env("LLAMA_ARG_CACHE_TYPE_K")
        .does(Effect::CacheKey),
    value(&["-ctv", "--cache-type-v"])
        .env("LLAMA_ARG_CACHE_TYPE_V")
        .does(Effect::CacheValue),
    value(&["-dt", "--defrag-thold"]).env("LLAMA_ARG_DEFRAG_THOLD"),
    number(&["-np", "--parallel"])
        .env("LLAMA_ARG_N_PARALLEL")
        .does(Effect::Parallel),
    switch(&["-cb", "--cont-batching"], &["-nocb", "--no-cont-batching"]).env("LLAMA_ARG_CONT_BATCHING"),
    value(&["-mm", "--mmproj"])
        .env("LLAMA_ARG_MMPROJ")
        .does(Effect::Projector),
    value(&["-mmu", "--mmproj-url"])
        .env("LLAMA_ARG_MMPROJ_URL")
        .does(Effect::Projector),
    switch(&["--mmproj-auto"], &["--no-mmproj", "--no-mmproj-auto"])
        .env("LLAMA_ARG_MMPROJ_AUTO")
        .does(Effect::ProjectorAuto),
    switch(&["--mmproj-offload"], &["--no-mmproj-offload"])
        .env("LLAMA_ARG_MMPROJ_OFFLOAD")
        .does(Effect::ProjectorOffload),
    value(&["-mmdev", "--mmproj-device"])
        .env("MTMD_BACKEND_DEVICE")
        .does(Effect::ProjectorDevice),
    number(&["--image-min-tokens"]).env("LLAMA_ARG_IMAGE_MIN_TOKENS"),
    number(&["--image-max-tokens"])
        .env("LLAMA_ARG_IMAGE_MAX_TOKENS")
        .does(Effect::Images),
    number(&["--mtmd-batch-max-tokens"]).env("LLAMA_ARG_MTMD_BATCH_MAX_TOKENS"),
    value(&["--rpc"]).env("LLAMA_ARG_RPC"),
    bare(&["--mlock"]).env("LLAMA_ARG_MLOCK").does(Effect::NoMmap),
    switch(&["--mmap"], &["--no-mmap"])
        .env("LLAMA_ARG_MMAP")
        .does(Effect::Mmap),
    switch(&["-dio", "--direct-io"], &["-ndio", "--no-direct-io"])
        .env("LLAMA_ARG_DIO")
        .does(Effect::NoMmap),
    value(&["-lm", "--load-mode"])
        .env("LLAMA_ARG_LOAD_MODE")
        .does(Effect::LoadMode),
    value(&["--numa"]).env("LLAMA_ARG_NUMA"),
    value(&["-dev", "--device"])
        .env("LLAMA_ARG_DEVICE")
        .does(Effect::Devices),
    bare(&["--list-devices"]),
    value(&["-ot", "--override-tensor"])
        .env("LLAMA_ARG_OVERRIDE_TENSOR")
        .does(Effect::Overrides),
    bare(&["-cmoe", "--cpu-moe"])
        .env("LLAMA_ARG_CPU_MOE")
        .does(Effect::AllExperts),
    number(&["-ncmoe", "--n-cpu-moe"])
        .env("LLAMA_ARG_N_CPU_MOE")
        .does(Effect::Experts),
    value(&["-ngl", "--gpu-layers", "--n-gpu-layers"])
        .env("LLAMA_ARG_N_GPU_LAYERS")
        .does(Effect::Layers),
    value(&["-sm", "--split-mode"])
        .env("LLAMA_ARG_SPLIT_MODE")
        .does(Effect::SplitMode),
    value(&["-ts", "--tensor-split"])
        .env("LLAMA_ARG_TENSOR_SPLIT")
        .does(Effect::TensorSplit),
    number(&["-mg", "--main-gpu"])
        .env("LLAMA_ARG_MAIN_GPU")
        .does(Effect::MainGpu),
    value(&["-fit", "--fit"]).env("LLAMA_ARG_FIT").does(Effect::Fit),
    value(&["-fitt", "--fit-target"]).env("LLAMA_ARG_FIT_TARGET"),
    number(&["-fitc", "--fit-ctx"])
        .env("LLAMA_ARG_FIT_CTX")
        .does(Effect::FitContext),
    bare(&["--check-tensors"]),
    value(&["--override-kv"]),
    switch(&["--op-offload"], &["--no-op-offload"]).does(Effect::OpOffload),
    value(&["--lora"]).does(Effect::Adapters),
    value(&["--lora-scaled"]).does(Effect::ScaledAdapters),
    value(&["--control-vector"]).does(Effect::ControlVectors),
    value(&["--control-vector-scaled"]).does(Effect::ControlVectors),
    two_values(&["--control-vector-layer-range"]),
    value(&["-a", "--alias"])
        .env("LLAMA_ARG_ALIAS")
        .does(Effect::Router),
    value(&["--tags"]).env("LLAMA_ARG_TAGS"),
    value(&["-m", "--model"])
        .env("LLAMA_ARG_MODEL")
        .does(Effect::Model),
    value(&["-mu", "--model-url"])
        .env("LLAMA_ARG_MODEL_URL")
        .does(Effect::Remote),
    value(&["-dr", "--docker-repo"])
        .env("LLAMA_ARG_DOCKER_REPO")
        .does(Effect::Remote),
    value(&["-hf", "-hfr", "--hf-repo"])
        .env("LLAMA_ARG_HF_REPO")
        .does(Effect::Remote),
    value(&["-hff", "--hf-file"]).env("LLAMA_ARG_HF_FILE"),
    value(&["-hft", "--hf-token"]).env("HF_TOKEN"),
    number(&["--embd-normalize"]),
    value(&["--host"]).env("LLAMA_ARG_HOST").does(Effect::Router),
    number(&["--port"]).env("LLAMA_ARG_PORT").does(Effect::Router),
    bare(&["--reuse-port"]).env("LLAMA_ARG_REUSE_PORT"),
    value(&["--path"]).env("LLAMA_ARG_STATIC_PATH"),
    value(&["--cors-origins"]).env("LLAMA_ARG_CORS_ORIGINS"),
    value(&["--cors-methods"]).env("LLAMA_ARG_CORS_METHODS"),
    value(&["--cors-headers"]).env("LLAMA_ARG_CORS_HEADERS"),
    switch(&["--cors-credentials"], &["--no-cors-credentials"]).env("LLAMA_ARG_CORS_CREDENTIALS"),
    value(&["--api-prefix"]).env("LLAMA_ARG_API_PREFIX"),
    value(&["--ui-config", "--webui-config"]).env("LLAMA_ARG_UI_CONFIG"),
    value(&["--ui-config-file", "--webui-config-file"]).env("LLAMA_ARG_UI_CONFIG_FILE"),
    switch(
        &["--ui-mcp-proxy", "--webui-mcp-proxy"],
        &["--no-ui-mcp-proxy", "--no-webui-mcp-proxy"],
    )
    .env("LLAMA_ARG_UI_MCP_PROXY"),
    value(&["--tools"]).env("LLAMA_ARG_TOOLS"),
    value(&["--tools-runtime"]).env("LLAMA_ARG_TOOLS_RUNTIME"),
    value(&["--mcp-servers-config"]).env("LLAMA_ARG_MCP_SERVERS_CONFIG"),
    value(&["--mcp-servers-json"]).env("LLAMA_ARG_MCP_SERVERS_JSON"),
    switch(&["-ag", "--agent"], &["-no-ag", "--no-agent"]).env("LLAMA_ARG_AGENT"),
    switch(&["--ui", "--webui"], &["--no-ui", "--no-webui"]).env("LLAMA_ARG_UI"),
    bare(&["--embedding", "--embeddings"])
        .env("LLAMA_ARG_EMBEDDINGS")
        .does(Effect::Embeddings),
    bare(&["--rerank", "--reranking"])
        .env("LLAMA_ARG_RERANKING")
        .does(Effect::Rerank),
    value(&["--api-key"]).env("LLAMA_API_KEY").does(Effect::Router),
    value(&["--api-key-file"])
        .env("LLAMA_ARG_API_KEY_FILE")
        .does(Effect::Router),
    value(&["--ssl-key-file"])
        .env("LLAMA_ARG_SSL_KEY_FILE")
        .does(Effect::Router),
    value(&["--ssl-cert-file"])
        .env("LLAMA_ARG_SSL_CERT_FILE")
        .does(Effect::Router),
    value(&["--chat-template-kwargs"]).env("LLAMA_ARG_CHAT_TEMPLATE_KWARGS"),
    number(&["-to", "--timeout"]).env("LLAMA_ARG_TIMEOUT"),
    number(&["--sse-ping-interval"]).env("LLAMA_ARG_SSE_PING_INTERVAL"),
    number(&["--threads-http"]).env("LLAMA_ARG_THREADS_HTTP"),
    switch(&["--cache-prompt"], &["--no-cache-prompt"]).env("LLAMA_ARG_CACHE_PROMPT"),
    number(&["--cache-reuse"]).env("LLAMA_ARG_CACHE_REUSE"),
    bare(&["--metrics"]).env("LLAMA_ARG_ENDPOINT_METRICS"),
    bare(&["--props"]).env("LLAMA_ARG_ENDPOINT_PROPS"),
    switch(&["--slots"], &["--no-slots"]).env("LLAMA_ARG_ENDPOINT_SLOTS"),
    value(&["--slot-save-path"]),
    value(&["--media-path"]),
    value(&["--models-dir"])
        .env("LLAMA_ARG_MODELS_DIR")
        .does(Effect::Router),
    value(&["--models-preset"])
        .env("LLAMA_ARG_MODELS_PRESET")
        .does(Effect::Router),
    number(&["--models-max"])
        .env("LLAMA_ARG_MODELS_MAX")
        .does(Effect::Router),
    switch(&["--models-autoload"], &["--no-models-autoload"])
        .env("LLAMA_ARG_MODELS_AUTOLOAD")
        .does(Effect::Router),
    switch(&["--jinja"], &["--no-jinja"]).env("LLAMA_ARG_JINJA"),
    value(&["--reasoning-format"]).env("LLAMA_ARG_THINK"),
    value(&["-rea", "--reasoning"]).env("LLAMA_ARG_REASONING"),
    value(&["--reasoning-effort"]).env("LLAMA_ARG_REASONING_EFFORT"),
    number(&["--reasoning-budget"]).env("LLAMA_ARG_THINK_BUDGET"),
    value(&["--reasoning-budget-message"]).env("LLAMA_ARG_THINK_BUDGET_MESSAGE"),
    switch(&["--reasoning-preserve"], &["--no-reasoning-preserve"]).env("LLAMA_ARG_REASONING_PRESERVE"),
    value(&["--chat-template"]).env("LLAMA_ARG_CHAT_TEMPLATE"),
    value(&["--chat-template-file"]).env("LLAMA_ARG_CHAT_TEMPLATE_FILE"),
    switch(&["--skip-chat-parsing"], &["--no-skip-chat-parsing"]).env("LLAMA_ARG_SKIP_CHAT_PARSING"),
    switch(&["--prefill-assistant"], &["--no-prefill-assistant"]).env("LLAMA_ARG_PREFILL_ASSISTANT"),
    value(&["-sps", "--slot-prompt-similarity"]),
    bare(&["--lora-init-without-apply"]),
    number(&["--sleep-idle-seconds"]),
    bare(&["--log-disable"]),
    value(&["--log-file"]).env("LLAMA_ARG_LOG_FILE"),
    value(&["--log-prompts-dir"]),
    value(&["--log-colors"]).env("LLAMA_ARG_LOG_COLORS"),
    bare(&["-v", "--verbose", "--log-verbose"]),
    bare(&["--offline"]).env("LLAMA_ARG_OFFLINE"),
    number(&["-lv", "--verbosity", "--log-verbosity"]).env("LLAMA_ARG_LOG_VERBOSITY"),
    switch(&["--log-prefix"], &["--no-log-prefix"]).env("LLAMA_ARG_LOG_PREFIX"),
    switch(&["--log-timestamps"], &["--no-log-timestamps"]).env("LLAMA_ARG_LOG_TIMESTAMPS"),
    value(&["--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_HF_REPO")
        .does(Effect::DraftRemote),
    number(&["--spec-draft-threads", "-td", "--threads-draft"]),
    number(&["--spec-draft-threads-batch", "-tbd", "--threads-batch-draft"]),
    value(&["--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft"]),
    value(&["--spec-draft-cpu-range", "-Crd", "--cpu-range-draft"]),
    number(&["--spec-draft-cpu-strict", "--cpu-strict-draft"]),
    number(&["--spec-draft-prio", "--prio-draft"]),
    number(&["--spec-draft-poll", "--poll-draft"]),
    value(&["--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft"]),
    number(&["--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"]),
    number(&["--spec-draft-prio-batch", "--prio-batch-draft"]),
    number(&["--spec-draft-poll-batch", "--poll-batch-draft"]),
    value(&["--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K")
        .does(Effect::DraftCacheKey),
    value(&["--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V")
        .does(Effect::DraftCacheValue),
    value(&["--spec-draft-override-tensor", "-otd", "--override-tensor-draft"]).does(Effect::DraftOverrides),
    bare(&["--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_CPU_MOE")
        .does(Effect::DraftAllExperts),
    number(&[
        "--spec-draft-n-cpu-moe",
        "--spec-draft-ncmoe",
        "-ncmoed",
        "--n-cpu-moe-draft",
    ])
    .env("LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE")
    .does(Effect::DraftExperts),
    number(&["--spec-draft-n-max"])
        .env("LLAMA_ARG_SPEC_DRAFT_N_MAX")
        .does(Effect::DraftTokens),
    number(&["--spec-draft-n-min"]).env("LLAMA_ARG_SPEC_DRAFT_N_MIN"),
    value(&["--spec-draft-p-split", "--draft-p-split"]).env("LLAMA_ARG_SPEC_DRAFT_P_SPLIT"),
    value(&["--spec-draft-p-min", "--draft-p-min"]).env("LLAMA_ARG_SPEC_DRAFT_P_MIN"),
    switch(
        &["--spec-draft-backend-sampling"],
        &["--no-spec-draft-backend-sampling"],
    )
    .env("LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING"),
    value(&["--spec-draft-device", "-devd", "--device-draft"]).does(Effect::DraftDevices),
    value(&[
        "--spec-draft-ngl",
        "-ngld",
        "--gpu-layers-draft",
        "--n-gpu-layers-draft",
    ])
    .env("LLAMA_ARG_N_GPU_LAYERS_DRAFT")
    .does(Effect::DraftLayers),
    value(&["--spec-draft-model", "-md", "--model-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_MODEL")
        .does(Effect::Draft),
    value(&["--spec-type"])
        .env("LLAMA_ARG_SPEC_TYPE")
        .does(Effect::Speculation),
    number(&["--spec-ngram-mod-n-min"]),
    number(&["--spec-ngram-mod-n-max"]),
    number(&["--spec-ngram-mod-n-match"]),
    number(&["--spec-ngram-simple-size-n"]),
    number(&["--spec-ngram-simple-size-m"]),
    number(&["--spec-ngram-simple-min-hits"]),
    number(&["--spec-ngram-map-k-size-n"]),
    number(&["--spec-ngram-map-k-size-m"]),
    number(&["--spec-ngram-map-k-min-hits"]),
    number(&["--spec-ngram-map-k4v-size-n"]),
    number(&["--spec-ngram-map-k4v-size-m"]),
    number(&["--spec-ngram-map-k4v-min-hits"]),
    number(&["--draft", "--draft-n", "--draft-max"])
        .env("LLAMA_ARG_DRAFT_MAX")
        .does(Effect::DraftTokens)
        .removed("use --spec-draft-n-max or --spec-ngram-mod-n-max"),
    number(&["--draft-min", "--draft-n-min"])
        .env("LLAMA_ARG_DRAFT_MIN")
        .removed("use --spec-draft-n-min or --spec-ngram-mod-n-min"),
    number(&["--spec-ngram-size-n"]).removed("use the --spec-ngram-*-size-n of the method"),
    number(&["--spec-ngram-size-m"]).removed("use the --spec-ngram-*-size-m of the method"),
    number(&["--spec-ngram-min-hits"]).removed("use the --spec-ngram-*-min-hits of the method"),
    bare(&["--embd-gemma-default"]).does(Effect::Bundle),
    bare(&["--fim-qwen-1.5b-default"]).does(Effect::Bundle),
    bare(&["--fim-qwen-3b-default"]).does(Effect::Bundle),
    bare(&["--fim-qwen-7b-default"]).does(Effect::Bundle),
    bare(&["--fim-qwen-7b-spec"]).does(Effect::Bundle),
    bare(&["--fim-qwen-14b-spec"]).does(Effect::Bundle),
    bare(&["--fim-qwen-30b-default"]).does(Effect::Bundle),
    bare(&["--gpt-oss-20b-default"]).does(Effect::Bundle),
    bare(&["--gpt-oss-120b-default"]).does(Effect::Bundle),
    bare(&["--vision-gemma-4b-default"]).does(Effect::Bundle),
    bare(&["--vision-gemma-12b-default"]).does(Effect::Bundle),
    bare(&["--spec-default"]),
    value(&["load-on-startup"])
        .env("__PRESET_LOAD_ON_STARTUP")
        .preset_only(),
    value(&["stop-timeout"])
        .env("__PRESET_STOP_TIMEOUT")
        .preset_only(),
    value(&["dedup-cache-models"])
        .env("__PRESET_DEDUP_CACHE_MODELS")
        .preset_only(), // Gone from llama-server by b10605.
    number(&["-cd", "--ctx-size-draft"])
        .env("LLAMA_ARG_CTX_SIZE_DRAFT")
        .does(Effect::DraftContext)
        .removed("the draft model takes the context of the main model"),
    bare(&["-nfa", "--no-flash-attn"])
        .does(Effect::NoFlashAttention)
        .removed("use --flash-attn off"),
    two_values(&["--spec-replace"]).removed("vocabularies are matched without it"),
    number(&["-gan", "--grp-attn-n"]).removed("self-extend is no longer offered"),
    number(&["-gaw", "--grp-attn-w"]).removed("self-extend is no longer offered"),
    // ik_llama.cpp's own.
    number(&["-mla", "--mla-use"]).does(Effect::LatentAttention).ik(),
    number(&["-amb", "--attention-max-batch"])
        .does(Effect::AttentionBuffer)
        .ik(),
    bare(&["-fmoe", "--fused-moe"]).does(Effect::FusedExperts).ik(),
    bare(&["-no-fmoe", "--no-fused-moe"])
        .does(Effect::NoFusedExperts)
        .ik(),
    bare(&["-ger", "--grouped-expert-routing"]).ik(),
    bare(&["-rtr", "--run-time-repack"]).does(Effect::Repack).ik(),
    value(&["-ser", "--smart-expert-reduction"]).ik(),
];
