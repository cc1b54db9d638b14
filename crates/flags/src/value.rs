//! Parses the values of llama-server's flags, and the words that llama.cpp accepts for on and off.

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

/// `std::stoi`: leading blanks, a sign, digits; the rest is left over. `None` without digits or out of range.
pub(crate) fn leading_integer(text: &str) -> Option<(i32, &str)> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(text.len() - unsigned.len() + digits);
    number.parse().ok().filter(|_| digits > 0).map(|number| (number, rest))
}
