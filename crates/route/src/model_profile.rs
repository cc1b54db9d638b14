//! Describes a model to clients, such as its size and context length, from its file's header and its flags.
//!
//! It is known before the model is loaded.

use std::time::SystemTime;

use plimsoll_base::Bytes;

/// An ability of a model, in Ollama's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAbility {
    Completion,
    Embedding,
    Tools,
    Thinking,
    Vision,
    Insert,
}

impl ModelAbility {
    pub fn word(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Embedding => "embedding",
            Self::Tools => "tools",
            Self::Thinking => "thinking",
            Self::Vision => "vision",
            Self::Insert => "insert",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelProfile {
    pub architecture: String,
    pub base_name: String,
    pub parameters: u64,
    /// `8B`, as the file or the number of its parameters says.
    pub size_label: String,
    /// The element type that most bytes of its tensors have.
    pub quantization: &'static str,
    /// Tokens that the model was trained for; `None` where its header does not say.
    pub trained_context: Option<u64>,
    /// Tokens that one request may use, as planned.
    pub context: Option<u64>,
    pub embedding_length: u64,
    pub capabilities: Vec<ModelAbility>,
    /// The tensors' bytes.
    pub size: Bytes,
    /// The bytes of its file; those of the tensors where there are several.
    pub file_size: Bytes,
    /// What its flags set of the parameters of Ollama's API, by their names there.
    pub parameters_set: Vec<(&'static str, String)>,
    /// Identifies the file that is configured: its path, its length and its time.
    pub digest: String,
    pub modified: Option<SystemTime>,
    /// Bytes that the model takes at most, as declared, as planned, or as its engine reports.
    pub need: Option<Bytes>,
}

impl ModelProfile {
    pub fn can(&self, capability: ModelAbility) -> bool {
        self.capabilities.contains(&capability)
    }

    pub(crate) fn capability_words(&self) -> Vec<&'static str> {
        self.capabilities.iter().map(|capability| capability.word()).collect()
    }
}
