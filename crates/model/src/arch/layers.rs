//! Finds the layers of a model with a sliding window, with a recurrent state, or with an index key (sparse
//! attention).

use super::keys::ArchKeys;
use super::{Indexing, LayerPattern, Recurring, Traits, WindowPattern};
use crate::{HyperParameters, Indexer, ModelError, PerLayer, Recurrent, SlidingWindow};

const WINDOW: &str = "attention.sliding_window";
const PATTERN: &str = "attention.sliding_window_pattern";

/// The recurrent layers and the sizes of their states. Needs heads and feed-forward.
pub(super) fn recurrent(
    keys: &ArchKeys<'_, '_>,
    traits: &Traits,
    hyper: &HyperParameters,
) -> Result<Option<Recurrent>, ModelError> {
    let Some(recurring) = traits.recurring else {
        return Ok(None);
    };
    // Next-token-prediction layers attend with a cache of their own; patterns cover the trunk only.
    let trunk = hyper.layers - hyper.nextn_layers;
    let among = |recurs: &dyn Fn(u32) -> bool| PerLayer::Each((0..trunk).map(recurs).collect());
    let layers = match recurring {
        Recurring::All | Recurring::AllAlongsideAttention => PerLayer::Same(true),
        Recurring::WithoutHeads => among(&|layer| hyper.heads_kv.at(layer) == 0),
        Recurring::WithoutHeadsAndFeedForward => {
            among(&|layer| hyper.heads_kv.at(layer) == 0 && hyper.feed_forward.at(layer) == 0)
        }
        Recurring::ListedOrAllBut(n) => {
            match keys.per_layer_flag("attention.recurrent_layers", hyper.layers)? {
                Some(layers) => layers,
                None => {
                    // Qwen3-Next states no list but a period; a period of 0 would divide by zero.
                    let interval = keys.number("full_attention_interval")?.unwrap_or(n).max(1);
                    among(&|layer| !(layer + 1).is_multiple_of(interval))
                }
            }
        }
    };
    let (rolling, state) = states(keys, traits, hyper)?;
    let attends = recurring == Recurring::AllAlongsideAttention;
    Ok(Some(Recurrent {
        layers,
        rolling,
        state,
        attends,
        bare_norms: keys.flag("ssm.dt_b_c_rms")?.unwrap_or(false),
        rolls_back: traits.rolls_back,
    }))
}

/// `n_embd_r` and `n_embd_s`. Mirrors `llama-hparams.cpp: n_embd_r, n_embd_s @ b10605`, in the same order of
/// cases.
fn states(
    keys: &ArchKeys<'_, '_>,
    traits: &Traits,
    hyper: &HyperParameters,
) -> Result<(u64, u64), ModelError> {
    let number = |name| keys.number_or_0(name).map(u64::from);
    let embedding = u64::from(hyper.embedding);
    let heads = u64::from(hyper.heads.at(0));
    let conv = number("ssm.conv_kernel")?;

    let wkv_head = number("wkv.head_size")?;
    if wkv_head > 0 {
        // RWKV 6 and 7 shift twice per layer unless the file says otherwise.
        let shifts = keys.number("token_shift_count")?.map_or(2, u64::from);
        return Ok((shifts.saturating_mul(embedding), embedding.saturating_mul(wkv_head)));
    }
    let inner = number("ssm.inner_size")?;
    let state = number("ssm.state_size")?;
    let groups = number("ssm.group_count")?;
    // Mamba 2 convolves B and C of each group together with x.
    let convolved = inner.saturating_add(groups.saturating_mul(state).saturating_mul(2));
    let scan = (conv.saturating_sub(1).saturating_mul(convolved), state.saturating_mul(inner));

    let kda_head = number("kda.head_dim")?;
    if kda_head > 0 {
        // Without the key llama.cpp assumes a kernel of 4 taps, of which 3 are state.
        let taps = if conv > 0 { conv - 1 } else { 3 };
        let wide = heads.saturating_mul(kda_head);
        return Ok((wide.saturating_mul(3).saturating_mul(taps), wide.saturating_mul(kda_head)));
    }
    let short_conv = number("shortconv.l_cache")?;
    if short_conv > 0 {
        return Ok((embedding.saturating_mul(short_conv - 1), scan.1));
    }
    if traits.lightning {
        let head = u64::from(hyper.key_length);
        return Ok((scan.0, head.saturating_mul(head).saturating_mul(heads)));
    }
    Ok(scan)
}

/// The sliding layers and the width of their window. Needs the recurrent layers.
pub(super) fn sliding(
    keys: &ArchKeys<'_, '_>,
    traits: &Traits,
    hyper: &HyperParameters,
) -> Result<Option<SlidingWindow>, ModelError> {
    let Some((pattern, window)) = traits.sliding else {
        return Ok(None);
    };
    let trunk = hyper.layers - hyper.nextn_layers;
    let stated = keys.number(WINDOW)?;
    let window = match window {
        WindowPattern::Stated => stated.unwrap_or(0),
        WindowPattern::StatedOr(window) => stated.unwrap_or(window),
        WindowPattern::FixedIfStated(window) => {
            stated.map_or(0, |stated| if stated > 0 { window } else { 0 })
        }
        WindowPattern::FixedUnlessZero(window) => {
            stated.map_or(window, |stated| if stated > 0 { window } else { 0 })
        }
        WindowPattern::OnlyWithLayers { window, layers } if layers == trunk => stated.unwrap_or(window),
        WindowPattern::OnlyWithLayers { .. } => 0,
    };
    // A window of 0 turns sliding off, as in llama.cpp: all layers keep full caches.
    if window == 0 {
        return Ok(None);
    }
    let layers = sliding_layers(keys, pattern, trunk, hyper)?;
    Ok(Some(SlidingWindow { window, layers }))
}

fn sliding_layers(
    keys: &ArchKeys<'_, '_>,
    pattern: LayerPattern,
    trunk: u32,
    hyper: &HyperParameters,
) -> Result<PerLayer<bool>, ModelError> {
    let listed = || {
        keys.per_layer_flag(PATTERN, hyper.layers)
            // Some files list the trunk's layers only.
            .or_else(|_| keys.per_layer_flag(PATTERN, trunk))
    };
    let every = |n: u32, full_first| -> Result<_, ModelError> {
        let period = keys.scalar(PATTERN)?.unwrap_or(n);
        Ok(periodic(period, full_first, trunk))
    };
    match pattern {
        LayerPattern::Every(n) => every(n, false),
        LayerPattern::EveryFullFirst(n) => every(n, true),
        LayerPattern::ListedOrEvery(_) | LayerPattern::ListedOrEveryFullFirst(_) if keys.is_list(PATTERN) => {
            Ok(listed()?.unwrap_or_default())
        }
        LayerPattern::ListedOrEvery(n) => every(n, false),
        LayerPattern::ListedOrEveryFullFirst(n) => every(n, true),
        LayerPattern::Listed => Ok(listed()?.unwrap_or_default()),
        LayerPattern::Attention => Ok(PerLayer::Each((0..trunk).map(|layer| !hyper.recurs(layer)).collect())),
    }
}

/// Mirrors `llama-hparams.cpp: set_swa_pattern @ b10605`: with a period of 0 all layers slide, with 1 none.
fn periodic(period: u32, full_first: bool, trunk: u32) -> PerLayer<bool> {
    let slides = |layer: u32| match layer.checked_rem(period) {
        None => true,
        Some(place) if full_first => place != 0,
        Some(place) => place < period - 1,
    };
    PerLayer::Each((0..trunk).map(slides).collect())
}

/// GLM-5.2 before its files listed them: the first two, then the first of each four.
/// `glm-dsa.cpp: GLM_5_2_DEFAULT_INDEXER_TYPES @ b10605`.
fn glm_5_2_layers(trunk: u32) -> PerLayer<bool> {
    PerLayer::Each((0..trunk).map(|layer| layer < 2 || (layer - 2).is_multiple_of(4)).collect())
}

/// The layers that keep an index key. `llama-model.cpp: create_memory @ b10605`.
pub(super) fn indexer(
    keys: &ArchKeys<'_, '_>,
    traits: &Traits,
    hyper: &HyperParameters,
) -> Result<Option<Indexer>, ModelError> {
    /// GLM-5 and 5.1 index every layer and do not say so; later ones have contexts of this length.
    const LISTED_FROM_CONTEXT: u32 = 1 << 20;
    let key_length = keys.number_or_0("attention.indexer.key_length")?;
    let Some(indexing) = traits.indexer.filter(|_| key_length > 0) else {
        return Ok(None);
    };
    let trunk = hyper.layers - hyper.nextn_layers;
    let from = |first: u32| PerLayer::Each((0..trunk).map(|layer| layer >= first).collect());
    let layers = match indexing {
        Indexing::All => from(0),
        Indexing::AfterLeadingDense => from(keys.number_or_0("leading_dense_block_count")?),
        Indexing::Listed => match keys.per_layer_flag("attention.indexer.types", trunk)? {
            Some(layers) => layers,
            // The only difference between the two generations that the header shows.
            None if hyper.context_train < LISTED_FROM_CONTEXT => from(0),
            None => glm_5_2_layers(trunk),
        },
    };
    Ok(Some(Indexer { key_length, layers }))
}
