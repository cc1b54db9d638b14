//! Defines advice for the user, such as to use a smaller context, with the bytes that it saves.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeMap;

use crate::{BusRate, Bytes};

/// An action that the user could take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Use a smaller context: `-c N`.
    ShrinkContext(u64),
    /// Store the cache in a smaller type: `-ctk T -ctv T`.
    QuantiseCache(&'static str),
    /// Use a smaller micro-batch: `-ub N`.
    ShrinkMicroBatch(u64),
    /// Serve fewer requests at once: `-np N`.
    FewerSlots(u64),
    /// Switch flash attention on: `-fa on`.
    FlashAttention,
    /// Keep the experts of the first N layers in host memory: `--n-cpu-moe N`.
    ExpertsOnHost(u64),
    /// Put only N layers on the cards: `-ngl N`.
    FewerLayers(u64),
    /// Do not copy host weights to the card for large batches: `--no-op-offload`.
    NoOpOffload,
    /// Keep only the window of sliding layers: without `--swa-full`.
    WindowedCache,
    /// Keep the projector of images in host memory: `--no-mmproj-offload`.
    ProjectorOnHost,
    /// Divide the layers over the cards by hand: these flags.
    DivideLayers(String),
    /// All of these, where none of them alone is enough.
    Together(Vec<Advice>),
    /// Spread over one more card.
    AnotherCard,
    /// Free this much that others hold on the card.
    FreeCard { card: String },
    /// Put the end of the cache into host memory.
    SpillCache(SpillAdvice),
    /// Say how much the model takes: `memory = "…"`.
    DeclareMemory,
    /// Something that no variant names.
    Other(String),
}

/// Host memory for the last positions of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillAdvice {
    pub way: SpillWay,
    pub spill: Bytes,
    /// Tokens of each conversation at full speed.
    pub tokens: u64,
    /// Bytes that a token reads over the bus for each thousand beyond them.
    pub per_thousand: Bytes,
    /// The rate of the bus, if it was measured.
    pub bus: Option<BusRate>,
}

/// The way in which an engine is given host memory for its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillWay {
    /// `plimsoll run --spill SIZE --`
    Run,
    /// `spill = "SIZE"` in the model's section
    Setting,
}

impl fmt::Display for SpillAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: Bytes| bytes.get().div_ceil(1 << 20);
        let (spill, tokens) = (mebibytes(self.spill), self.tokens);
        match self.way {
            SpillWay::Run => write!(f, "start it under `plimsoll run --spill {spill}MiB --`: ")?,
            SpillWay::Setting => write!(f, "set `spill = \"{spill}MiB\"`: ")?,
        }
        write!(
            f,
            "the first {tokens} tokens of a conversation are at full speed; beyond them, each new token \
                reads {} MiB over the bus for every 1000 further tokens",
            mebibytes(self.per_thousand)
        )?;
        match self.bus {
            Some(bus) => {
                write!(f, ", which takes {:.1} ms", bus.time(self.per_thousand).as_secs_f64() * 1000.0)
            }
            None => Ok(()),
        }
    }
}

impl Advice {
    /// Returns the llama-server flags that carry the advice out, if flags can.
    pub fn flags(&self) -> Option<String> {
        match self {
            Self::ShrinkContext(n) => Some(format!("-c {n}")),
            Self::QuantiseCache(kind) => Some(format!("-ctk {kind} -ctv {kind}")),
            Self::ShrinkMicroBatch(n) => Some(format!("-ub {n}")),
            Self::FewerSlots(n) => Some(format!("-np {n}")),
            Self::FlashAttention => Some("-fa on".to_owned()),
            Self::ExpertsOnHost(n) => Some(format!("--n-cpu-moe {n}")),
            Self::FewerLayers(n) => Some(format!("-ngl {n}")),
            Self::NoOpOffload => Some("--no-op-offload".to_owned()),
            Self::ProjectorOnHost => Some("--no-mmproj-offload".to_owned()),
            Self::DivideLayers(flags) => Some(flags.clone()),
            // Advice without a flag (another card, less load) stays in the text and is left out here.
            Self::Together(all) => {
                let flags: Vec<String> = all.iter().filter_map(Self::flags).collect();
                (!flags.is_empty()).then(|| flags.join(" "))
            }
            Self::WindowedCache
            | Self::AnotherCard
            | Self::FreeCard { .. }
            | Self::SpillCache(_)
            | Self::DeclareMemory
            | Self::Other(_) => None,
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShrinkContext(n) => write!(f, "use a context of {n} tokens"),
            Self::QuantiseCache(kind) => write!(f, "store the KV cache as {kind}"),
            Self::ShrinkMicroBatch(n) => write!(f, "use a micro-batch of {n}"),
            Self::FewerSlots(1) => write!(f, "serve 1 request at a time"),
            Self::FewerSlots(n) => write!(f, "serve {n} requests in parallel"),
            Self::FlashAttention => write!(f, "switch flash attention on"),
            Self::ExpertsOnHost(1) => write!(f, "keep the experts of 1 layer in host memory"),
            Self::ExpertsOnHost(n) => write!(f, "keep the experts of {n} layers in host memory"),
            Self::FewerLayers(1) => write!(f, "put only 1 layer on the cards"),
            Self::FewerLayers(n) => write!(f, "put only {n} layers on the cards"),
            Self::NoOpOffload => {
                write!(f, "do not copy weights from host memory to the card for large batches")
            }
            Self::WindowedCache => write!(f, "omit the flag --swa-full"),
            Self::ProjectorOnHost => write!(f, "keep the multimodal projector in host memory"),
            Self::DivideLayers(_) => write!(f, "choose by hand how many layers each card holds"),
            Self::Together(all) => {
                for (place, advice) in all.iter().enumerate() {
                    f.write_str(if place == 0 { "" } else { " and " })?;
                    advice.fmt(f)?;
                }
                Ok(())
            }
            Self::AnotherCard => write!(f, "spread the model over one more card"),
            Self::FreeCard { card } => write!(f, "free memory that other processes hold on {card}"),
            Self::SpillCache(spill) => spill.fmt(f),
            Self::DeclareMemory => {
                write!(f, "declare the model's memory in its configuration section: memory = \"…\"")
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Advice, with its saving and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub advice: Advice,
    pub saves: Option<Bytes>,
    /// With it everything fits.
    pub enough: bool,
    /// The drawback of it, as text.
    pub costs: Option<&'static str>,
}

impl Hint {
    pub fn new(advice: Advice) -> Self {
        Self { advice, saves: None, enough: false, costs: None }
    }

    pub fn saving(advice: Advice, saves: Bytes) -> Self {
        Self { saves: Some(saves), ..Self::new(advice) }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.advice.fmt(f)?;
        if let Some(flags) = self.advice.flags() {
            write!(f, " ({flags})")?;
        }
        match (self.saves, self.enough) {
            (Some(saves), true) => write!(f, ", which saves {saves} and makes the model fit")?,
            (Some(saves), false) => write!(f, ", which saves {saves}")?,
            (None, true) => write!(f, ", which is enough")?,
            (None, false) => {}
        }
        match self.costs {
            // Last, since it qualifies everything before it.
            Some(costs) => write!(f, "; the price: {costs}"),
            None => Ok(()),
        }
    }
}

/// `{"text", "flags"?, "saves"?, "enough"?, "costs"?}`.
impl Serialize for Hint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut hint = serializer.serialize_map(None)?;
        hint.serialize_entry("text", &self.to_string())?;
        if let Some(flags) = self.advice.flags() {
            hint.serialize_entry("flags", &flags)?;
        }
        if let Some(saves) = self.saves {
            hint.serialize_entry("saves", &saves)?;
        }
        // Absent keys rather than null or false: scripts test for presence.
        if self.enough {
            hint.serialize_entry("enough", &true)?;
        }
        if let Some(costs) = self.costs {
            hint.serialize_entry("costs", costs)?;
        }
        hint.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_say_the_same() {
        let hint = Hint::saving(Advice::QuantiseCache("q8_0"), Bytes::mib(1920));
        assert_eq!(
            hint.to_string(),
            "store the KV cache as q8_0 (-ctk q8_0 -ctv q8_0), which saves 1920 MiB"
        );
        assert_eq!(
            serde_json::to_value(&hint).unwrap(),
            serde_json::json!({
                "text": hint.to_string(), "flags": "-ctk q8_0 -ctv q8_0", "saves": 2_013_265_920_u64,
            })
        );
    }

    #[test]
    fn advice_that_is_enough_says_so_and_names_its_price() {
        let together = Advice::Together(vec![Advice::ShrinkMicroBatch(128), Advice::WindowedCache]);
        let hint = Hint {
            enough: true,
            costs: Some("prompts are read more slowly"),
            ..Hint::saving(together, Bytes::mib(7))
        };
        assert_eq!(
            hint.to_string(),
            "use a micro-batch of 128 and omit the flag --swa-full (-ub 128), which saves 7 MiB and makes the model fit; \
             the price: prompts are read more slowly"
        );
        let json = serde_json::to_value(&hint).unwrap();
        assert_eq!((&json["enough"], &json["flags"]), (&true.into(), &"-ub 128".into()));
    }
}
