//! Paths that name other modules of the same crate: `crate::…`, `super::…` and `self::…`, also in `use`
//! groups.

use super::Reader;

/// A path as written, with the inline modules that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::house) struct ModulePath {
    pub(in crate::house) within: Vec<String>,
    /// `crate`, `super` or `self` first.
    pub(in crate::house) segments: Vec<String>,
    pub(in crate::house) line: usize,
}

/// All such paths outside inline test modules.
pub(super) fn read(reader: &Reader<'_>) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for at in 0..reader.tokens.len() {
        let is_root = matches!(reader.text(at), "crate" | "super" | "self") && reader.text(at + 1) == "::";
        // `$crate::` in a macro counts as well; `pub(in crate::a)` is a visibility and no import.
        let is_start = at == 0 || !matches!(reader.text(at - 1), "::" | "in");
        if is_root && is_start && !reader.is_test(at) {
            let mut segments = Vec::new();
            branch(reader, at, &mut Vec::new(), &mut segments);
            let within = reader.within(at);
            let line = reader.tokens[at].line;
            found.extend(segments.into_iter().map(|segments| ModulePath {
                within: within.clone(),
                segments,
                line,
            }));
        }
    }
    found
}

/// Reads one path or group at `at` below `before`, adds its leaves to `found` and returns the index behind
/// it.
fn branch(
    reader: &Reader<'_>,
    mut at: usize,
    before: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> usize {
    let depth = before.len();
    while reader.is_name(at) {
        before.push(reader.text(at).to_owned());
        at += 1;
        if reader.text(at) != "::" {
            break;
        }
        at += 1;
    }
    if reader.text(at) == "{" && reader.text(at - 1) == "::" {
        let end = reader.closing[at];
        at += 1;
        while at < end {
            at = branch(reader, at, before, found);
            while at < end && reader.text(at) != "," {
                at += 1;
            }
            at += 1;
        }
        at = end + 1;
    } else {
        let leaf = before.last().is_some_and(|last| last == "self") && before.len() > 1;
        let length = before.len() - usize::from(leaf);
        found.push(before[..length].to_vec());
    }
    before.truncate(depth);
    at
}
