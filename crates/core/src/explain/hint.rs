//! Advice: a closed list, so that text and JSON never drift apart.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeStruct;

use crate::bytes::Bytes;

/// What a user could do.
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
    /// Spread over one more card.
    AnotherCard,
    /// Free this much that others hold on the card.
    FreeCard { card: String },
    /// Say how much the model takes: `memory = "…"`.
    DeclareMemory,
    /// Something that no variant names.
    Other(String),
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
            Self::AnotherCard | Self::FreeCard { .. } | Self::DeclareMemory | Self::Other(_) => None,
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShrinkContext(n) => write!(f, "use a context of {n} tokens"),
            Self::QuantiseCache(kind) => write!(f, "store the KV cache as {kind}"),
            Self::ShrinkMicroBatch(n) => write!(f, "use a micro-batch of {n}"),
            Self::FewerSlots(n) => write!(f, "serve {n} requests at once"),
            Self::FlashAttention => write!(f, "switch flash attention on"),
            Self::ExpertsOnHost(n) => write!(f, "keep the experts of {n} layers in host memory"),
            Self::FewerLayers(n) => write!(f, "put {n} layers on the cards"),
            Self::NoOpOffload => write!(f, "do not copy host weights to the card for large batches"),
            Self::AnotherCard => write!(f, "spread the model over one more card"),
            Self::FreeCard { card } => write!(f, "free memory that others hold on {card}"),
            Self::DeclareMemory => write!(f, "say how much it takes: memory = \"…\" in its section"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Advice and what it would save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub advice: Advice,
    pub saves: Option<Bytes>,
}

impl Hint {
    pub fn new(advice: Advice) -> Self {
        Self { advice, saves: None }
    }

    pub fn saving(advice: Advice, saves: Bytes) -> Self {
        Self {
            advice,
            saves: Some(saves),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.advice.fmt(f)?;
        if let Some(flags) = self.advice.flags() {
            write!(f, " ({flags})")?;
        }
        if let Some(saves) = self.saves {
            write!(f, ", which saves {saves}")?;
        }
        Ok(())
    }
}

/// `{"text", "flags"?, "saves"?}`.
impl Serialize for Hint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut hint = serializer.serialize_struct("Hint", 3)?;
        hint.serialize_field("text", &self.to_string())?;
        match self.advice.flags() {
            Some(flags) => hint.serialize_field("flags", &flags)?,
            None => hint.skip_field("flags")?,
        }
        match self.saves {
            Some(saves) => hint.serialize_field("saves", &saves)?,
            None => hint.skip_field("saves")?,
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
}
