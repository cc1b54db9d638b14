//! Explains a plan: for each card, how its memory adds up, and how certain the numbers are.

use plimsoll_base::{Bytes, Card, CardKind, Order, Reason, Source};
use plimsoll_flags::{FlashAttention, GpuLayers, Parallel, ProgramKind, SplitMode};

use crate::{
    EngineKind, LatentAttention, PlanCalculator, PlanPrice, PlanRequest, PlanTerm, Processor, RepackedBytes,
    RequestCost, Terms, calibration, margin,
};

/// Codes of reasons that put a verdict in doubt: the plan, or the engine, may do otherwise than the user
/// expects.
#[rustfmt::skip]
pub(super) const DOUBTS: [&str; 12] = [
    "attention_on_host", "flash_attention_off", "context_beyond_training", "compute_estimated",
    "formulas_off", "architecture_unknown", "projector_compute_unknown", "adapters_not_counted",
    "tensor_split_estimated", "rpc_not_counted", "no_cuda_card", "buffer_unknown",
];

pub(super) fn reasons(calculator: &PlanCalculator<'_>, cost: &RequestCost) -> Vec<Reason> {
    let request = calculator.request;
    let cards = request.cards.iter().zip(&cost.cards).enumerate();
    let on_card = cards.map(|(index, (card, terms))| on_card(request, card, terms, calculator.uses(index)));
    on_card.chain(caveats(calculator, cost)).collect()
}

fn on_card(request: &PlanRequest<'_>, card: &Card, terms: &Terms, used: bool) -> Reason {
    let need = terms.peak();
    let model = super::model_name(request);
    let needs = format!("{model} needs {need} on {}, where {} is free", card.id, card.free);
    let (code, text) = if need > card.free {
        let short = need.saturating_sub(card.free);
        ("does_not_fit", format!("{needs}: {short} too much"))
    } else if used || card.kind == CardKind::Host {
        ("fits", needs)
    } else {
        // The driver opens a context on every visible card, used or not.
        let text = format!("{model} has no layer on {}, but initialising the card takes {need}", card.id);
        ("not_used", text)
    };
    Reason::new(code, text)
        .fact("need", need)
        .fact("free", card.free)
        .fact("total", card.total)
        .because_all(term_reasons(terms))
}

/// The terms of a card, the largest first, without those of zero bytes.
fn term_reasons(terms: &Terms) -> Vec<Reason> {
    let mut named = vec![
        ("weights", "the weights", &terms.weights),
        ("kv", "the KV cache", &terms.kv),
        ("compute", "the compute buffer", &terms.compute),
        ("pool", "the run-time pool at full depth", &terms.pool),
        ("context", "the driver's context and modules", &terms.context),
    ];
    // An unknown term stays: it must not look like nothing.
    named.retain(|(_, _, term)| term.bytes.is_none_or(|bytes| !bytes.is_zero()));
    named.order_by_key(|(_, _, term)| std::cmp::Reverse(term.known()));
    let reason = |(code, what, term): (_, _, &PlanTerm)| {
        let reason = match term.bytes {
            Some(bytes) => Reason::new(code, format!("{what}: {bytes}")).fact("bytes", bytes),
            None => Reason::new(code, format!("{what}: not known")),
        };
        reason.fact("source", term.source.to_string())
    };
    named.into_iter().map(reason).collect()
}

/// Limits of the numbers, and deviations of the engine from the flags.
fn caveats(calculator: &PlanCalculator<'_>, cost: &RequestCost) -> Vec<Reason> {
    let request = calculator.request;
    let (model, params) = (request.model, request.params);
    let architecture = &model.architecture;
    let adapters = u64::try_from(params.adapters.len()).unwrap_or(u64::MAX);
    let estimated = format!(
        "the compute buffer is an estimate, because no formula covers architecture `{architecture}` with these flags; \
        `plimsoll plan --exact` gets the size from the engine itself"
    );
    let unknown = format!(
        "architecture `{architecture}` is unknown; the size of its cache is computed as for most architectures and may \
        be wrong"
    );
    let projector = "the plan includes the projector's weights, but not its compute buffer, whose size is unknown; \
        `plimsoll plan --exact` gets it from the engine itself";
    let more = "adapters (LoRA) take memory in addition to the weights; the plan does not include them";
    // `ggml-backend-meta.cpp` splits every matrix; its buffers have no mirror here.
    let split = "a split by tensors (-sm tensor) is planned as a split by layers, because no formula covers its buffers";
    let tensors = params.split_mode == SplitMode::Tensor;
    let notes = [
        attention(calculator),
        beyond_training(request, cost),
        // An estimate is marked, because its error has no bound.
        (!cost.sure).then(|| Reason::new("compute_estimated", estimated)),
        (!model.hyper.known).then(|| Reason::new("architecture_unknown", unknown)),
        request.projector.map(|_| Reason::new("projector_compute_unknown", projector)),
        (adapters > 0).then(|| Reason::new("adapters_not_counted", more).fact("adapters", adapters)),
    ];
    let mut reasons: Vec<Reason> = notes.into_iter().flatten().collect();
    reasons.extend(on_other_machines(request));
    reasons.extend(margin::stated(request, calculator.flash().on));
    reasons.extend(of_ik(calculator, cost));
    reasons.extend(prompt_cache(request));
    reasons.extend(repacked_by_cpu(calculator, cost));
    reasons.extend(tensors.then(|| Reason::new("tensor_split_estimated", split)));
    let assumed = |(index, card): &(usize, &Card)| {
        let computes = calculator.uses(*index) && card.kind == CardKind::Cuda;
        computes && !calibration::is_known(request, card)
    };
    reasons.extend(request.cards.iter().enumerate().filter(assumed).map(|(_, card)| {
        let what = format!("the size of the driver's context on {} is assumed, not measured", card.name);
        let how = if card.maker.is_nvidia() {
            "`plimsoll measure calibrate` measures it"
        } else {
            "it can be measured on NVIDIA's cards only"
        };
        Reason::new("context_assumed", format!("{what}; {how}"))
    }));
    reasons.extend(shrinking(request, cost));
    let context = cost.reserve.context;
    // Said only where the user gave a context: the model's own is always a whole number of steps.
    if params.context != 0 && u64::from(params.context) != context {
        let text = format!("the engine rounds the context of {} tokens to {context}", params.context);
        reasons.push(Reason::new("context_rounded", text).fact("tokens", context));
    }
    reasons
}

/// Devices of `--rpc`, to which the engine gives layers by memory that is known to it alone.
fn on_other_machines(request: &PlanRequest<'_>) -> Option<Reason> {
    let servers = &request.params.rpc_servers;
    let text = format!(
        "--rpc gives a part of the model to {}, whose memory is unknown here: the plan has the whole model \
            on this machine's cards; -dev and -ts say which part stays here",
        servers.join(", ")
    );
    (!servers.is_empty()).then(|| Reason::new("rpc_not_counted", text))
}

/// Settings that llama-server's own `--fit` may reduce where the plan does not fit.
fn shrinking(request: &PlanRequest<'_>, cost: &RequestCost) -> Option<Reason> {
    let params = request.params;
    // --fit changes only what the user left open (`common/fit.cpp: common_fit_params @ b10605`).
    let context = format!("-c (to no less than {})", params.fit_context);
    let open = match (params.gpu_layers == GpuLayers::Auto, params.context == 0) {
        (true, true) => format!("-ngl and {context}"),
        (true, false) => "-ngl".to_owned(),
        (false, true) => context,
        (false, false) => return None,
    };
    let text = format!(
        "--fit is on, so llama-server may reduce {open}; its own estimate omits the pool and the CUDA context"
    );
    let shrinks = params.fit && !PlanPrice::from(cost.clone()).fits(request.cards);
    shrinks.then(|| Reason::new("engine_may_shrink", text))
}

/// Flash attention that the engine computes on the host, or turns off.
fn attention(calculator: &PlanCalculator<'_>) -> Option<Reason> {
    let (params, flash) = (calculator.request.params, calculator.flash());
    let missing = flash.missing?;
    let on_host = format!("attention is computed on the CPU, which is slow: {missing}");
    let off = format!(
        "the engine will disable flash attention ({missing}), so the compute buffer will contain the whole KQ matrix"
    );
    let (code, mut text) =
        if flash.on { ("attention_on_host", on_host) } else { ("flash_attention_off", off) };
    // Nearly always `-ctk` given without `-ctv`, or the other way round.
    if params.cache_key != params.cache_value {
        let smaller = crate::hints::smaller_of(params.cache_key, params.cache_value).name;
        text += &format!("; give K and V the same type: -ctk {smaller} -ctv {smaller}");
    }
    Some(Reason::new(code, text))
}

/// A slot's context that is longer than any the model has seen, without a flag that stretches its positions.
fn beyond_training(request: &PlanRequest<'_>, cost: &RequestCost) -> Option<Reason> {
    let trained = u64::from(request.model.hyper.context_train);
    // Slots that the user counted share a unified cache, so that none of them reaches its end.
    let requested = match request.params.parallel {
        Parallel::Count(slots) => cost.reserve.context / u64::from(slots.max(1)),
        Parallel::Auto => cost.reserve.per_sequence,
    };
    // A header without the length says 0.
    let beyond = trained > 0 && requested > trained && !request.params.stretched;
    beyond.then(|| {
        let text = format!(
            "the model was trained for contexts of {trained} tokens, but {requested} are planned; beyond the \
            trained length, answers degrade and some engines cut the context"
        );
        Reason::new("context_beyond_training", text).fact("trained", trained).fact("context", requested)
    })
}

/// The server's cache of prompts in host memory, which is outside of the sum (llama.cpp#16391,
/// ik_llama.cpp#954).
fn prompt_cache(request: &PlanRequest<'_>) -> Option<Reason> {
    let limit = request.params.host_cache;
    let keeps = request.program == ProgramKind::LlamaServer && limit != Some(Bytes::ZERO);
    (keeps && !request.params.embeddings).then(|| {
        let limit = limit.map_or("all that it gets".to_owned(), |limit| format!("up to {limit}"));
        let text = format!(
            "llama-server (since October 2025) keeps the prompts of idle slots in host memory, which takes {limit} \
                beyond this plan; \
                `-cram MIB` sets the limit, and `-cram 0` turns it off"
        );
        Reason::new("prompt_cache_not_counted", text)
    })
}

/// Weights that llama.cpp's CPU backend copies, and their pages of the mapped file.
fn repacked_by_cpu(calculator: &PlanCalculator<'_>, cost: &RequestCost) -> Option<Reason> {
    let RepackedBytes { copies, sure, locked } = calculator.repacked();
    let (params, processor) = (calculator.request.params, calculator.request.processor);
    if copies.is_zero() || !matches!(cost.host.weights.source, Source::Formula(_)) {
        return None;
    }
    let with = match processor {
        Some(processor) => format!("the processor of this machine ({})", processor.words()),
        None => format!("a processor with {}, which is assumed", Processor::ASSUMED.words()),
    };
    // A build for any x86-64 or Arm may not use all that the processor has.
    let amount = if sure == copies {
        copies.to_string()
    } else if sure.is_zero() {
        format!("up to {copies}")
    } else {
        format!("{sure} to {copies}, as it is built,")
    };
    let copied = format!("llama-server copies {amount} of the weights into a layout for {with}");
    let alongside = match (params.mmap, locked.is_zero()) {
        (false, _) => "the plan counts them once, as they are read into that layout".to_owned(),
        (true, true) => {
            "the plan counts them once: the original pages are page cache, which the engine's RSS includes but the \
                kernel drops when memory is short"
                .to_owned()
        }
        (true, false) => format!("the plan counts {locked} of them twice, since the mapped file is locked"),
    };
    let text = format!("{copied}; {alongside}; `--no-repack` keeps the file's layout");
    Some(Reason::new("weights_repacked_by_cpu", text).fact("bytes", copies).fact("locked", locked))
}

/// Flags that only ik_llama.cpp has, with a note on how certain the figures are.
fn of_ik(calculator: &PlanCalculator<'_>, cost: &RequestCost) -> Vec<Reason> {
    let request = calculator.request;
    if request.engine.kind != EngineKind::IkLlamaCpp {
        return Vec::new();
    }
    let latent = calculator.latent();
    let computed = latent.map_or(Bytes::ZERO, |latent| latent.computed_bytes(request.model));
    let added = format!(
        "at load, the engine computes the latent attention (MLA) matrices that the model file does not contain; the plan \
        counts these {computed} as weights"
    );
    // -rtr repacks in place, so mapped pages become private memory.
    let host = cost.host.weights.known();
    let repacked = format!(
        "-rtr repacks the weights in host memory, so the engine allocates their {host} instead of reading them from the \
        page cache"
    );
    let (is_added, is_repacked) = (!computed.is_zero(), request.params.repack && !host.is_zero());
    let reasons = [
        latent.map(|latent| latent_estimated(request, &latent, cost)),
        is_added.then(|| Reason::new("weights_computed", added).fact("bytes", computed)),
        is_repacked.then(|| Reason::new("weights_repacked", repacked).fact("bytes", host)),
    ];
    reasons.into_iter().flatten().collect()
}

fn latent_estimated(request: &PlanRequest<'_>, latent: &LatentAttention, cost: &RequestCost) -> Reason {
    let params = request.params;
    let heads = u64::from(request.model.hyper.heads.at(0));
    let flash = params.flash_attention != FlashAttention::Off;
    let (reserve, mode) = (&cost.reserve, latent.mode);
    let at_once = if latent.restores(flash, reserve.tokens) {
        latent.heads_a_pass(heads, reserve.per_sequence)
    } else if flash {
        heads
    } else {
        latent.heads_a_step(heads, reserve.tokens, reserve.per_sequence)
    };
    let mut text = format!(
        "the plan assumes -mla {mode} and {at_once} of {heads} attention heads computed at once, as in \
            ik_llama.cpp of 2026-08; builds before 2026-01 need more memory with -amb"
    );
    // Defaults of both flags changed between builds.
    if params.latent_attention.is_none() || params.attention_buffer.is_none() {
        text += "; older builds have other defaults, so set -mla and -amb explicitly";
    }
    Reason::new("latent_attention", text).fact("mla", u64::from(mode)).fact("heads_at_once", at_once)
}
