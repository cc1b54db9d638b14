//! Places layers and tensors on cards and the host, as llama.cpp does.
//!
//! The code mirrors `llama-model.cpp: load_tensors`, `llama-model-loader.cpp: create_tensor` and
//! `common/arg.cpp @ b10605`. Without `-ts`, the split depends on the memory that is free at load time.

use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_flags::{GpuLayers, ModelParams, SplitMode};
use plimsoll_model::{Model, Tensor};
use regex_lite::{Regex, RegexBuilder};

use crate::{CARD_ALIGNMENT, EngineKind, GraphVariant, HOST_ALIGNMENT, PlanError, PlanRequest};
use plimsoll_flags::device_number;

/// Device of a tensor or an operation: a card, by its number in the layout, or host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TensorDevice {
    Card(u16),
    Host,
}

impl TensorDevice {
    pub(super) fn card(number: usize) -> Self {
        Self::Card(u16::try_from(number).unwrap_or(u16::MAX))
    }
}

/// Bytes on each card of a layout, and in host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceBytes {
    pub(super) cards: Vec<Bytes>,
    pub(super) host: Bytes,
}

impl DeviceBytes {
    pub(super) fn none(layout: &DeviceLayout) -> Self {
        Self { cards: vec![Bytes::ZERO; layout.devices.len()], host: Bytes::ZERO }
    }

    /// Adds a tensor, which starts aligned. A card reads `padding` behind it.
    pub(super) fn add(&mut self, device: TensorDevice, data: Bytes, padding: Bytes) {
        *self.at(device) += match device {
            TensorDevice::Host => data.padded(HOST_ALIGNMENT),
            TensorDevice::Card(_) => (data + padding).padded(CARD_ALIGNMENT),
        };
    }

    pub(super) fn at(&mut self, device: TensorDevice) -> &mut Bytes {
        match device {
            TensorDevice::Card(card) => &mut self.cards[usize::from(card)],
            TensorDevice::Host => &mut self.host,
        }
    }
}

/// Memory limit of one compiled `-ot` pattern; patterns come from configuration files.
const PATTERN_LIMIT: usize = 1 << 18;

/// `GGML_SCHED_MAX_COPIES @ b10605`.
const PIPELINE_COPIES: u64 = 4;

pub(super) struct DeviceLayout {
    /// The devices that the model is spread over, as positions among the request's cards.
    pub(super) devices: Vec<usize>,
    layers: Vec<TensorDevice>,
    pub(super) output: TensorDevice,
    /// Copies of each graph input: `GGML_SCHED_MAX_COPIES` where prompts are processed in a pipeline.
    pub(super) copies: u64,
    overrides: Vec<(Regex, TensorDevice)>,
    experts_on_host: u32,
    /// `token_embd_norm` is the last norm (LFM2), not the norm of the embedding.
    ends_with_token_norm: bool,
}

impl DeviceLayout {
    pub(super) fn new(request: &PlanRequest<'_>, model: &Model) -> Result<Self, PlanError> {
        // `n_layer_all`, prediction layers included.
        let (params, layers) = (request.params, model.hyper.layers);
        let devices = devices(request)?;
        // The output counts as one more layer for -ngl.
        let all = layers.saturating_add(1);
        let wanted = wanted_layers(params, layers);
        let splits = splits(params, request.cards, &devices);
        // The last layers go to the cards, so the first ones stay in host memory.
        let start = all.saturating_sub(wanted);
        let active = if devices.is_empty() { 0 } else { wanted.min(all) };
        let place = |layer: u32| match layer.checked_sub(start) {
            Some(position) if position < active => TensorDevice::card(device_at(&splits, position, active)),
            _ => TensorDevice::Host,
        };
        let overrides = overrides(request, &devices)?;
        // The engine's own conditions for a pipeline (`llama-context.cpp: llama_context @ b10605`); it also
        // asks that no weight lies elsewhere than its layer.
        let pipeline = devices.len() > 1
            && wanted > layers
            && params.split_mode == SplitMode::Layer
            && params.cache_offload;
        let mut layout = Self {
            layers: (0..layers).map(place).collect(),
            output: place(layers),
            copies: 1,
            devices,
            overrides,
            experts_on_host: params.experts_on_host,
            ends_with_token_norm: GraphVariant::of(model, false).ends_with_token_norm,
        };
        if pipeline && !layout.is_scattered() {
            layout.copies = PIPELINE_COPIES;
        }
        Ok(layout)
    }

    /// The device of a layer; layers beyond the model are with the output.
    pub(super) fn layer(&self, layer: u32) -> TensorDevice {
        let layer = usize::try_from(layer).ok().and_then(|i| self.layers.get(i));
        layer.copied().unwrap_or(self.output)
    }

    /// True if weights of a layer may be on another device than the layer.
    pub(super) fn is_scattered(&self) -> bool {
        !self.overrides.is_empty() || self.experts_on_host > 0
    }

    /// The device of a tensor's data.
    pub(super) fn tensor(&self, tensor: &Tensor) -> TensorDevice {
        let mut overrides = self.overrides.iter();
        // The first pattern that matches wins, over every other rule.
        if let Some((_, place)) = overrides.find(|(pattern, _)| pattern.is_match(&tensor.name)) {
            return *place;
        }
        match tensor.layer() {
            Some(layer) if layer < self.experts_on_host && tensor.is_expert() => TensorDevice::Host,
            Some(layer) => self.layer(layer),
            None if is_input(&tensor.name) => TensorDevice::Host,
            None if self.ends_with_token_norm => self.output,
            None if FIRST_LAYER.iter().any(|start| tensor.name.starts_with(start)) => self.layer(0),
            None => self.output,
        }
    }
}

/// Layers that `-ngl` asks for; the output counts as one.
pub(super) fn wanted_layers(params: &ModelParams, layers: u32) -> u32 {
    match params.gpu_layers {
        GpuLayers::Auto | GpuLayers::All => layers.saturating_add(1),
        GpuLayers::Count(wanted) => wanted,
    }
}

/// Tensors that are created with the number of the first layer (`llama-arch.cpp: LLM_TENSOR_INFOS`).
const FIRST_LAYER: [&str; 3] = ["token_embd_norm.", "per_layer_model_proj.", "per_layer_proj_norm."];
/// Tensors of the input layer, which stays in host memory (`llama-arch.cpp: LLM_TENSOR_LAYER_INPUT @
/// b10605`).
const INPUT: [&str; 4] = ["token_embd.", "position_embd.", "token_types.", "per_layer_token_embd."];

pub(super) fn is_input(name: &str) -> bool {
    INPUT.iter().any(|start| name.starts_with(start))
}

/// Positions of the cards that an engine numbers: host memory among them has no number.
pub(super) fn computing(cards: &[Card]) -> Vec<usize> {
    (0..cards.len()).filter(|&card| cards[card].kind == CardKind::Cuda).collect()
}

/// The cards that the flags allow the model, in the engine's order.
fn devices(request: &PlanRequest<'_>) -> Result<Vec<usize>, PlanError> {
    let params = request.params;
    let cuda = computing(request.cards);
    let named = if params.devices.is_empty() {
        cuda
    } else if params.devices == ["none"] {
        Vec::new()
    } else {
        let find = |name: &String| {
            let card = device_number(name).and_then(|(_, n)| cuda.get(n)).copied();
            card.ok_or_else(|| PlanError::UnknownDevice { name: name.clone(), cards: cuda.len() })
        };
        params.devices.iter().map(find).collect::<Result<_, _>>()?
    };
    // The engine refuses row split only where there is more than one device to split over.
    if params.split_mode == SplitMode::Row && request.engine.kind == EngineKind::LlamaCpp && named.len() > 1 {
        return Err(PlanError::RowSplit);
    }
    if params.split_mode != SplitMode::None || named.is_empty() {
        return Ok(named);
    }
    let main = params.main_gpu.unwrap_or(0);
    let card = usize::try_from(main).ok().and_then(|main| named.get(main));
    card.map(|&card| vec![card]).ok_or(PlanError::UnknownMainGpu { main, cards: named.len() })
}

/// Cumulative shares in [0, 1], in the engine's own `float`, because rounding decides layers at a border.
fn splits(params: &ModelParams, cards: &[Card], devices: &[usize]) -> Vec<f32> {
    let given = |i: usize| {
        let share = params.tensor_split.get(i).copied();
        share.filter(|share| share.is_finite() && *share >= 0.0).unwrap_or(0.0)
    };
    // Shares that are all zero count as not given.
    let by_hand = (0..devices.len()).any(|i| given(i) > 0.0);
    let mut sum = 0.0_f32;
    let share = |(i, &device): (usize, &usize)| {
        sum += if by_hand { given(i) } else { free_share(&cards[device]) };
        sum
    };
    let cumulative: Vec<f32> = devices.iter().enumerate().map(share).collect();
    cumulative.into_iter().map(|share| if sum > 0.0 { share / sum } else { 1.0 }).collect()
}

/// Free memory as a weight; whole MiB are exact in `f32` up to 16 TiB.
fn free_share(card: &Card) -> f32 {
    let mib = u32::try_from(card.free.get() >> 20).unwrap_or(u32::MAX);
    // Two halves of 16 bits, because `f32: From<u32>` does not exist and a bare cast is not allowed.
    float(mib >> 16) * 65536.0 + float(mib & 0xffff)
}

/// `std::upper_bound(splits, position / active)`, in the engine's own `float`.
fn device_at(splits: &[f32], position: u32, active: u32) -> usize {
    let at = float(position) / float(active.max(1));
    let found = splits.iter().position(|&split| split > at);
    found.unwrap_or(splits.len().saturating_sub(1))
}

fn float(n: u32) -> f32 {
    f32::from(u16::try_from(n).unwrap_or(u16::MAX))
}

fn overrides(request: &PlanRequest<'_>, devices: &[usize]) -> Result<Vec<(Regex, TensorDevice)>, PlanError> {
    let compile = |pattern: &str| {
        let regex = RegexBuilder::new(pattern).size_limit(PATTERN_LIMIT).build();
        let refused = |why| PlanError::OverridePattern { pattern: pattern.to_owned(), why };
        regex.map_err(|error| refused(error.to_string()))
    };
    let overrides = request.params.overrides.iter();
    overrides
        .map(|over| Ok((compile(&over.pattern)?, buffer(&over.buffer, request.cards, devices)?)))
        .collect()
}

fn buffer(name: &str, cards: &[Card], devices: &[usize]) -> Result<TensorDevice, PlanError> {
    if matches!(name, "CPU" | "CPU_REPACK") || name.ends_with("_Host") {
        return Ok(TensorDevice::Host);
    }
    device_number(name)
        .and_then(|(_, n)| computing(cards).get(n).copied())
        .and_then(|card| devices.iter().position(|&d| d == card))
        .map(TensorDevice::card)
        .ok_or_else(|| PlanError::OverrideBuffer { buffer: name.to_owned(), cards: cards.len() })
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::{BufferOverride, ProgramKind};
    use plimsoll_model::gguf::Header;
    use plimsoll_model::{Dialect, Model};

    use super::*;
    use crate::EngineBuild;

    fn model() -> Model {
        let draft = plimsoll_specimens::shape("q30").unwrap().files(1).remove(0);
        let bytes = draft.header();
        let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
        Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
    }

    fn layout(params: &ModelParams, cards: &[&str]) -> Result<DeviceLayout, PlanError> {
        let model = model();
        let cards: Vec<Card> = cards.iter().map(|spec| spec.parse().unwrap()).collect();
        let request = PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            params,
            engine: EngineBuild::LLAMA_CPP,
            program: ProgramKind::LlamaServer,
            cards: &cards,
            contexts: &[],
            processor: None,
        };
        DeviceLayout::new(&request, &model)
    }

    fn count(layout: &DeviceLayout, place: TensorDevice) -> usize {
        (0..48).filter(|&layer| layout.layer(layer) == place).count()
    }

    const TWO: [&str; 2] = ["name=a,total=30GiB", "name=b,total=10GiB"];

    #[test]
    fn layers_are_split_by_free_memory_or_by_hand() {
        let params = ModelParams::of(ProgramKind::LlamaServer);
        let by_memory = layout(&params, &TWO).unwrap();
        assert_eq!(count(&by_memory, TensorDevice::Card(0)), 37);
        assert_eq!((by_memory.output, by_memory.copies), (TensorDevice::Card(1), 4));
        let by_hand = ModelParams { tensor_split: vec![1.0, 1.0], ..params };
        assert_eq!(count(&layout(&by_hand, &TWO).unwrap(), TensorDevice::Card(0)), 25);
    }

    #[test]
    fn fewer_layers_leave_the_first_on_the_host_and_stop_the_pipeline() {
        let params =
            ModelParams { gpu_layers: GpuLayers::Count(10), ..ModelParams::of(ProgramKind::LlamaServer) };
        let layout = layout(&params, &TWO).unwrap();
        assert_eq!(count(&layout, TensorDevice::Host), 39);
        assert_eq!((layout.layer(38), layout.layer(39)), (TensorDevice::Host, TensorDevice::Card(0)));
        assert_eq!((layout.output, layout.copies), (TensorDevice::Card(1), 1));
    }

    #[test]
    fn one_device_is_chosen_by_number_or_by_name() {
        let params = ModelParams {
            split_mode: SplitMode::None,
            main_gpu: Some(1),
            ..ModelParams::of(ProgramKind::LlamaServer)
        };
        assert_eq!(layout(&params, &TWO).unwrap().devices, [1]);
        let named =
            ModelParams { devices: vec!["CUDA1".to_owned()], ..ModelParams::of(ProgramKind::LlamaServer) };
        assert_eq!(layout(&named, &TWO).unwrap().devices, [1]);
        let none =
            ModelParams { devices: vec!["none".to_owned()], ..ModelParams::of(ProgramKind::LlamaServer) };
        assert_eq!(count(&layout(&none, &TWO).unwrap(), TensorDevice::Host), 48);
        let missing = ModelParams { main_gpu: Some(2), ..params };
        assert!(layout(&missing, &TWO).is_err());
    }

    #[test]
    fn the_first_pattern_that_matches_a_name_wins() {
        let send = |pattern: &str, buffer: &str| BufferOverride {
            pattern: pattern.to_owned(),
            buffer: buffer.to_owned(),
        };
        let params = ModelParams {
            overrides: vec![
                send(r"blk\.(0|1)\.ffn_.*_exps", "CUDA1"),
                send(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU"),
            ],
            ..ModelParams::of(ProgramKind::LlamaServer)
        };
        let layout = layout(&params, &TWO).unwrap();
        let model = model();
        let place =
            |name: &str| layout.tensor(model.tensors.iter().find(|tensor| tensor.name == name).unwrap());
        assert_eq!(place("blk.1.ffn_up_exps.weight"), TensorDevice::Card(1));
        assert_eq!(place("blk.2.ffn_up_exps.weight"), TensorDevice::Host);
        assert_eq!(place("blk.2.attn_q.weight"), TensorDevice::Card(0));
        assert_eq!(place("token_embd.weight"), TensorDevice::Host);
    }

    #[test]
    fn a_pattern_or_buffer_that_cannot_be_is_named() {
        let refused = |pattern: &str, buffer: &str| {
            let params = ModelParams {
                overrides: vec![BufferOverride { pattern: pattern.to_owned(), buffer: buffer.to_owned() }],
                ..ModelParams::of(ProgramKind::LlamaServer)
            };
            layout(&params, &TWO).err().unwrap().to_string()
        };
        assert!(refused("(?!x)ffn", "CPU").contains("`(?!x)ffn` cannot be read"));
        assert!(refused("ffn", "CUDA7").contains("CUDA7"));
    }
}
