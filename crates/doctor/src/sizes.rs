//! Parser of sizes in logs: `805.66 MiB`, `120,00 MB`, `24GB`, `0 bytes`, `3649053696`.
//!
//! MB and GB are binary here, because engines and drivers print MB for MiB. The parser of user input
//! ([`Bytes`]) reads them as decimal.

use plimsoll_base::Bytes;

/// Maximum number of digits of a size.
const LONGEST_NUMBER: usize = 24;

/// The size right after `phrase`, matched without regard to case; a bare number is bytes.
pub(super) fn after(line: &str, phrase: &str) -> Option<Bytes> {
    let rest = behind(line, phrase)?;
    let rest = rest.trim_start_matches([' ', '\t', '=', ':', '~', '"', '[', '(']);
    read(rest).map(|(size, _)| size)
}

/// The whole number right after `phrase`.
pub(super) fn count_after(line: &str, phrase: &str) -> Option<u64> {
    count(behind(line, phrase)?)
}

/// The whole number at the start of `text`.
pub(super) fn count(text: &str) -> Option<u64> {
    let rest = text.trim_start_matches([' ', '\t', '=', ':', '(', '\'', '"']);
    let digits = rest.bytes().take(LONGEST_NUMBER).take_while(u8::is_ascii_digit);
    rest[..digits.count()].parse().ok()
}

/// The text after `phrase`, which is in lower case.
pub(super) fn behind<'a>(line: &'a str, phrase: &str) -> Option<&'a str> {
    let (bytes, phrase) = (line.as_bytes(), phrase.as_bytes());
    let first = *phrase.first()?;
    // Several readers look for several phrases in each line: the first byte is searched with SIMD.
    let mut places = memchr::memchr2_iter(first, first.to_ascii_uppercase(), bytes);
    let at = places.find(|at| {
        let start = bytes.get(*at..at + phrase.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(phrase))
    })?;
    line.get(at + phrase.len()..)
}

/// Every size with a unit in `text`, in order, with the text that follows it.
pub(super) fn all(text: &str) -> impl Iterator<Item = (Bytes, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find(|c: char| c.is_ascii_digit())?;
            let glued = at > 0 && rest.as_bytes()[at - 1].is_ascii_alphabetic();
            let number = number(&rest[at..]);
            let behind = &rest[at + number.len()..];
            rest = behind;
            // `7B` is a model; `16k` and `1M` are tokens.
            if let (false, Some((unit, length))) = (glued, unit(behind))
                && !matches!(behind.as_bytes()[length - 1], b'B' | b'b' | b'k' | b'K' | b'm' | b'M' if length == 1)
                && let Some(size) = scaled(number, unit)
            {
                rest = &behind[length..];
                return Some((size, rest));
            }
        }
    })
}

/// The size at the start of `text`, and the text after it.
fn read(text: &str) -> Option<(Bytes, &str)> {
    let number = number(text);
    let behind = &text[number.len()..];
    match unit(behind) {
        Some((unit, length)) => Some((scaled(number, unit)?, &behind[length..])),
        None => Some((scaled(number, "B")?, behind)),
    }
}

fn number(text: &str) -> &str {
    let length = text
        .bytes()
        .take(LONGEST_NUMBER)
        .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
        .count();
    // A sentence may end after a number.
    text[..length].trim_end_matches(['.', ','])
}

/// A unit and the length that it takes, with the space before it.
fn unit(text: &str) -> Option<(&'static str, usize)> {
    let spaces = text.len() - text.trim_start_matches([' ', '-']).len();
    let word = &text[spaces..];
    let length = word.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let unit = match word[..length].to_ascii_lowercase().as_str() {
        "bytes" | "b" => "B",
        "kib" | "kb" | "ki" | "k" => "KiB",
        "mib" | "mb" | "mi" | "m" => "MiB",
        "gib" | "gb" | "gi" | "g" => "GiB",
        "tib" | "tb" => "TiB",
        _ => return None,
    };
    (spaces <= 1 && (spaces == 0 || length > 1)).then_some((unit, spaces + length))
}

fn scaled(number: &str, unit: &str) -> Option<Bytes> {
    let number = match number.matches([',', '.']).count() {
        0 => number.to_owned(),
        1 => number.replace(',', "."),
        // 12,345,678 as people group it.
        _ => number.replace(',', ""),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let fraction = fraction.get(..fraction.len().min(9))?;
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{whole}{point}{fraction}{unit}").parse().ok()
}

/// Bytes for arithmetic with shares, to the whole MiB.
pub(super) fn in_float(bytes: Bytes) -> f64 {
    // An f64 counts MiB exactly up to 2^53, and no machine has more than u32 of them.
    let mib = u32::try_from(bytes.whole_mib()).unwrap_or(u32::MAX);
    f64::from(mib) * 1_048_576.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_behind_a_phrase_is_read_in_each_notation() {
        for (line, phrase, size) in [
            ("allocating 805.50 MiB on device 0", "allocating ", Bytes::kib(824_832)),
            ("Tried to allocate 2.00 GiB. GPU", "tried to allocate ", Bytes::gib(2)),
            ("allocate 120,00 MiB of pinned", "allocate ", Bytes::mib(120)),
            ("buffer of size 3649053696", "of size ", Bytes::new(3_649_053_696)),
            ("VRAM: 24GB", "vram", Bytes::gib(24)),
            ("Free (according to CUDA): 0 bytes", "cuda)", Bytes::ZERO),
        ] {
            assert_eq!(after(line, phrase), Some(size), "{line}");
        }
        assert_eq!(after("allocating 99999999999999999999999999 MiB", "allocating "), None);
        assert_eq!(after("nothing", "allocating "), None);
    }

    #[test]
    fn all_sizes_of_a_sentence_are_found_and_nothing_else() {
        let sizes = |text| all(text).map(|(size, _)| size).collect::<Vec<_>>();
        assert_eq!(
            sizes("3. 1051MB of 24 GB on RTX3090, 16k tokens, CUDA0, R36.4.7"),
            [Bytes::mib(1051), Bytes::gib(24)]
        );
        assert_eq!(sizes("no size, 12 parsecs, 7B parameters"), []);
    }
}
