//! Parses the values of llama-server's flags, by the rules of `common/arg.cpp @ b10605`.
//!
//! As with `std::stoi`, a number ends at the first character that is not a digit. So a running engine with
//! `-c 8k` has a context of 8. For an engine that is still to be started,
//! [`Flag::whole_number`](crate::table::Flag::whole_number) refuses such a value.

use plimsoll_base::Bytes;
use plimsoll_model::{Pooling, TensorType, types};

use crate::failure::{FlagError, FlagProblem, quoted};
use crate::origin::FlagOrigin;
use crate::params::{BufferOverride, FlashAttention, GpuLayers, Parallel, RemoteSource, SplitMode};
use crate::value::{FlagValue, leading_integer, truth};

/// `kv_cache_types`.
const CACHE_TYPES: [TensorType; 9] = [
    types::F32,
    types::F16,
    types::BF16,
    types::Q8_0,
    types::Q4_0,
    types::Q4_1,
    types::IQ4_NL,
    types::Q5_0,
    types::Q5_1,
];

/// `llama_max_devices`.
const MOST_DEVICES: usize = 16;

/// A flag's value, with the names needed for an error message.
#[derive(Debug)]
pub struct GivenFlag<'a> {
    pub(crate) flag: &'static str,
    pub(crate) value: &'a FlagValue,
    pub(crate) origin: &'a FlagOrigin,
}

impl GivenFlag<'_> {
    fn error(&self, expected: &'static str) -> FlagError {
        let value = match self.value {
            FlagValue::Text(text) | FlagValue::Pair(text, _) => quoted(text),
            FlagValue::Bare | FlagValue::Switch(_) => String::new(),
        };
        FlagError {
            origin: self.origin.clone(),
            problem: FlagProblem::ReadValue { flag: self.flag, value, expected },
        }
    }

    pub(crate) fn on(&self) -> bool {
        *self.value != FlagValue::Switch(false)
    }

    /// Source of a model on a server, of this kind.
    pub(crate) fn remote(&self, kind: fn(String) -> RemoteSource) -> Result<Option<RemoteSource>, FlagError> {
        self.text().map(|text| Some(kind(text)))
    }

    pub(crate) fn text(&self) -> Result<String, FlagError> {
        match self.value {
            FlagValue::Text(text) => Ok(text.clone()),
            FlagValue::Bare | FlagValue::Switch(_) | FlagValue::Pair(..) => Err(self.error("a value")),
        }
    }

    fn integer(&self) -> Result<i32, FlagError> {
        let text = self.text()?;
        leading_integer(&text).map(|(number, _)| number).ok_or_else(|| self.error("a whole number"))
    }

    pub(crate) fn natural(&self) -> Result<u32, FlagError> {
        // Negative numbers are refused here, where llama.cpp would wrap or exit.
        let number = self.integer().ok().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.error("a whole number from 0 to 2147483647"))
    }

    pub(crate) fn parallel(&self) -> Result<Parallel, FlagError> {
        match self.integer()? {
            0 => Err(self.error("a number of at least 1, or -1 for automatic")),
            count => Ok(u32::try_from(count).map_or(Parallel::Auto, Parallel::Count)),
        }
    }

    pub(crate) fn cache_type(&self) -> Result<TensorType, FlagError> {
        let name = self.text()?;
        // Exact names: llama.cpp compares case-sensitively.
        let known = CACHE_TYPES.into_iter().find(|kind| kind.name == name);
        // A fork's own type takes no more than the cache that it replaces.
        let known = known.or_else(|| is_of_fork(&name).then_some(types::F16));
        known.ok_or_else(|| self.error("one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 and q5_1"))
    }

    pub(crate) fn pooling(&self) -> Result<Pooling, FlagError> {
        Pooling::from_name(&self.text()?).ok_or_else(|| self.error("one of none, mean, cls, last and rank"))
    }

    pub(crate) fn flash_attention(&self) -> Result<FlashAttention, FlagError> {
        if *self.value == FlagValue::Bare {
            return Ok(FlashAttention::On);
        }
        let text = self.text()?;
        match truth(&text) {
            Some(true) => Ok(FlashAttention::On),
            Some(false) => Ok(FlashAttention::Off),
            None if text == "auto" || text == "-1" => Ok(FlashAttention::Auto),
            None => Err(self.error("one of on, off and auto")),
        }
    }

    pub(crate) fn truth(&self) -> Result<bool, FlagError> {
        if *self.value == FlagValue::Bare {
            return Ok(true);
        }
        truth(&self.text()?).ok_or_else(|| self.error("on or off"))
    }

    pub(crate) fn layers(&self) -> Result<GpuLayers, FlagError> {
        match self.text()?.as_str() {
            "auto" => return Ok(GpuLayers::Auto),
            "all" => return Ok(GpuLayers::All),
            _ => {}
        }
        let count = self.integer().map_err(|_| self.error("a number of layers, auto or all"))?;
        Ok(match count {
            -1 => GpuLayers::Auto,
            _ => u32::try_from(count).map_or(GpuLayers::All, GpuLayers::Count),
        })
    }

    pub(crate) fn split_mode(&self) -> Result<SplitMode, FlagError> {
        match self.text()?.as_str() {
            "none" => Ok(SplitMode::None),
            "layer" => Ok(SplitMode::Layer),
            "row" => Ok(SplitMode::Row),
            "tensor" => Ok(SplitMode::Tensor),
            _ => Err(self.error("one of none, layer, row and tensor")),
        }
    }

    /// Numbers separated by runs of `,` and `/`, as in llama.cpp's regular expression; no separator may
    /// precede the first.
    pub(crate) fn proportions(&self) -> Result<Vec<f32>, FlagError> {
        let text = self.text()?;
        // The regex of llama.cpp ignores separators at the end, but not before the first field.
        let text = text.trim_end_matches([',', '/']);
        let error = || self.error("up to 15 proportions of at least 0, e.g. 3,1");
        let mut all = Vec::new();
        let mut first = true;
        for field in text.split([',', '/']) {
            if field.is_empty() && !first {
                continue;
            }
            first = false;
            let proportion = leading_float(field).filter(|&part| part.is_finite() && part >= 0.0);
            all.push(proportion.ok_or_else(error)?);
        }
        if all.len() >= MOST_DEVICES { Err(error()) } else { Ok(all) }
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, FlagError> {
        let names: Vec<String> = self.text()?.split(',').map(str::to_owned).collect();
        // An empty name selects no device and makes llama.cpp exit.
        if names.iter().any(String::is_empty) {
            return Err(self.error("names of devices, e.g. CUDA0,CUDA1, or the word none"));
        }
        Ok(names)
    }

    pub(crate) fn overrides(&self) -> Result<Vec<BufferOverride>, FlagError> {
        let text = self.text()?;
        let each = text.split(',').map(|item| {
            let (pattern, buffer) = item.split_once('=')?;
            Some(BufferOverride { pattern: pattern.to_owned(), buffer: buffer.to_owned() })
        });
        each.collect::<Option<Vec<_>>>().ok_or_else(|| self.error("PATTERN=BUFFER, e.g. \"exps=CPU\""))
    }

    /// The override that `--n-cpu-ffn` stands for (`common.h: llm_add_n_cpu_ffn_overrides @ 0.5.0`).
    pub(crate) fn dense_layers_on_host(&self) -> Result<Vec<BufferOverride>, FlagError> {
        // No model has as many layers; a larger number would only make the pattern longer.
        let numbers: Vec<String> = (0..self.natural()?.min(1024)).map(|layer| layer.to_string()).collect();
        let pattern = format!(r"blk\.({})\.ffn_(up|down|gate)\.", numbers.join("|"));
        let on_host = BufferOverride { pattern, buffer: "CPU".to_owned() };
        Ok(if numbers.is_empty() { Vec::new() } else { vec![on_host] })
    }

    pub(crate) fn scaled_files(&self) -> Result<Vec<String>, FlagError> {
        // The scale is checked and dropped: memory does not depend on it.
        let each = fields(&self.text()?).into_iter().map(|item| {
            let (file, scale) = item.split_once(':')?;
            leading_float(scale).filter(|_| !scale.contains(':'))?;
            Some(file.to_owned())
        });
        each.collect::<Option<Vec<_>>>().ok_or_else(|| self.error("FILE:SCALE, e.g. style.gguf:0.5"))
    }

    /// True for a mode that maps the file, and true for one that locks what it maps.
    pub(crate) fn load_mode(&self) -> Result<(bool, bool), FlagError> {
        match self.text()?.as_str() {
            "auto" | "mmap" => Ok((true, false)),
            "mmap+mlock" => Ok((true, true)),
            "none" | "mlock" | "dio" => Ok((false, false)),
            _ => Err(self.error("one of auto, none, mmap, mlock, mmap+mlock and dio")),
        }
    }

    pub(crate) fn fields(&self) -> Result<Vec<String>, FlagError> {
        self.text().map(|text| fields(&text))
    }

    pub(crate) fn mebibytes(&self) -> Result<Bytes, FlagError> {
        self.natural().map(|number| Bytes::mib(number.into()))
    }

    pub(crate) fn mebibytes_or_no_limit(&self) -> Result<Option<Bytes>, FlagError> {
        Ok(u64::try_from(self.integer()?).ok().map(Bytes::mib))
    }

    pub(crate) fn speculation(&self) -> Result<Vec<String>, FlagError> {
        const METHODS: [&str; 11] = [
            "none",
            "draft-simple",
            "draft-eagle3",
            "draft-mtp",
            "draft-dflash",
            "draft-dspark",
            "ngram-simple",
            "ngram-map-k",
            "ngram-map-k4v",
            "ngram-mod",
            "ngram-cache",
        ];
        let text = self.text()?;
        if text.split(',').all(|name| METHODS.contains(&name)) {
            return Ok(text.split(',').map(str::to_owned).collect());
        }
        Err(self.error(
            "a type that llama-server knows, such as draft-simple, draft-mtp, draft-eagle3 or ngram-mod",
        ))
    }
}

/// Cache types of forks, whose sizes are not known: `turbo2`, `turbo3_0`, ik_llama.cpp's `q6_0` and `q8_KV`.
pub(crate) fn is_of_fork(name: &str) -> bool {
    let has_number = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    ["turbo", "tbq", "tq", "kvarn"].into_iter().any(has_number)
        || matches!(name, "q6_0" | "q8_KV" | "q8_KV_R8" | "iq4_k" | "iq4_ks" | "iq5_ks" | "iq6_k")
}

/// `std::stof`, for decimal numbers: the longest prefix that is one.
fn leading_float(text: &str) -> Option<f32> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E')))
        .unwrap_or(text.len());
    // A number that `f32` can tell apart is not longer than this.
    let mut prefix = text.get(..end.min(64))?;
    // Rust has no prefix parser for floats; at most 64 attempts.
    while !prefix.is_empty() {
        if let Ok(number) = prefix.parse() {
            return Some(number);
        }
        prefix = &prefix[..prefix.len() - 1];
    }
    None
}

/// `parse_csv_row`: fields between commas; a field in double quotes may hold commas, and `""` for one quote.
fn fields(row: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut rest = row.chars().peekable();
    while let Some(c) = rest.next() {
        let Some(field) = fields.last_mut() else { break };
        match c {
            // Doubled quotes inside a quoted field stand for one, as in CSV.
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => fields.push(String::new()),
            _ => field.push(c),
        }
    }
    fields
}
