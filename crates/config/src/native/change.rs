//! Changes the flags of one model in a TOML file, and keeps its comments, its order and all other text.

use plimsoll_flags::{Options, Setting, quoted};
use toml_edit::{Array, DocumentMut, Item, TableLike, TomlError, Value};

use crate::command;
use crate::failure::{ConfigError, ConfigProblem};
use crate::roster::{ConfiguredModel, Launch};

/// Flags that may be changed over HTTP, by the last of their spellings.
///
/// DECISION: a list of those that are harmless, so that a flag of a later llama-server is none of them. Other
/// flags name files, addresses or programs, and with them a client would get the rights of the daemon.
const HARMLESS: &str = "\
    --threads --threads-batch --prio --prio-batch --poll --poll-batch \
    --ctx-size --n-predict --batch-size --ubatch-size --keep --swa-full --swa-checkpoints \
    --checkpoint-min-step --cache-ram --kv-unified --kv-unified-per-slot --cache-idle-slots --context-shift \
    --flash-attn --perf --escape --special --warmup --seed --ignore-eos --temperature --top-k --top-p --min-p \
    --top-n-sigma --xtc-probability --xtc-threshold --typical-p --repeat-last-n --repeat-penalty \
    --presence-penalty --frequency-penalty --backend-sampling --pooling --rope-scaling --rope-scale \
    --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor \
    --yarn-beta-slow --yarn-beta-fast --kv-offload --repack --no-host --cache-type-k --cache-type-v --parallel \
    --cont-batching --mmproj-offload --image-min-tokens --image-max-tokens --mlock --mmap --direct-io --numa \
    --override-tensor --cpu-moe --n-cpu-moe --moe-cache-mib --n-cpu-ffn --n-gpu-layers --split-mode \
    --tensor-split --main-gpu --fit --fit-target --fit-ctx --op-offload --embeddings --reranking --cache-prompt \
    --cache-reuse --jinja --reasoning-format --reasoning --reasoning-effort --reasoning-budget \
    --slot-prompt-similarity --cache-type-k-draft --cache-type-v-draft --cpu-moe-draft --n-cpu-moe-draft \
    --n-gpu-layers-draft --spec-draft-n-max --spec-draft-n-min --draft-p-min --draft-p-split \
    --mla-use --attention-max-batch --fused-moe --no-fused-moe --grouped-expert-routing --run-time-repack";

/// Error: the flags of a model cannot be changed in the text of its file.
#[derive(Debug, thiserror::Error)]
pub enum ChangeFlagsError {
    #[error("the file cannot be read: {0}")]
    ReadText(#[from] TomlError),
    #[error("the file has no section [models.\"{0}\"]; add one, or change the model where it comes from")]
    FindModel(String),
    #[error("the model `{0}` has no `flags`, because its section starts a command; change `cmd` in the file")]
    FindFlags(String),
    #[error("the flags of `{0}` are neither a text nor a list; write flags = \"…\"")]
    ReadFlags(String),
    #[error("{0}; edit the model in the configuration file instead")]
    SplitFlags(ConfigProblem),
}

/// The flags of one model in the text of a TOML file.
#[derive(Debug)]
pub struct WrittenFlags {
    document: DocumentMut,
    model: String,
    has_crlf: bool,
}

impl WrittenFlags {
    pub fn of(text: &str, model: &str) -> Result<Self, ChangeFlagsError> {
        let has_crlf = text.contains("\r\n");
        let mut flags = Self { document: text.parse()?, model: model.to_owned(), has_crlf };
        let section = flags.section()?;
        if section.contains_key("cmd") {
            return Err(ChangeFlagsError::FindFlags(quoted(model)));
        }
        Ok(flags)
    }

    fn section(&mut self) -> Result<&mut dyn TableLike, ChangeFlagsError> {
        let models = self.document.get_mut("models").and_then(Item::as_table_like_mut);
        let section = models.and_then(|models| models.get_mut(&self.model)?.as_table_like_mut());
        section.ok_or_else(|| ChangeFlagsError::FindModel(quoted(&self.model)))
    }

    /// The flags as one line of a shell, or as the lines that the file has.
    pub fn text(&mut self) -> Result<String, ChangeFlagsError> {
        let name = quoted(&self.model);
        match self.section()?.get("flags").map(Item::as_value) {
            None => Ok(String::new()),
            Some(Some(Value::String(text))) => Ok(text.value().clone()),
            Some(Some(Value::Array(words))) => {
                let words =
                    words.iter().map(|word| word.as_str().map(shell_word)).collect::<Option<Vec<_>>>();
                Ok(words.ok_or(ChangeFlagsError::ReadFlags(name))?.join(" "))
            }
            Some(_) => Err(ChangeFlagsError::ReadFlags(name)),
        }
    }

    /// The text of the file with these flags instead.
    pub fn replaced(mut self, flags: &str) -> Result<String, ChangeFlagsError> {
        let name = quoted(&self.model);
        let section = self.section()?;
        match section.get_mut("flags").map(Item::as_value_mut) {
            None => drop(section.insert("flags", toml_edit::value(flags))),
            Some(Some(Value::Array(words))) => {
                let is_blank = flags.trim().is_empty();
                let split = if is_blank { Ok(Vec::new()) } else { command::split(flags) };
                write_words(words, &split.map_err(ChangeFlagsError::SplitFlags)?);
            }
            Some(Some(text @ Value::String(_))) => write_word(text, flags),
            Some(_) => return Err(ChangeFlagsError::ReadFlags(name)),
        }
        let text = self.document.to_string();
        // The writer ends lines with a line feed alone.
        Ok(if self.has_crlf { text.replace("\r\n", "\n").replace('\n', "\r\n") } else { text })
    }
}

/// Puts a text in the place of another; spaces and comments around it stay.
fn write_word(value: &mut Value, text: &str) {
    let decor = value.decor().clone();
    *value = text.into();
    *value.decor_mut() = decor;
}

/// Changes the words between those that stay at the beginning and at the end, with their comments.
fn write_words(list: &mut Array, words: &[String]) {
    let before: Vec<Option<String>> = list.iter().map(|word| word.as_str().map(str::to_owned)).collect();
    let same = |(old, new): &(&Option<String>, &String)| old.as_deref() == Some(new.as_str());
    let head = before.iter().zip(words).take_while(same).count();
    let shorter = before.len().min(words.len()) - head;
    let tail = before.iter().rev().zip(words.iter().rev()).take(shorter).take_while(same).count();
    let (end, new) = (before.len() - tail, words.get(head..words.len() - tail).unwrap_or_default());
    for (place, word) in (head..).zip(new) {
        match list.get_mut(place).filter(|_| place < end) {
            Some(value) => write_word(value, word),
            None => list.insert(place, word.as_str()),
        }
    }
    for place in (head + new.len()..end).rev() {
        list.remove(place);
    }
}

/// A word as a line of flags has it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"' | '\\' | '#');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl ConfiguredModel {
    /// The flags that differ from those of an earlier entry, and that only an editor of the file may change.
    pub fn flags_beyond_reach(&self, before: &Self) -> Vec<ConfigError> {
        let (new, old) = (beyond_reach(self), beyond_reach(before));
        let added = new.iter().filter(|setting| !old.contains(setting));
        let removed = old.iter().filter(|setting| !new.contains(setting));
        let refused = |setting: &&Setting, act| {
            let text = format!(
                "the flag {} names a file, an address or a program, or is unknown here, so it is {act} only in the \
                 file itself",
                setting.flag.name()
            );
            ConfigError::new(setting.origin.clone(), ConfigProblem::Parse(text))
        };
        let mut found: Vec<ConfigError> = added.map(|setting| refused(setting, "set")).collect();
        found.extend(removed.map(|setting| refused(setting, "removed")));
        // The order counts too, since the last of several settings wins.
        if found.is_empty() && new != old {
            found.extend(new.first().map(|setting| refused(setting, "moved")));
        }
        found
    }
}

fn beyond_reach(entry: &ConfiguredModel) -> Vec<&Setting> {
    let options = match &entry.launch {
        Launch::LlamaServer { options, .. } => Some(options),
        Launch::Command { .. } => None,
    };
    let settings = options.map_or(&[][..], Options::settings).iter();
    settings.filter(|setting| !HARMLESS.split_whitespace().any(|name| name == setting.flag.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, model: &str, flags: &str) -> String {
        WrittenFlags::of(text, model).unwrap().replaced(flags).unwrap()
    }

    #[test]
    fn only_the_flags_change_and_comments_stay() {
        let text = "# top\n[serve] # s\nlisten = \"127.0.0.1:1\"\n\n# about a\n[models.\"a.b\"]   # name\nmodel = 'x.gguf'\nflags  =  \"-c 4096\"  # small\n# end\n\n[models.c]\nmodel=\"y\" # no flags\n\n# last\n[models.d]\nflags = [\n  \"-c\", \"1\", # context\n  # slots\n  \"-np\", \"2\", # two\n]\n";
        let one = changed(text, "a.b", "-c 8192 -np 2");
        assert_eq!(one, text.replace("\"-c 4096\"", "\"-c 8192 -np 2\""));
        let none = changed(text, "c", "-c 1");
        assert_eq!(none, text.replace("# no flags\n", "# no flags\nflags = \"-c 1\"\n"));
        let list = changed(text, "d", "-c 9 -np 2 -fa on");
        assert!(list.contains("\"-c\", \"9\", # context\n  # slots\n  \"-np\", \"2\","), "{list}");
        assert_eq!(WrittenFlags::of(&list, "d").unwrap().text().unwrap(), "-c 9 -np 2 -fa on");
        let shorter = changed(&list, "d", "-np 2");
        assert_eq!(WrittenFlags::of(&shorter, "d").unwrap().text().unwrap(), "-np 2");
        assert_eq!(WrittenFlags::of(&changed(&shorter, "d", " "), "d").unwrap().text().unwrap(), "");
    }

    #[test]
    fn each_way_to_write_a_section_is_changed() {
        for text in [
            "models.a.model = \"x\"\nmodels.a.flags = '-c 1'\n",
            "[models]\na = { model = \"x\", flags = \"-c 1\" } # inline\n",
            "[models]\na.model = \"x\"\n",
            "[models.a]\nmodel = \"x\"\nflags = \"\"\"\n  -c 1\n  # note\n\"\"\"\n",
            "[models.a]\r\nmodel = \"x\"\r\nflags = \"-c 1\" # windows\r\n[models.b]\r\nmodel = \"y\"\r\n",
            "[models.\"a\"]\nmodel = \"x\"",
        ] {
            let new = changed(text, "a", "-c 2 --override-tensor 'a\"b=CPU'");
            let read = WrittenFlags::of(&new, "a").unwrap().text().unwrap();
            assert_eq!(read, "-c 2 --override-tensor 'a\"b=CPU'", "{text} → {new}");
            assert_eq!(text.contains("\r\n"), new.contains("\r\n"), "{new:?}");
            assert_eq!(
                text.matches('#').count(),
                new.matches('#').count() + text.matches("# note").count(),
                "{new}"
            );
        }
    }

    #[test]
    fn names_of_all_kinds_are_found_and_others_are_refused() {
        for name in ["a.b", "it's \"so\"", "[x]", "é\u{202e}", ""] {
            let key = toml_edit::Key::new(name);
            let text = format!("[models.{key}]\nmodel = \"x\" # c\n");
            let new = changed(&text, name, "-c 5");
            assert!(new.starts_with(&text), "{new}");
            assert_eq!(WrittenFlags::of(&new, name).unwrap().text().unwrap(), "-c 5");
        }
        let refusal =
            |text: &str, model| WrittenFlags::of(text, model).and_then(|flags| flags.replaced("-c 1"));
        let text = "models = 5\n";
        assert!(matches!(refusal(text, "a"), Err(ChangeFlagsError::FindModel(_))));
        let text = "[models.a]\ncmd = \"x ${PORT}\"\n[models.b]\nflags = 5\n[models.c]\nflags = [\"a\"]\n";
        assert!(matches!(refusal(text, "a"), Err(ChangeFlagsError::FindFlags(_))));
        assert!(matches!(refusal(text, "b"), Err(ChangeFlagsError::ReadFlags(_))));
        assert!(matches!(refusal("[models.a\n", "a"), Err(ChangeFlagsError::ReadText(_))));
        let open = WrittenFlags::of(text, "c").unwrap().replaced("'a");
        assert!(matches!(open, Err(ChangeFlagsError::SplitFlags(_))));
    }

    #[test]
    fn flags_that_reach_beyond_the_model_stay_as_the_file_has_them() {
        let entry = |flags: &str| {
            let text = format!("[models.a]\nmodel = \"x\"\nflags = \"{flags}\"\n");
            plimsoll_config::parse("p.toml", &text, &|_| None).unwrap().models.remove(0)
        };
        let refused = |old: &str, new: &str| {
            let found = entry(new).flags_beyond_reach(&entry(old));
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let kept = "--lora a --log-file /l";
        assert_eq!(refused(&format!("{kept} -c 1"), &format!("-c 2 -np 1 {kept} -ctk q8_0 -fa on")), "");
        for (old, new, word) in [
            ("", "--log-file /etc/x", "--log-file"),
            (kept, "--lora b --log-file /l", "--lora"),
            (kept, "--log-file /l", "--lora"),
            ("", "--model /etc/shadow", "--model"),
            ("", "--tools all", "--tools"),
            ("", "--mcp-servers-json {}", "--mcp-servers-json"),
            ("", "--gpt-oss-20b-default", "--gpt-oss-20b-default"),
            ("", "--rpc h:1", "--rpc"),
            ("-m a -m b", "-m b -m a", "--model"),
        ] {
            let said = refused(old, new);
            assert!(said.starts_with("p.toml:") && said.contains(word), "{old} → {new}: {said}");
        }
    }

    #[test]
    fn each_harmless_flag_is_one_of_the_table() {
        for name in HARMLESS.split_whitespace() {
            let found = plimsoll_flags::table::by_argument(name).expect(name);
            assert_eq!(found.flag.name(), name);
        }
    }
}
