//! Rows of the table of llama-server's flags, in llama.cpp's order.

use plimsoll_model::Pooling;

use super::builder::{
    add, bare, bundle, number, put, put_if, raise, row, stretching, switch, two_values, value,
};
use super::{Flag, FlagArity, FlagClass};
use crate::wish::FlashAttention;

/// Every flag known.
pub static FLAGS: &[Flag] = &[
    // General options and threads: none of them changes the model's memory.
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
    // Context, batches and cache: they size the KV cache and the compute buffer.
    number(&["-c", "--ctx-size"])
        .env("LLAMA_ARG_CTX_SIZE")
        .sets(|wish, given| put(&mut wish.context, given.natural())),
    number(&["-n", "--predict", "--n-predict"]).env("LLAMA_ARG_N_PREDICT"),
    number(&["-b", "--batch-size"])
        .env("LLAMA_ARG_BATCH")
        .sets(|wish, given| put(&mut wish.batch, given.natural())),
    number(&["-ub", "--ubatch-size"])
        .env("LLAMA_ARG_UBATCH")
        .sets(|wish, given| put(&mut wish.micro_batch, given.natural())),
    number(&["--keep"]),
    bare(&["--swa-full"])
        .env("LLAMA_ARG_SWA_FULL")
        .sets(|wish, _| put(&mut wish.full_sliding_cache, Ok(true))),
    number(&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"])
        .env("LLAMA_ARG_CTX_CHECKPOINTS")
        .sets(|wish, given| put(&mut wish.checkpoints, given.natural())),
    number(&["-cms", "--checkpoint-min-step"]).env("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT"),
    number(&["-cram", "--cache-ram"])
        .env("LLAMA_ARG_CACHE_RAM")
        .sets(|wish, given| put(&mut wish.host_cache, given.mebibytes_or_no_limit())),
    switch(&["-kvu", "--kv-unified"], &["-no-kvu", "--no-kv-unified"])
        .env("LLAMA_ARG_KV_UNIFIED")
        .sets(|wish, given| put(&mut wish.unified_cache, Ok(Some(given.on())))),
    switch(&["--cache-idle-slots"], &["--no-cache-idle-slots"]).env("LLAMA_ARG_CACHE_IDLE_SLOTS"),
    switch(&["--context-shift"], &["--no-context-shift"]).env("LLAMA_ARG_CONTEXT_SHIFT"),
    row(&["-fa", "--flash-attn"], FlagArity::OptionalValue)
        .env("LLAMA_ARG_FLASH_ATTN")
        .sets(|wish, given| put(&mut wish.flash_attention, given.flash_attention())),
    // Sampling runs on the host, except with `--backend-sampling`, which adds nodes to the graph.
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
        .sets(|wish, _| put(&mut wish.backend_sampling, Ok(true))),
    value(&["--pooling"])
        .env("LLAMA_ARG_POOLING")
        .sets(|wish, given| put(&mut wish.pooling, given.pooling().map(Some))),
    // RoPE scaling changes values, not sizes; a model may then reach beyond its training context.
    stretching(value(&["--rope-scaling"]).env("LLAMA_ARG_ROPE_SCALING_TYPE")),
    stretching(value(&["--rope-scale"]).env("LLAMA_ARG_ROPE_SCALE")),
    stretching(value(&["--rope-freq-base"]).env("LLAMA_ARG_ROPE_FREQ_BASE")),
    stretching(value(&["--rope-freq-scale"]).env("LLAMA_ARG_ROPE_FREQ_SCALE")),
    stretching(number(&["--yarn-orig-ctx"]).env("LLAMA_ARG_YARN_ORIG_CTX")),
    value(&["--yarn-ext-factor"]).env("LLAMA_ARG_YARN_EXT_FACTOR"),
    value(&["--yarn-attn-factor"]).env("LLAMA_ARG_YARN_ATTN_FACTOR"),
    value(&["--yarn-beta-slow"]).env("LLAMA_ARG_YARN_BETA_SLOW"),
    value(&["--yarn-beta-fast"]).env("LLAMA_ARG_YARN_BETA_FAST"),
    switch(&["-kvo", "--kv-offload"], &["-nkvo", "--no-kv-offload"])
        .env("LLAMA_ARG_KV_OFFLOAD")
        .sets(|wish, given| put(&mut wish.cache_offload, Ok(given.on()))),
    switch(&["--repack"], &["-nr", "--no-repack"]).env("LLAMA_ARG_REPACK"),
    bare(&["--no-host"]).env("LLAMA_ARG_NO_HOST"),
    value(&["-ctk", "--cache-type-k"])
        .env("LLAMA_ARG_CACHE_TYPE_K")
        .sets(|wish, given| put(&mut wish.cache_key, given.cache_type())),
    value(&["-ctv", "--cache-type-v"])
        .env("LLAMA_ARG_CACHE_TYPE_V")
        .sets(|wish, given| put(&mut wish.cache_value, given.cache_type())),
    value(&["-dt", "--defrag-thold"]).env("LLAMA_ARG_DEFRAG_THOLD"),
    number(&["-np", "--parallel"])
        .env("LLAMA_ARG_N_PARALLEL")
        .sets(|wish, given| put(&mut wish.parallel, given.parallel())),
    switch(&["-cb", "--cont-batching"], &["-nocb", "--no-cont-batching"]).env("LLAMA_ARG_CONT_BATCHING"),
    // The projector is a second model beside the first.
    value(&["-mm", "--mmproj"])
        .env("LLAMA_ARG_MMPROJ")
        .does(FlagClass::Projector)
        .sets(|wish, given| put(&mut wish.projector, given.text().map(Some))),
    value(&["-mmu", "--mmproj-url"])
        .env("LLAMA_ARG_MMPROJ_URL")
        .does(FlagClass::Projector)
        .sets(|wish, given| put(&mut wish.projector, given.text().map(Some))),
    switch(&["--mmproj-auto"], &["--no-mmproj", "--no-mmproj-auto"])
        .env("LLAMA_ARG_MMPROJ_AUTO")
        .sets(|wish, given| put_if(!given.on(), &mut wish.projector, None)),
    switch(&["--mmproj-offload"], &["--no-mmproj-offload"])
        .env("LLAMA_ARG_MMPROJ_OFFLOAD")
        .sets(|wish, given| put(&mut wish.projector_offload, Ok(given.on()))),
    value(&["-mmdev", "--mmproj-device"])
        .env("MTMD_BACKEND_DEVICE")
        .sets(|wish, given| {
            put(
                &mut wish.projector_offload,
                given.text().map(|name| name != "none"),
            )
        }),
    number(&["--image-min-tokens"]).env("LLAMA_ARG_IMAGE_MIN_TOKENS"),
    number(&["--image-max-tokens"])
        .env("LLAMA_ARG_IMAGE_MAX_TOKENS")
        .sets(|wish, given| put(&mut wish.image_tokens, given.natural().map(Some))),
    number(&["--mtmd-batch-max-tokens"]).env("LLAMA_ARG_MTMD_BATCH_MAX_TOKENS"),
    value(&["--rpc"]).env("LLAMA_ARG_RPC"),
    // Loading: without mmap, host weights are a copy of their own.
    bare(&["--mlock"])
        .env("LLAMA_ARG_MLOCK")
        .sets(|wish, _| put(&mut wish.mmap, Ok(false))),
    switch(&["--mmap"], &["--no-mmap"])
        .env("LLAMA_ARG_MMAP")
        .sets(|wish, given| put(&mut wish.mmap, Ok(given.on()))),
    switch(&["-dio", "--direct-io"], &["-ndio", "--no-direct-io"])
        .env("LLAMA_ARG_DIO")
        .sets(|wish, _| put(&mut wish.mmap, Ok(false))),
    value(&["-lm", "--load-mode"])
        .env("LLAMA_ARG_LOAD_MODE")
        .sets(|wish, given| put(&mut wish.mmap, given.load_mode_maps())),
    value(&["--numa"]).env("LLAMA_ARG_NUMA"),
    // Placement of layers and tensors on cards.
    value(&["-dev", "--device"])
        .env("LLAMA_ARG_DEVICE")
        .does(FlagClass::Devices)
        .sets(|wish, given| put(&mut wish.devices, given.names())),
    bare(&["--list-devices"]),
    value(&["-ot", "--override-tensor"])
        .env("LLAMA_ARG_OVERRIDE_TENSOR")
        .does(FlagClass::Overrides)
        .sets(|wish, given| add(&mut wish.overrides, given.overrides())),
    bare(&["-cmoe", "--cpu-moe"])
        .env("LLAMA_ARG_CPU_MOE")
        .sets(|wish, _| put(&mut wish.experts_on_host, Ok(u32::MAX))),
    number(&["-ncmoe", "--n-cpu-moe"])
        .env("LLAMA_ARG_N_CPU_MOE")
        .sets(|wish, given| raise(&mut wish.experts_on_host, given.natural())),
    value(&["-ngl", "--gpu-layers", "--n-gpu-layers"])
        .env("LLAMA_ARG_N_GPU_LAYERS")
        .sets(|wish, given| put(&mut wish.gpu_layers, given.layers())),
    value(&["-sm", "--split-mode"])
        .env("LLAMA_ARG_SPLIT_MODE")
        .sets(|wish, given| put(&mut wish.split_mode, given.split_mode())),
    value(&["-ts", "--tensor-split"])
        .env("LLAMA_ARG_TENSOR_SPLIT")
        .sets(|wish, given| put(&mut wish.tensor_split, given.proportions())),
    number(&["-mg", "--main-gpu"])
        .env("LLAMA_ARG_MAIN_GPU")
        .does(FlagClass::MainGpu)
        .sets(|wish, given| put(&mut wish.main_gpu, given.natural().map(Some))),
    value(&["-fit", "--fit"])
        .env("LLAMA_ARG_FIT")
        .does(FlagClass::Fit)
        .sets(|wish, given| put(&mut wish.fit, given.truth())),
    value(&["-fitt", "--fit-target"]).env("LLAMA_ARG_FIT_TARGET"),
    number(&["-fitc", "--fit-ctx"])
        .env("LLAMA_ARG_FIT_CTX")
        .sets(|wish, given| put(&mut wish.fit_context, given.natural())),
    bare(&["--check-tensors"]),
    value(&["--override-kv"]),
    switch(&["--op-offload"], &["--no-op-offload"])
        .sets(|wish, given| put(&mut wish.op_offload, Ok(given.on()))),
    // Adapters are loaded beside the weights they change.
    value(&["--lora"])
        .does(FlagClass::Adapters)
        .sets(|wish, given| add(&mut wish.adapters, given.fields())),
    value(&["--lora-scaled"])
        .does(FlagClass::ScaledAdapters)
        .sets(|wish, given| add(&mut wish.adapters, given.scaled_files())),
    value(&["--control-vector"])
        .does(FlagClass::ControlVectors)
        .sets(|wish, given| add(&mut wish.control_vectors, given.fields())),
    value(&["--control-vector-scaled"])
        .does(FlagClass::ControlVectors)
        .sets(|wish, given| add(&mut wish.control_vectors, given.fields())),
    two_values(&["--control-vector-layer-range"]),
    // Addresses, names and keys belong to the router; Plimsoll sets them for its children.
    value(&["-a", "--alias"])
        .env("LLAMA_ARG_ALIAS")
        .does(FlagClass::Router),
    value(&["--tags"]).env("LLAMA_ARG_TAGS"),
    // Sources of the model.
    value(&["-m", "--model"])
        .env("LLAMA_ARG_MODEL")
        .does(FlagClass::Model)
        .sets(|wish, given| put(&mut wish.model, given.text().map(Some))),
    value(&["-mu", "--model-url"])
        .env("LLAMA_ARG_MODEL_URL")
        .does(FlagClass::Remote)
        .sets(|wish, given| put(&mut wish.remote, given.text().map(Some))),
    value(&["-dr", "--docker-repo"])
        .env("LLAMA_ARG_DOCKER_REPO")
        .does(FlagClass::Remote)
        .sets(|wish, given| put(&mut wish.remote, given.text().map(Some))),
    value(&["-hf", "-hfr", "--hf-repo"])
        .env("LLAMA_ARG_HF_REPO")
        .does(FlagClass::Remote)
        .sets(|wish, given| put(&mut wish.remote, given.text().map(Some))),
    value(&["-hff", "--hf-file"]).env("LLAMA_ARG_HF_FILE"),
    value(&["-hft", "--hf-token"]).env("HF_TOKEN"),
    number(&["--embd-normalize"]),
    value(&["--host"]).env("LLAMA_ARG_HOST").does(FlagClass::Router),
    number(&["--port"]).env("LLAMA_ARG_PORT").does(FlagClass::Router),
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
        .sets(|wish, _| put(&mut wish.embeddings, Ok(true))),
    bare(&["--rerank", "--reranking"])
        .env("LLAMA_ARG_RERANKING")
        .sets(|wish, _| {
            put(&mut wish.embeddings, Ok(true))?;
            put(&mut wish.pooling, Ok(Some(Pooling::Rank)))
        }),
    value(&["--api-key"]).env("LLAMA_API_KEY").does(FlagClass::Router),
    value(&["--api-key-file"])
        .env("LLAMA_ARG_API_KEY_FILE")
        .does(FlagClass::Router),
    value(&["--ssl-key-file"])
        .env("LLAMA_ARG_SSL_KEY_FILE")
        .does(FlagClass::Router),
    value(&["--ssl-cert-file"])
        .env("LLAMA_ARG_SSL_CERT_FILE")
        .does(FlagClass::Router),
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
    // Options of llama-server's own router, which Plimsoll replaces.
    value(&["--models-dir"])
        .env("LLAMA_ARG_MODELS_DIR")
        .does(FlagClass::Router),
    value(&["--models-preset"])
        .env("LLAMA_ARG_MODELS_PRESET")
        .does(FlagClass::Router),
    number(&["--models-max"])
        .env("LLAMA_ARG_MODELS_MAX")
        .does(FlagClass::Router),
    switch(&["--models-autoload"], &["--no-models-autoload"])
        .env("LLAMA_ARG_MODELS_AUTOLOAD")
        .does(FlagClass::Router),
    // Chat templates and reasoning: text only.
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
    // Logging.
    bare(&["--log-disable"]),
    value(&["--log-file"]).env("LLAMA_ARG_LOG_FILE"),
    value(&["--log-prompts-dir"]),
    value(&["--log-colors"]).env("LLAMA_ARG_LOG_COLORS"),
    bare(&["-v", "--verbose", "--log-verbose"]),
    bare(&["--offline"]).env("LLAMA_ARG_OFFLINE"),
    number(&["-lv", "--verbosity", "--log-verbosity"]).env("LLAMA_ARG_LOG_VERBOSITY"),
    switch(&["--log-prefix"], &["--no-log-prefix"]).env("LLAMA_ARG_LOG_PREFIX"),
    switch(&["--log-timestamps"], &["--no-log-timestamps"]).env("LLAMA_ARG_LOG_TIMESTAMPS"),
    // Speculative decoding: the draft model has a cache and a compute buffer of its own.
    value(&["--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_HF_REPO")
        .does(FlagClass::DraftRemote)
        .sets(|wish, given| put(&mut wish.draft_remote, given.text().map(Some))),
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
        .sets(|wish, given| put(&mut wish.draft_cache_key, given.cache_type())),
    value(&["--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V")
        .sets(|wish, given| put(&mut wish.draft_cache_value, given.cache_type())),
    value(&["--spec-draft-override-tensor", "-otd", "--override-tensor-draft"])
        .does(FlagClass::DraftOverrides)
        .sets(|wish, given| add(&mut wish.draft_overrides, given.overrides())),
    bare(&["--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_CPU_MOE")
        .sets(|wish, _| put(&mut wish.draft_experts_on_host, Ok(u32::MAX))),
    number(&[
        "--spec-draft-n-cpu-moe",
        "--spec-draft-ncmoe",
        "-ncmoed",
        "--n-cpu-moe-draft",
    ])
    .env("LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE")
    .sets(|wish, given| raise(&mut wish.draft_experts_on_host, given.natural())),
    number(&["--spec-draft-n-max"])
        .env("LLAMA_ARG_SPEC_DRAFT_N_MAX")
        .sets(|wish, given| put(&mut wish.draft_tokens, given.natural())),
    number(&["--spec-draft-n-min"]).env("LLAMA_ARG_SPEC_DRAFT_N_MIN"),
    value(&["--spec-draft-p-split", "--draft-p-split"]).env("LLAMA_ARG_SPEC_DRAFT_P_SPLIT"),
    value(&["--spec-draft-p-min", "--draft-p-min"]).env("LLAMA_ARG_SPEC_DRAFT_P_MIN"),
    switch(
        &["--spec-draft-backend-sampling"],
        &["--no-spec-draft-backend-sampling"],
    )
    .env("LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING"),
    value(&["--spec-draft-device", "-devd", "--device-draft"])
        .does(FlagClass::DraftDevices)
        .sets(|wish, given| put(&mut wish.draft_devices, given.names())),
    value(&[
        "--spec-draft-ngl",
        "-ngld",
        "--gpu-layers-draft",
        "--n-gpu-layers-draft",
    ])
    .env("LLAMA_ARG_N_GPU_LAYERS_DRAFT")
    .sets(|wish, given| put(&mut wish.draft_gpu_layers, given.layers())),
    value(&["--spec-draft-model", "-md", "--model-draft"])
        .env("LLAMA_ARG_SPEC_DRAFT_MODEL")
        .does(FlagClass::Draft)
        .sets(|wish, given| put(&mut wish.draft_model, given.text().map(Some))),
    value(&["--spec-type"])
        .env("LLAMA_ARG_SPEC_TYPE")
        .does(FlagClass::Speculation)
        .sets(|wish, given| add(&mut wish.speculation, given.speculation())),
    // N-gram drafts reuse tokens of the prompt: no model, no memory on a card.
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
    // Removed spellings that b10605 still knows, to refuse them with advice.
    number(&["--draft", "--draft-n", "--draft-max"])
        .env("LLAMA_ARG_DRAFT_MAX")
        .sets(|wish, given| put(&mut wish.draft_tokens, given.natural()))
        .removed("use --spec-draft-n-max or --spec-ngram-mod-n-max"),
    number(&["--draft-min", "--draft-n-min"])
        .env("LLAMA_ARG_DRAFT_MIN")
        .removed("use --spec-draft-n-min or --spec-ngram-mod-n-min"),
    number(&["--spec-ngram-size-n"]).removed("use the --spec-ngram-*-size-n of the method"),
    number(&["--spec-ngram-size-m"]).removed("use the --spec-ngram-*-size-m of the method"),
    number(&["--spec-ngram-min-hits"]).removed("use the --spec-ngram-*-min-hits of the method"),
    // Bundles; `wish/bundle.rs` has their models and sizes.
    bundle(&["--embd-gemma-default"]),
    bundle(&["--fim-qwen-1.5b-default"]),
    bundle(&["--fim-qwen-3b-default"]),
    bundle(&["--fim-qwen-7b-default"]),
    bundle(&["--fim-qwen-7b-spec"]),
    bundle(&["--fim-qwen-14b-spec"]),
    bundle(&["--fim-qwen-30b-default"]),
    bundle(&["--gpt-oss-20b-default"]),
    bundle(&["--gpt-oss-120b-default"]),
    bundle(&["--vision-gemma-4b-default"]),
    bundle(&["--vision-gemma-12b-default"]),
    bare(&["--spec-default"]),
    // Keys of the preset INI that are no flags.
    value(&["load-on-startup"])
        .env("__PRESET_LOAD_ON_STARTUP")
        .preset_only(),
    value(&["stop-timeout"])
        .env("__PRESET_STOP_TIMEOUT")
        .preset_only(),
    value(&["dedup-cache-models"])
        .env("__PRESET_DEDUP_CACHE_MODELS")
        .preset_only(),
    // Gone from llama-server by b10605.
    number(&["-cd", "--ctx-size-draft"])
        .env("LLAMA_ARG_CTX_SIZE_DRAFT")
        .sets(|wish, given| put(&mut wish.draft_context, given.natural()))
        .removed("the draft model takes the context of the main model"),
    bare(&["-nfa", "--no-flash-attn"])
        .sets(|wish, _| put(&mut wish.flash_attention, Ok(FlashAttention::Off)))
        .removed("use --flash-attn off"),
    two_values(&["--spec-replace"]).removed("vocabularies are matched without it"),
    number(&["-gan", "--grp-attn-n"]).removed("self-extend is no longer offered"),
    number(&["-gaw", "--grp-attn-w"]).removed("self-extend is no longer offered"),
    // ik_llama.cpp's own.
    number(&["-mla", "--mla-use"])
        .sets(|wish, given| put(&mut wish.latent_attention, given.natural().map(Some)))
        .ik(),
    number(&["-amb", "--attention-max-batch"])
        .sets(|wish, given| put(&mut wish.attention_buffer, given.mebibytes().map(Some)))
        .ik(),
    bare(&["-fmoe", "--fused-moe"])
        .sets(|wish, _| put(&mut wish.fused_experts, Ok(Some(true))))
        .ik(),
    bare(&["-no-fmoe", "--no-fused-moe"])
        .sets(|wish, _| put(&mut wish.fused_experts, Ok(Some(false))))
        .ik(),
    bare(&["-ger", "--grouped-expert-routing"]).ik(),
    bare(&["-rtr", "--run-time-repack"])
        .sets(|wish, _| {
            // Weights that are copied into another order can no longer be mapped from the file.
            put(&mut wish.mmap, Ok(false))?;
            put(&mut wish.repack, Ok(true))
        })
        .ik(),
    value(&["-ser", "--smart-expert-reduction"]).ik(),
];
