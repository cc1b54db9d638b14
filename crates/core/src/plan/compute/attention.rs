//! The attention half of a layer: grouped-query and latent (MLA), with and without flash attention.
//!
//! Mirrors `llama-graph.cpp: build_qkv, build_attn, build_attn_mha`, `llama-kv-cache.cpp: get_k, get_v, cpy_k,
//! cpy_v`, `models/deepseek2.cpp` and `fattn-common.cuh: ggml_cuda_flash_attn_ext_get_f16_extra_data @ b10605`.

use super::decoder::{Decoder, WEIGHT};
use super::graph::{F16, F32, Id, Kind};
use super::inputs::CacheInputs;
use super::sketch::{Block, shares_cache};
use crate::bytes::Bytes;
use crate::model::TensorType;
use crate::plan::layout::Place;
use crate::plan::{flash, kv, weights};

/// Queries, keys and values of the batch, `[head, heads, tokens]`.
struct Projections {
    query: Id,
    key: Id,
    value: Id,
    /// `attn_v_b`, with which MLA turns latent vectors back into values.
    decompress: Option<Id>,
    /// What scales the result, where queries come with as many gates.
    gate: Option<Id>,
}

/// The cache of a layer as attention reads it.
struct CacheViews {
    key: Id,
    value: Id,
    /// Length of a head's value.
    width: u64,
    /// Bytes of the f16 copies of K and V that the kernel wants behind its result.
    copies: [u64; 2],
}

impl Decoder<'_> {
    pub(super) fn attention(&mut self, block: &Block<'_>, input: Id) -> Id {
        let latent = self.cache.latent;
        if let Some(attended) = latent.and_then(|latent| self.latent_attention(block, input, &latent)) {
            return attended;
        }
        let Some(projections) = self.projections(block, input) else {
            return self.linear(block, "attn_output", input).unwrap_or(input);
        };
        let gate = projections.gate;
        let mut attended = self.attend(block, projections);
        if let Some(gate) = gate {
            attended = self.gated(attended, gate);
        }
        self.linear(block, "attn_output", attended).unwrap_or(attended)
    }

    fn projections(&mut self, block: &Block<'_>, input: Id) -> Option<Projections> {
        if self.sketch.model.hyper.mla.is_some() && block.has("attn_kv_a_mqa.weight") {
            return self.latent(block, input);
        }
        let hyper = &self.sketch.model.hyper;
        let (heads, heads_kv) = (
            u64::from(hyper.heads.at(block.layer)).max(1),
            u64::from(hyper.heads_kv.at(block.layer)).max(1),
        );
        let key_length = hyper.key_row(block.layer) / heads_kv;
        let value_length = hyper.value_row(block.layer) / heads_kv;
        let tokens = self.tokens;
        let shapes = [
            [key_length, heads, tokens, 1],
            [key_length, heads_kv, tokens, 1],
            [value_length, heads_kv, tokens, 1],
        ];
        let mut gate = None;
        let [query, key, value] = match self.linear(block, "attn_qkv", input) {
            Some(fused) => shapes.map(|shape| self.graph.view(fused, shape)),
            None => {
                let query = self.linear(block, "attn_q", input)?;
                let width = key_length.saturating_mul(heads);
                if self.graph.shape(query)[0] == width.saturating_mul(2) {
                    let both = [key_length.saturating_mul(2), heads, tokens, 1];
                    let both = self.graph.view(query, both);
                    gate = Some(self.graph.slice(both, shapes[0]));
                }
                let query = self.wide_norm(block, "attn_q_norm", query);
                let key = self
                    .linear(block, "attn_k", input)
                    .map(|key| self.wide_norm(block, "attn_k_norm", key));
                let key = key.unwrap_or(query);
                let value = self.linear(block, "attn_v", input).unwrap_or(key);
                [(query, shapes[0]), (key, shapes[1]), (value, shapes[2])]
                    .map(|(id, shape)| self.graph.view(id, shape))
            }
        };
        let query = self.head_norm(block, "attn_q_norm", query);
        let query = self.rotate(block, query);
        let key = self.head_norm(block, "attn_k_norm", key);
        let key = self.rotate(block, key);
        let value = match self.form.norms_values {
            true => self.graph.in_place(&[value]),
            false => value,
        };
        Some(Projections {
            query,
            key,
            value,
            decompress: None,
            gate,
        })
    }

    /// `models/qwen3next.cpp: build_layer_attn @ b10605`.
    fn gated(&mut self, attended: Id, gate: Id) -> Id {
        let shape = self.graph.shape(attended);
        let gate = self.graph.own(F32, shape, &[gate]);
        let mut gate = self.graph.in_place(&[gate]);
        if self.form.views_gates {
            gate = self.graph.view(gate, shape);
        }
        self.graph.in_place(&[attended, gate])
    }

    /// A norm over all heads together (OLMo 2).
    fn wide_norm(&mut self, block: &Block<'_>, role: &str, of: Id) -> Id {
        let width = self.graph.shape(of)[0];
        match block.part(role, WEIGHT) {
            Some((norm, _)) if norm.shape[0] == width => self.norm(block, role, of),
            _ => of,
        }
    }

    /// A norm over each head (Qwen 3).
    fn head_norm(&mut self, block: &Block<'_>, role: &str, of: Id) -> Id {
        let length = self.graph.shape(of)[0];
        match block.part(role, WEIGHT) {
            Some((norm, _)) if norm.shape[0] == length => self.norm(block, role, of),
            _ => of,
        }
    }

    pub(super) fn rotate(&mut self, block: &Block<'_>, of: Id) -> Id {
        if self.sketch.model.hyper.rope_dimension == 0 {
            return of;
        }
        let positions = self.inputs.positions;
        match self.rope_factors(block.place) {
            Some(factors) => self.graph.rope(&[of, positions, factors]),
            None => self.graph.rope(&[of, positions]),
        }
    }

    /// Latent attention with the key matrix absorbed into the query.
    fn latent(&mut self, block: &Block<'_>, input: Id) -> Option<Projections> {
        let hyper = &self.sketch.model.hyper;
        let mla = hyper.mla.as_ref()?;
        let (rank, rope, length) = (
            u64::from(mla.kv_lora_rank),
            u64::from(mla.rope_dimension),
            u64::from(mla.key_length),
        );
        let (heads, tokens) = (u64::from(hyper.heads.at(block.layer)).max(1), self.tokens);
        let query = match self.linear(block, "attn_q_a", input) {
            Some(low) => {
                let low = self.norm(block, "attn_q_a_norm", low);
                self.linear(block, "attn_q_b", low)?
            }
            None => self.linear(block, "attn_q", input)?,
        };
        let query = self.graph.view(query, [length, heads, tokens, 1]);
        let compressed = self.linear(block, "attn_kv_a_mqa", input)?;
        let latent = self.graph.view(compressed, [rank, tokens, 1, 1]);
        let rotary_key = self.graph.view(compressed, [rope, 1, tokens, 1]);
        let rotary_key = self.rotate(block, rotary_key);
        let latent = self.norm(block, "attn_kv_a_norm", latent);
        let plain_query = self
            .graph
            .view(query, [length.saturating_sub(rope), tokens, heads, 1]);
        let rotary_query = self.graph.view(query, [rope, heads, tokens, 1]);
        let rotary_query = self.rotate(block, rotary_query);
        let absorb = self.weight(block, "attn_k_b.weight")?;
        let absorbed = self.graph.multiply(absorb, plain_query);
        let absorbed = self.graph.view(absorbed, [rank, heads, tokens, 1]);
        let query = self
            .graph
            .own(F32, [rank + rope, heads, tokens, 1], &[absorbed, rotary_query]);
        let value = self.graph.view(latent, [rank, 1, tokens, 1]);
        let key = self
            .graph
            .own(F32, [rank + rope, 1, tokens, 1], &[value, rotary_key]);
        Some(Projections {
            query,
            key,
            value,
            decompress: self.weight(block, "attn_v_b.weight"),
            gate: None,
        })
    }

    fn attend(&mut self, block: &Block<'_>, mut p: Projections) -> Id {
        let slides = self.sketch.model.hyper.slides(block.layer);
        let inputs = if slides {
            self.inputs.sliding
        } else {
            self.inputs.full
        };
        if let Some(rotation) = inputs.key_rotation {
            p.query = self.hadamard(p.query, rotation);
            p.key = self.hadamard(p.key, rotation);
        }
        if let Some(rotation) = inputs.value_rotation {
            p.value = self.hadamard(p.value, rotation);
        }
        let hyper = &self.sketch.model.hyper;
        let order = if shares_cache(hyper, block.layer) {
            [p.query; 3]
        } else if hyper.sliding.is_some() || !hyper.cached {
            [p.query, p.key, p.value]
        } else {
            [p.query, p.value, p.key]
        };
        for id in order {
            self.graph.expand(id);
        }
        let views = if self.sketch.model.hyper.cached {
            self.cache_views(block, &p, &inputs)
        } else {
            self.batch_views(&p)
        };
        let mut attended = self.attention_core(block, &p, &views, inputs.mask);
        self.graph.expand(attended);
        if let Some(rotation) = inputs.value_rotation {
            attended = self.hadamard(attended, rotation);
        }
        attended
    }

    /// `llama_mul_mat_hadamard`.
    fn hadamard(&mut self, of: Id, rotation: Id) -> Id {
        let shape = self.graph.shape(of);
        let side = self.graph.shape(rotation)[0].max(1);
        let elements = shape.iter().fold(1, |all: u64, &n| all.saturating_mul(n));
        let rows = self.graph.view(of, [side, elements / side, 1, 1]);
        let rotated = self.graph.multiply(rotation, rows);
        self.graph.view(rotated, shape)
    }

    /// Stores the batch in the cache and looks at all of it.
    fn cache_views(&mut self, block: &Block<'_>, p: &Projections, inputs: &CacheInputs) -> CacheViews {
        let hyper = &self.sketch.model.hyper;
        let place = if self.cache.offload {
            self.sketch.cache_place(block)
        } else {
            Place::Host
        };
        let cells = kv::cells(hyper, block.layer, self.reserve);
        let streams = self.reserve.streams;
        let (key_row, value_row) = (hyper.key_row(block.layer), hyper.value_row(block.layer));
        let heads_kv = u64::from(hyper.heads_kv.at(block.layer)).max(1);
        let latent = hyper.mla.as_ref().map(|mla| u64::from(mla.kv_lora_rank));
        let caches = hyper.caches(block.layer);
        let tokens = self.tokens;
        let rows = cells.saturating_mul(streams);

        let key_cache = self.cache_tensor(self.cache.key, key_row, rows, place);
        let value_cache = match latent {
            Some(_) => key_cache,
            None => self.cache_tensor(self.cache.value, value_row, rows, place),
        };
        if caches {
            let flat = self.graph.view(p.key, [key_row, tokens, 1, 1]);
            let store = self.graph.store(flat, inputs.key_rows, key_cache);
            self.graph.expand(store);
            if latent.is_none() {
                let shape = if self.cache.transposed {
                    [1, value_row.saturating_mul(tokens), 1, 1]
                } else {
                    [value_row, tokens, 1, 1]
                };
                let flat = self.graph.view(p.value, shape);
                let store = self.graph.store(flat, inputs.value_rows, value_cache);
                self.graph.expand(store);
            }
        }
        let value_width = latent.unwrap_or(value_row / heads_kv);
        let key_bytes = self.graph.node(key_cache).bytes;
        let value_bytes = self.graph.node(value_cache).bytes;
        let key = self.graph.cache_view(
            key_cache,
            [key_row / heads_kv, cells, heads_kv, streams],
            key_bytes,
        );
        let value_shape = if self.cache.transposed {
            [cells, value_width, heads_kv, streams]
        } else {
            [value_width, cells, heads_kv, streams]
        };
        let value = self.graph.cache_view(value_cache, value_shape, value_bytes);
        // An F32 cache is cast before attention sees it.
        let copy = |kind: TensorType, row: u64| match kind.name {
            "f16" | "f32" => 0,
            _ => (Bytes::new(F16) * row * rows).get(),
        };
        let copied_value = if latent.is_some() {
            0
        } else {
            copy(self.cache.value, value_row)
        };
        CacheViews {
            key,
            value,
            width: value_width,
            copies: [copy(self.cache.key, key_row), copied_value],
        }
    }

    /// Room behind a result of `bytes` for the f16 copies.
    fn scratch(&self, bytes: u64, copies: [u64; 2]) -> u64 {
        if !self.habits.copies_cache {
            return 0;
        }
        let wanted = copies.into_iter().filter(|&copy| copy > 0);
        let end = wanted.fold(Bytes::new(bytes), |end, copy| {
            end.padded(weights::CARD_ALIGNMENT) + Bytes::new(copy)
        });
        end.get().saturating_sub(bytes)
    }

    pub(super) fn cache_tensor(&mut self, kind: TensorType, row: u64, rows: u64, place: Place) -> Id {
        let bytes = (kind.row(row).unwrap_or_default() * rows).get();
        self.graph.stored(Kind::Cache(place), bytes, 0, [row, rows, 1, 1])
    }

    /// Encoders attend to the batch itself.
    fn batch_views(&mut self, p: &Projections) -> CacheViews {
        let [key_length, heads, tokens, _] = self.graph.shape(p.key);
        let value_length = self.graph.shape(p.value)[0];
        let mut key = self.graph.view(p.key, [key_length, tokens, heads, 1]);
        let mut value = self.graph.view(p.value, [value_length, tokens, heads, 1]);
        if self.flash.on {
            key = self.graph.own(F16, [key_length, tokens, heads, 1], &[key]);
            value = self.graph.own(F16, [value_length, tokens, heads, 1], &[value]);
        } else {
            let turned = self.graph.view(value, [tokens, value_length, heads, 1]);
            value = self.graph.own(F32, [tokens, value_length, heads, 1], &[turned]);
        }
        CacheViews {
            key,
            value,
            width: value_length,
            copies: [0, 0],
        }
    }

    /// `build_attn_mha`.
    fn attention_core(&mut self, block: &Block<'_>, p: &Projections, views: &CacheViews, mask: Id) -> Id {
        let streams = self.graph.shape(views.key)[3];
        let [length, heads, tokens, _] = self.graph.shape(p.query);
        let each = tokens / streams.max(1);
        let query = self.graph.view(p.query, [length, heads, each, streams]);
        let query = self.graph.view(query, [length, each, heads, streams]);
        let sinks = self.weight(block, "attn_sinks.weight");
        if self.flash.on {
            self.flash_attention(
                block,
                p,
                views,
                [views.width, heads, each, streams],
                [query, mask],
                sinks,
            )
        } else {
            self.plain_attention(
                p,
                views,
                [views.width, heads, each, streams],
                [query, mask],
                sinks,
            )
        }
    }

    fn flash_attention(
        &mut self,
        block: &Block<'_>,
        p: &Projections,
        views: &CacheViews,
        [width, heads, each, streams]: [u64; 4],
        [query, mask]: [Id; 2],
        sinks: Option<Id>,
    ) -> Id {
        let (key, value) = (
            self.as_f16(views.key, self.cache.key),
            self.as_f16(views.value, self.cache.value),
        );
        let mask = self.cast_mask(mask);
        let mut sources = vec![query, key, value, mask];
        sources.extend(sinks);
        let bytes = [width, heads, each, streams]
            .into_iter()
            .fold(F32, u64::saturating_mul);
        let scratch = self.scratch(bytes, views.copies);
        let attended = self
            .graph
            .attention([width, heads, each, streams], scratch, &sources);
        self.attention_nodes.push((attended, block.place));
        let types = [self.cache.key, self.cache.value];
        if self.flash.missing.is_some()
            && flash::unsupported(&self.sketch.model.hyper, block.layer, types).is_some()
        {
            self.graph.keep_on_host(attended);
        }
        let Some(decompress) = p.decompress else {
            return self.graph.view(
                attended,
                [width.saturating_mul(heads), each.saturating_mul(streams), 1, 1],
            );
        };
        let turned = self.graph.view(attended, [width, each, heads, streams]);
        let values = self.graph.multiply(decompress, turned);
        self.merge_heads(values)
    }

    /// The copy is made where it is first used, and stays for all layers (`llama-graph.cpp: build_attn_inp_kv_impl @ b8799`).
    fn cast_mask(&mut self, mask: Id) -> Id {
        if !self.habits.casts_mask {
            return mask;
        }
        if let Some((_, copy)) = self.masks.iter().find(|(of, _)| *of == mask) {
            return *copy;
        }
        let copy = self.graph.own(F16, self.graph.shape(mask), &[mask]);
        self.masks.push((mask, copy));
        copy
    }

    /// Flash attention reads f16; an F32 cache is cast in a tensor of its own.
    fn as_f16(&mut self, id: Id, kind: TensorType) -> Id {
        if kind.name != "f32" || !self.sketch.model.hyper.cached {
            return id;
        }
        let shape = self.graph.shape(id);
        self.graph.own(F16, shape, &[id])
    }

    fn plain_attention(
        &mut self,
        p: &Projections,
        views: &CacheViews,
        [width, heads, each, streams]: [u64; 4],
        [query, mask]: [Id; 2],
        sinks: Option<Id>,
    ) -> Id {
        let cells = self.graph.shape(views.key)[1];
        let scores = self
            .graph
            .own(F32, [cells, each, heads, streams], &[views.key, query]);
        let mut sources = vec![scores, mask];
        sources.extend(sinks);
        let odds = self.graph.in_place(&sources);
        let turned = self.turned_values(views, width);
        let values = self
            .graph
            .own(F32, [width, each, heads, streams], &[turned, odds]);
        let values = match p.decompress {
            Some(decompress) => self.graph.multiply(decompress, values),
            None => values,
        };
        self.merge_heads(values)
    }

    /// A cache that was not stored for this is turned over first.
    fn turned_values(&mut self, views: &CacheViews, width: u64) -> Id {
        if self.cache.transposed || !self.sketch.model.hyper.cached {
            return views.value;
        }
        let element = self.cache.value.row(width).unwrap_or_default().get() / width.max(1);
        let [_, cells, heads, streams] = self.graph.shape(views.key);
        let view = self.graph.view(views.value, [cells, width, heads, streams]);
        self.graph.own(element, [cells, width, heads, streams], &[view])
    }

    /// `[width, tokens, heads]` → `[width * heads, tokens]`, which needs a copy.
    fn merge_heads(&mut self, values: Id) -> Id {
        let [width, each, heads, streams] = self.graph.shape(values);
        let turned = self.graph.view(values, [width, heads, each, streams]);
        self.graph.own(
            F32,
            [width.saturating_mul(heads), each.saturating_mul(streams), 1, 1],
            &[turned],
        )
    }
}
