//! Parsers for line elements that several `/proc` files share, such as `key value unit` and `Node 0, zone
//! Normal`.

use plimsoll_base::Bytes;

/// Lines of one file that are looked at. The longest real one, `/proc/zoneinfo` of a large server, has some
/// ten thousand.
pub(super) const MOST_LINES: usize = 100_000;
/// Zones of all nodes together that are kept.
pub(super) const MOST_ZONES: usize = 4096;
/// Orders of the buddy allocator; no kernel has more than 32 and none can have more than a word has bits.
pub(super) const MOST_ORDERS: usize = 40;

/// The lines of a file, at most [`MOST_LINES`].
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(MOST_LINES)
}

/// A size with a one-letter unit: a power of 1024, whether or not a `B` follows.
pub(super) fn scaled(number: u64, unit: Option<char>) -> Option<Bytes> {
    let shift = match unit {
        None => 0,
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        Some(_) => return None,
    };
    number.checked_mul(1 << shift).map(Bytes::new)
}

/// The digits at the beginning, as a number, and what follows them.
pub(super) fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

/// `12MB`, `252kB`, `17K`: a size and what follows it.
pub(super) fn leading_size(text: &str) -> Option<(Bytes, &str)> {
    let (number, rest) = leading_number(text)?;
    // One ASCII letter, so the byte slice below stays on a character boundary.
    let unit = rest.chars().next().filter(|c| "kKmMgG".contains(*c));
    let rest = if unit.is_some() { &rest[1..] } else { rest };
    let size = scaled(number, unit)?;
    Some((size, rest.strip_prefix('B').unwrap_or(rest)))
}

/// `Node 0, zone   Normal` and what follows it.
pub(super) fn node_and_zone(line: &str) -> Option<(u32, &str, &str)> {
    let rest = line.trim_start().strip_prefix("Node")?.trim_start();
    let (node, rest) = rest.split_once(',')?;
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
    let (zone, rest) = rest.split_at(end);
    (!zone.is_empty()).then_some((node.trim().parse().ok()?, zone, rest))
}
