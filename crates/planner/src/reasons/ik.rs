//! Explanation of planned memory for flags that only ik_llama.cpp has, with a note on how certain the figures
//! are.

use plimsoll_base::Reason;
use plimsoll_flags::FlashAttention;

use crate::cost::{PlanCalculator, RequestCost};
use crate::latent::LatentAttention;
use crate::request::{EngineKind, PlanRequest};

pub(super) fn caveats(
    request: &PlanRequest<'_>,
    calculator: &PlanCalculator<'_>,
    cost: &RequestCost,
) -> Vec<Reason> {
    if request.engine.kind != EngineKind::IkLlamaCpp {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    if let Some(latent) = calculator.latent() {
        reasons.push(estimated(request, &latent, cost));
        let computed = latent.computed_bytes(request.model);
        if !computed.is_zero() {
            let text = format!(
                "at load, the engine computes the latent attention (MLA) matrices that the model file does \
                not contain; the plan counts these {computed} as weights"
            );
            reasons.push(Reason::new("weights_computed", text).fact("bytes", computed));
        }
    }
    // -rtr repacks in place, so mapped pages become private memory.
    let host = cost.host.weights.known();
    if request.wish.repack && !host.is_zero() {
        let text = format!(
            "-rtr repacks the weights in host memory, so the engine allocates their {host} instead of \
                reading them from the page cache"
        );
        reasons.push(Reason::new("weights_repacked", text).fact("bytes", host));
    }
    reasons
}

fn estimated(request: &PlanRequest<'_>, latent: &LatentAttention, cost: &RequestCost) -> Reason {
    let wish = request.wish;
    let heads = request.model.hyper.heads.at(0);
    let flash = wish.flash_attention != FlashAttention::Off;
    let (reserve, mode) = (&cost.reserve, latent.mode);
    let at_once = match latent.restores(flash, reserve.tokens) {
        true => latent.heads_a_pass(heads, reserve.per_sequence),
        false if flash => u64::from(heads),
        false => latent.heads_a_step(heads, reserve.tokens, reserve.per_sequence),
    };
    let mut text = format!(
        "the plan assumes -mla {mode} and {at_once} of {heads} attention heads computed at once, as in \
            ik_llama.cpp of 2026-08; builds before 2026-01 need more memory with -amb"
    );
    // Defaults of both flags changed between builds.
    if wish.latent_attention.is_none() || wish.attention_buffer.is_none() {
        text += "; older builds have other defaults, so set -mla and -amb explicitly";
    }
    Reason::new("latent_attention", text).fact("mla", u64::from(mode)).fact("heads_at_once", at_once)
}
