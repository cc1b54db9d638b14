//! Parses queries of `/api/what-if`: a model with other settings, or memory to keep free.

use http::StatusCode;
use plimsoll_base::Bytes;

use super::problem::HttpProblem;
use super::query;

const MOST_TOKENS: u64 = 1 << 26;
const MOST_SLOTS: u64 = 256;
const CACHE_TYPES: [&str; 9] = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"];

/// Error in a dry run.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    #[error("the flags cannot be read: {0}")]
    Flags(String),
    #[error("the model's flags are unknown, because its command is not llama-server")]
    NoFlags,
    #[error("the model cannot be planned with these settings: {0}")]
    Failed(String),
}

impl From<WhatIfError> for HttpProblem {
    fn from(error: WhatIfError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_what_if", error.to_string())
    }
}

/// Flags of llama-server for `?context=`, `?slots=` and `?cache=`; empty for the model as it is configured.
pub(crate) fn flags(requested: Option<&str>) -> Result<Vec<String>, HttpProblem> {
    let mut flags = Vec::new();
    for (name, flag, most) in [("context", "--ctx-size", MOST_TOKENS), ("slots", "--parallel", MOST_SLOTS)] {
        if let Some(text) = query::parameter(requested, name) {
            let count = text.parse().ok().filter(|count: &u64| (1..=most).contains(count));
            let count = count.ok_or_else(|| bad(format!("`{name}` must be a number from 1 to {most}")))?;
            flags.extend([flag.to_owned(), count.to_string()]);
        }
    }
    if let Some(text) = query::parameter(requested, "cache") {
        let kind = CACHE_TYPES.iter().find(|kind| **kind == text);
        let kind = kind.ok_or_else(|| bad(format!("`cache` must be one of {}", CACHE_TYPES.join(", "))))?;
        for flag in ["--cache-type-k", "--cache-type-v"] {
            flags.extend([flag.to_owned(), (*kind).to_owned()]);
        }
    }
    Ok(flags)
}

/// The size of `?yield=8GiB`, for a yield instead of a load.
pub(crate) fn kept_free(requested: Option<&str>) -> Result<Option<Bytes>, HttpProblem> {
    let size = query::parameter(requested, "yield").map(|text| text.parse());
    size.transpose().map_err(|_| bad("`yield` must be a size such as 8GiB".to_owned()))
}

fn bad(message: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "bad_what_if", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_known_types_become_flags() {
        let stated = flags(Some("model=a&context=8192&slots=2&cache=q8_0")).unwrap().join(" ");
        assert_eq!(stated, "--ctx-size 8192 --parallel 2 --cache-type-k q8_0 --cache-type-v q8_0");
        assert!(flags(None).unwrap().is_empty());
        for hostile in
            ["context=0", "context=-1", "context=99999999999999999999", "slots=257", "cache=--lora"]
        {
            assert_eq!(flags(Some(hostile)).unwrap_err().code, "bad_what_if", "{hostile}");
        }
    }
}
