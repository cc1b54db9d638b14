//! Reads what a model's file tells clients: its names, and the abilities of its chat template.
//!
//! No memory depends on them. A key of another type than expected counts as absent.

use super::gguf::Header;

/// Words of a chat template that prints the tools of a request.
const TOOLS: [&str; 2] = ["tools", "functions"];
/// Words of a chat template for a model that can reason before it answers.
const REASONING: [&str; 5] =
    ["enable_thinking", "reasoning_content", "reasoning_effort", "<think>", "<|channel|>"];
/// Keys of the token before a text with a gap, under its present and its former name.
const GAP: [&str; 2] = ["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTraits {
    /// `general.basename`.
    pub base_name: Option<String>,
    /// `general.size_label`, e.g. `8B` or `30B-A3B`.
    pub size_label: Option<String>,
    /// The chat template prints tools.
    pub calls_tools: bool,
    /// The chat template knows reasoning.
    pub reasons: bool,
    /// The vocabulary has a token for text with a gap.
    pub fills_gaps: bool,
}

impl ModelTraits {
    pub(super) fn of(header: &Header<'_>) -> Self {
        let text = |key| header.text(key).ok().flatten();
        let template = text("tokenizer.chat_template").unwrap_or_default();
        let has = |words: &[&str]| words.iter().any(|word| template.contains(word));
        Self {
            base_name: text("general.basename").map(str::to_owned),
            size_label: text("general.size_label").map(str::to_owned),
            calls_tools: has(&TOOLS),
            reasons: has(&REASONING),
            fills_gaps: GAP.iter().any(|key| header.entry(key).is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Dialect;
    use super::super::gguf::DraftHeader;
    use super::*;

    fn traits(fill: impl FnOnce(&mut DraftHeader)) -> ModelTraits {
        let mut draft = DraftHeader::default();
        fill(&mut draft);
        let bytes = draft.header();
        let header = Header::read(&bytes, u64::try_from(bytes.len()).unwrap(), Dialect::Ggml).unwrap();
        ModelTraits::of(&header)
    }

    #[test]
    fn the_template_and_the_vocabulary_report_what_a_model_can_do() {
        let found = traits(|draft| {
            draft.put("general.basename", "Qwen3");
            draft.put("general.size_label", "8B");
            draft.put(
                "tokenizer.chat_template",
                "{% if tools %}{% endif %}{% if enable_thinking %}{% endif %}",
            );
            draft.put("tokenizer.ggml.fim_pre_token_id", 7_u32);
        });
        assert_eq!((found.base_name.as_deref(), found.size_label.as_deref()), (Some("Qwen3"), Some("8B")));
        assert!(found.calls_tools && found.reasons && found.fills_gaps);
    }

    #[test]
    fn keys_of_a_wrong_type_are_absent() {
        let found = traits(|draft| {
            draft.put("general.basename", 3_u32);
            draft.put("tokenizer.chat_template", 9_u32);
        });
        assert_eq!(found, ModelTraits::default());
    }
}
