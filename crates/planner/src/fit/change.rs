//! Applies one change to a plan request, such as a smaller context, and writes it as flags.
//!
//! Every search and every piece of advice is built from such changes.

use plimsoll_base::Advice;
use plimsoll_flags::{FlagError, FlashAttention, GpuLayers, ModelParams, Options, Parallel, SplitMode};
use plimsoll_model::TensorType;

/// Change of one flag, or of flags that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestChange {
    Context(u32),
    /// Micro-batches of `tokens`; the batch is raised to it where it is smaller.
    MicroBatch {
        tokens: u32,
        batch: Option<u32>,
    },
    /// A number of slots, and the context over all of them where that changes too.
    Slots {
        slots: u32,
        context: Option<u32>,
    },
    /// K and V in one type.
    Cache(TensorType),
    FlashAttention,
    Layers(u32),
    ExpertsOnHost(u32),
    NoOpOffload,
    /// No `--swa-full`.
    WindowedCache,
    ProjectorOnHost,
    /// Cards of the process, as the engine names them (`CUDA0`, `Vulkan1`), and the layers of each.
    Cards {
        devices: Vec<String>,
        layers: Vec<u32>,
    },
}

impl RequestChange {
    /// Micro-batches of `tokens`, with a larger batch where they exceed `batch`.
    pub(crate) fn micro_batch(tokens: u32, batch: u32) -> Self {
        let batch = (tokens > batch).then_some(tokens);
        Self::MicroBatch { tokens, batch }
    }

    pub(crate) fn apply(&self, params: &mut ModelParams) {
        match self {
            Self::Context(tokens) => params.context = *tokens,
            Self::MicroBatch { tokens, batch } => {
                params.micro_batch = *tokens;
                params.batch = batch.unwrap_or(params.batch);
            }
            Self::Slots { slots, context } => {
                params.parallel = Parallel::Count(*slots);
                params.context = context.unwrap_or(params.context);
            }
            Self::Cache(kind) => (params.cache_key, params.cache_value) = (*kind, *kind),
            Self::FlashAttention => params.flash_attention = FlashAttention::Auto,
            Self::Layers(layers) => params.gpu_layers = GpuLayers::Count(*layers),
            Self::ExpertsOnHost(layers) => params.experts_on_host = *layers,
            Self::NoOpOffload => params.op_offload = false,
            Self::WindowedCache => params.full_sliding_cache = false,
            Self::ProjectorOnHost => params.projector_offload = false,
            Self::Cards { devices, layers } => {
                params.devices.clone_from(devices);
                params.tensor_split = shares(layers);
                // Shares apply to a split by layers alone, and -mg would choose one of the cards.
                (params.split_mode, params.main_gpu) = (SplitMode::Layer, None);
            }
        }
    }

    /// The change as flags of llama-server; empty where a flag is left out.
    pub fn flags(&self) -> Vec<String> {
        self.line().split_whitespace().map(str::to_owned).collect()
    }

    /// The flags in one line.
    pub(crate) fn line(&self) -> String {
        // A test checks that a change and its flags have the same effect.
        match self {
            Self::Context(tokens) => format!("-c {tokens}"),
            // The batch first: the engine cuts the micro-batch to it.
            Self::MicroBatch { tokens, batch: Some(batch) } => format!("-b {batch} -ub {tokens}"),
            Self::MicroBatch { tokens, batch: None } => format!("-ub {tokens}"),
            Self::Slots { slots, context: Some(context) } => format!("-np {slots} -c {context}"),
            Self::Slots { slots, context: None } => format!("-np {slots}"),
            Self::Cache(kind) => format!("-ctk {0} -ctv {0}", kind.name),
            Self::FlashAttention => "-fa auto".to_owned(),
            Self::Layers(layers) => format!("-ngl {layers}"),
            Self::ExpertsOnHost(layers) => format!("--n-cpu-moe {layers}"),
            Self::NoOpOffload => "--no-op-offload".to_owned(),
            // llama-server has no flag for the default.
            Self::WindowedCache => String::new(),
            Self::ProjectorOnHost => "--no-mmproj-offload".to_owned(),
            // A single card takes all layers, whatever the shares.
            Self::Cards { devices, .. } if devices.len() < 2 => format!("-dev {}", devices.join(",")),
            Self::Cards { devices, layers } => {
                let layers: Vec<String> = layers.iter().map(u32::to_string).collect();
                format!("-dev {} -ts {}", devices.join(","), layers.join(","))
            }
        }
    }

    /// Flags, by one of their spellings, that contradict the change, beside those that it sets.
    fn instead_of(&self) -> &'static [&'static str] {
        match self {
            // Negated spellings are flags of their own in the table.
            Self::FlashAttention => &["-nfa"],
            Self::ExpertsOnHost(_) => &["-cmoe"],
            Self::WindowedCache => &["--swa-full"],
            Self::Cards { .. } => &["-ts", "-sm", "-mg"],
            _ => &[],
        }
    }

    /// Two changes of one kind contradict each other.
    pub(crate) fn kind(&self) -> std::mem::Discriminant<Self> {
        std::mem::discriminant(self)
    }

    /// The advice to make this change.
    pub fn advice(&self) -> Advice {
        match self {
            Self::Context(tokens) => Advice::ShrinkContext(u64::from(*tokens)),
            Self::MicroBatch { tokens, .. } => Advice::ShrinkMicroBatch(u64::from(*tokens)),
            Self::Slots { slots, .. } => Advice::FewerSlots(u64::from(*slots)),
            Self::Cache(kind) => Advice::QuantiseCache(kind.name),
            Self::FlashAttention => Advice::FlashAttention,
            Self::Layers(layers) => Advice::FewerLayers(u64::from(*layers)),
            Self::ExpertsOnHost(layers) => Advice::ExpertsOnHost(u64::from(*layers)),
            Self::NoOpOffload => Advice::NoOpOffload,
            Self::WindowedCache => Advice::WindowedCache,
            Self::ProjectorOnHost => Advice::ProjectorOnHost,
            Self::Cards { .. } => Advice::DivideLayers(self.line()),
        }
    }
}

/// The parameters with changes applied in order.
pub(crate) fn changed(params: &ModelParams, changes: &[RequestChange]) -> ModelParams {
    let mut params = params.clone();
    for change in changes {
        change.apply(&mut params);
    }
    params
}

/// A command line with changes applied: contradicting flags are removed, new ones are appended.
pub fn edited(options: &Options, changes: &[RequestChange]) -> Result<Options, FlagError> {
    let mut options = options.clone();
    for change in changes {
        let new = Options::from_argv(&change.flags())?;
        options.retain(|setting| {
            // Removed rather than overridden: an earlier -ts or -dev would still be read with the new flags.
            let names = &setting.flag.names;
            let is_set = new.settings().iter().any(|new| new.flag.names == *names);
            !is_set && !change.instead_of().iter().any(|name| names.contains(name))
        });
        for setting in new.settings() {
            options.push(setting.clone());
        }
    }
    Ok(options)
}

/// A number for a flag of 32 bits.
pub(crate) fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// No shares for a single card, which takes all.
fn shares(layers: &[u32]) -> Vec<f32> {
    let share = |&layers: &u32| f32::from(u16::try_from(layers).unwrap_or(u16::MAX));
    match layers {
        [_] => Vec::new(),
        layers => layers.iter().map(share).collect(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::ProgramKind;
    use plimsoll_model::types;

    use super::*;

    fn params(options: &Options) -> ModelParams {
        options.params(ProgramKind::LlamaServer).unwrap()
    }

    #[test]
    fn a_change_means_the_same_in_a_request_and_on_a_command_line() {
        let changes = [
            RequestChange::Context(512),
            RequestChange::MicroBatch { tokens: 256, batch: None },
            RequestChange::MicroBatch { tokens: 4096, batch: Some(4096) },
            RequestChange::Slots { slots: 1, context: None },
            RequestChange::Slots { slots: 3, context: Some(768) },
            RequestChange::Cache(types::Q8_0),
            RequestChange::FlashAttention,
            RequestChange::Layers(7),
            RequestChange::ExpertsOnHost(9),
            RequestChange::NoOpOffload,
            RequestChange::WindowedCache,
            RequestChange::ProjectorOnHost,
            RequestChange::Cards { devices: vec!["Vulkan1".to_owned()], layers: vec![33] },
            RequestChange::Cards {
                devices: vec!["CUDA2".to_owned(), "CUDA0".to_owned()],
                layers: vec![20, 13],
            },
        ];
        let line = "-m a.gguf -c 8192 -b 1024 -ub 512 -np 2 -kvu -ctk q4_0 -ctv q5_0 -fa off -ngl 5 -cmoe -ncmoe 4 \
                    --op-offload --swa-full -mm p.gguf --mmproj-offload -dev CUDA1 -ts 3,1 -sm none -mg 0 -t 4";
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let before = Options::from_argv(&argv).unwrap();
        for change in changes {
            let line = edited(&before, std::slice::from_ref(&change)).unwrap();
            assert_eq!(params(&line), changed(&params(&before), std::slice::from_ref(&change)), "{change:?}");
            assert_eq!(line.text("-t"), Some("4"), "what does not say otherwise stays");
        }
    }
}
