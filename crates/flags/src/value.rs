//! Values of llama-server's flags as typed, and the words that llama.cpp accepts for on and off.

/// Value given for a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagValue {
    /// Nothing: the flag alone.
    Bare,
    /// One of an on-off pair: `--mmap` or `--no-mmap`.
    Switch(bool),
    Text(String),
    Pair(String, String),
}

/// `common_arg_utils::is_truthy` and `is_falsey`; `None` for any other text.
pub fn truth(text: &str) -> Option<bool> {
    match text {
        // Case-sensitive, as there: `ON` is neither.
        "on" | "enabled" | "true" | "1" => Some(true),
        "off" | "disabled" | "false" | "0" => Some(false),
        _ => None,
    }
}
