//! Reads the command line of `vllm serve`: the model, and the flags that decide its memory.
//!
//! vLLM has some two hundred flags. Those that change memory in a way that is not computed are refused; those
//! without influence on memory are passed over.

use crate::cache::{CacheType, StateHistory};
use crate::plan::Utilisation;
use crate::weights::LoadedAs;
use plimsoll_base::Bytes;

/// What the flags of `vllm serve` say of memory. `None` is vLLM's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeCommand {
    /// A folder, or a repository of the hub.
    pub model: Option<String>,
    pub tensor_parallel: Option<u64>,
    pub utilisation: Option<Utilisation>,
    /// Longest context in tokens; `Some(0)` is the longest that fits (`auto`).
    pub longest: Option<u64>,
    pub sequences: Option<u64>,
    pub batched: Option<u64>,
    pub cache_type: CacheType,
    pub block: Option<u64>,
    pub is_eager: bool,
    pub loaded_as: Option<LoadedAs>,
    pub offloaded: Bytes,
    /// Size of the cache, which replaces the utilisation.
    pub cache: Option<Bytes>,
    pub history: Option<StateHistory>,
    pub state_number: Option<u64>,
    pub is_one_group: bool,
}

/// Error: the command line cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("{flag} needs a value")]
    NoValue { flag: String },
    #[error("`{value}` is not a value of {flag}; {expected}")]
    Value { flag: String, value: String, expected: &'static str },
    #[error(
        "{flag} changes the memory in a way that is not computed\nhint: plan without it, or start vLLM once and read its log"
    )]
    NotPlanned { flag: String },
    #[error("two models are named, `{0}` and `{1}`")]
    TwoModels(String, String),
}

/// Flags that change memory in a way that is not computed. Those with a value of 1 change nothing.
const NOT_PLANNED: [&str; 10] = [
    "--speculative-config",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--decode-context-parallel-size",
    "--prefill-context-parallel-size",
    "--enable-lora",
    "--hf-overrides",
    "--hf-config-path",
    "--num-gpu-blocks-override",
    "--enable-dbo",
];

/// No number of vLLM's flags is larger, not even the bytes of a cache.
const LARGEST: u64 = 1 << 44;

/// Short names of vLLM's flags.
const SHORT: [(&str, &str); 5] = [
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
    ("-dcp", "--decode-context-parallel-size"),
    ("-q", "--quantization"),
];

impl ServeCommand {
    /// Reads the words after `vllm serve`.
    pub fn read(words: &[String]) -> Result<Self, CommandError> {
        let (mut command, mut at) = (Self::default(), 0);
        while let Some(word) = words.get(at) {
            at += 1;
            if !word.starts_with('-') {
                command.name_model(word)?;
                continue;
            }
            let (flag, joined) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let flag = full_name(flag);
            // As argparse: the next word is the value unless it is a flag; a negative number is no flag.
            let next = words.get(at).filter(|next| !next.starts_with('-') || next.parse::<f64>().is_ok());
            let is_switch = SWITCHES.contains(&flag.as_str()) || flag.starts_with("--no-");
            let value = joined.or_else(|| next.filter(|_| !is_switch).inspect(|_| at += 1).cloned());
            command.take(&flag, value)?;
        }
        Ok(command)
    }

    fn name_model(&mut self, word: &str) -> Result<(), CommandError> {
        match self.model.replace(word.to_owned()) {
            Some(first) if first != word => Err(CommandError::TwoModels(first, word.to_owned())),
            _ => Ok(()),
        }
    }

    fn take(&mut self, flag: &str, value: Option<String>) -> Result<(), CommandError> {
        let value = Value { flag, text: value };
        match flag {
            "--model" => self.name_model(value.text()?)?,
            "--tensor-parallel-size" => self.tensor_parallel = Some(value.count()?),
            "--gpu-memory-utilization" => self.utilisation = Some(value.utilisation()?),
            "--max-model-len" => self.longest = Some(value.context()?),
            "--max-num-seqs" => self.sequences = Some(value.count()?),
            "--max-num-batched-tokens" => self.batched = Some(value.count()?),
            "--kv-cache-dtype" => self.cache_type = value.cache_type()?,
            "--block-size" => self.block = Some(value.count()?),
            "--enforce-eager" => self.is_eager = true,
            "--quantization" => self.loaded_as = value.loaded_as()?,
            "--dtype" if value.text()? == "float32" => return Err(value.not_planned()),
            "--cpu-offload-gb" => self.offloaded = value.gibibytes()?,
            "--kv-cache-memory-bytes" | "--kv-cache-memory" => self.cache = Some(Bytes::new(value.count()?)),
            "--no-enable-prefix-caching" => self.history = Some(StateHistory::None),
            "--enable-prefix-caching" => self.history = Some(StateHistory::Aligned),
            "--mamba-cache-mode" => self.history = Some(value.history()?),
            "--mamba-ssm-cache-dtype" => self.state_number = value.state_number()?,
            "--disable-hybrid-kv-cache-manager" => self.is_one_group = true,
            flag if NOT_PLANNED.contains(&flag) && value.text.as_deref() != Some("1") => {
                return Err(value.not_planned());
            }
            _ => {}
        }
        Ok(())
    }
}

/// Flags without a value, before which a model may stand.
const SWITCHES: [&str; 9] = [
    "--enforce-eager",
    "--trust-remote-code",
    "--enable-prefix-caching",
    "--enable-chunked-prefill",
    "--enable-auto-tool-choice",
    "--enable-expert-parallel",
    "--disable-hybrid-kv-cache-manager",
    "--language-model-only",
    "--enable-lora",
];

/// vLLM takes `_` for `-` in the names of flags.
fn full_name(flag: &str) -> String {
    let name = SHORT.iter().find(|(short, _)| *short == flag).map_or(flag, |(_, name)| name);
    name.replace('_', "-")
}

/// The value of a flag.
struct Value<'a> {
    flag: &'a str,
    text: Option<String>,
}

impl Value<'_> {
    fn text(&self) -> Result<&str, CommandError> {
        self.text.as_deref().ok_or_else(|| CommandError::NoValue { flag: self.flag.to_owned() })
    }

    fn not_planned(&self) -> CommandError {
        CommandError::NotPlanned { flag: self.flag.to_owned() }
    }

    fn wrong(&self, expected: &'static str) -> CommandError {
        let value = self.text.clone().unwrap_or_default();
        CommandError::Value { flag: self.flag.to_owned(), value, expected }
    }

    /// A number from 1 on: `8192`, `32k` and `25.6k` (thousands), or `32K` (of 1024):
    /// `vllm/utils/argparse_utils.py:human_readable_int @ 00da11e37d1f`.
    fn count(&self) -> Result<u64, CommandError> {
        let text = self.text()?.trim();
        let wrong = || self.wrong("write a number from 1 on, such as 8192, 32k, 25.6k or 32K");
        let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
        let (scale, takes_fractions) = match unit {
            "" => (1, false),
            "k" => (1_000, true),
            "K" => (1 << 10, false),
            "m" => (1_000_000, true),
            "M" => (1 << 20, false),
            "g" => (1_000_000_000, true),
            "G" => (1 << 30, false),
            "t" => (1_000_000_000_000, true),
            "T" => (1 << 40, false),
            _ => return Err(wrong()),
        };
        let scaled = match number.split_once('.').filter(|_| takes_fractions) {
            Some((whole, fraction)) => scaled(whole, fraction, scale),
            None => number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)),
        };
        scaled.filter(|number| (1..=LARGEST).contains(number)).ok_or_else(wrong)
    }

    fn context(&self) -> Result<u64, CommandError> {
        match self.text()? {
            "-1" | "auto" => Ok(0),
            _ => self.count(),
        }
    }

    fn utilisation(&self) -> Result<Utilisation, CommandError> {
        self.text()?
            .parse()
            .map_err(|()| self.wrong("write a share of the card's memory from 0.01 to 1, such as 0.9"))
    }

    fn gibibytes(&self) -> Result<Bytes, CommandError> {
        let text = format!("{}GiB", self.text()?);
        text.parse().map_err(|_| self.wrong("write GiB, such as 10"))
    }

    fn cache_type(&self) -> Result<CacheType, CommandError> {
        Ok(match self.text()? {
            "auto" => CacheType::Auto,
            "bfloat16" | "float16" => CacheType::Bits16,
            "fp8" | "fp8_e4m3" | "fp8_e5m2" | "fp8_inc" | "fp8_ds_mla" => CacheType::Bits8,
            "int8_per_token_head" | "fp8_per_token_head" => CacheType::Bits8WithScales,
            "nvfp4" => CacheType::Bits4,
            _ => {
                return Err(self.wrong(
                    "known are auto, bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2, fp8_ds_mla, \
                int8_per_token_head, fp8_per_token_head and nvfp4",
                ));
            }
        })
    }

    /// A checkpoint that is quantised already stays as it is stored.
    fn loaded_as(&self) -> Result<Option<LoadedAs>, CommandError> {
        Ok(match self.text()? {
            "fp8" => Some(LoadedAs::Fp8),
            "bitsandbytes" => Some(LoadedAs::BitsAndBytes),
            "gguf" => return Err(self.not_planned()),
            _ => None,
        })
    }

    fn history(&self) -> Result<StateHistory, CommandError> {
        Ok(match self.text()? {
            "none" => StateHistory::None,
            "align" => StateHistory::Aligned,
            "all" => StateHistory::All,
            _ => return Err(self.wrong("known are none, align and all")),
        })
    }

    fn state_number(&self) -> Result<Option<u64>, CommandError> {
        Ok(match self.text()? {
            "auto" => None,
            "float32" => Some(4),
            "float16" | "bfloat16" => Some(2),
            _ => return Err(self.wrong("known are auto, float32, float16 and bfloat16")),
        })
    }
}

/// `25.6` thousands are 25 600: whole numbers, as vLLM rounds down.
fn scaled(whole: &str, fraction: &str, scale: u64) -> Option<u64> {
    /// More digits than the largest scale has.
    const DIGITS: usize = 12;
    if fraction.is_empty() || !fraction.chars().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits: u128 = format!("{fraction:0<DIGITS$}").get(..DIGITS)?.parse().ok()?;
    let part = u64::try_from(digits * u128::from(scale) / 10_u128.pow(12)).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part)
}
