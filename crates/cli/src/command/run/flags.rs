//! Reads the flags of a llama.cpp program: its arguments, and the variables of its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

use plimsoll_flags::Options;

use crate::report::ErrorReport;

/// As in llama.cpp, an argument overrides the environment variable of the same option.
pub(super) fn flags(arguments: &[OsString]) -> Result<Options, ErrorReport> {
    // Lossy conversion would plan another file than the one that the program opens.
    let words = arguments.iter().map(|word| word.to_str().map(str::to_owned));
    let words: Vec<String> =
        words.collect::<Option<_>>().ok_or_else(|| ErrorReport::new("an argument is not valid UTF-8"))?;
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(Options::from_argv(&words)?.merged_over(&Options::from_env(variables)?))
}
