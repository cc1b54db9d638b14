//! Matches model names against patterns in which `*` stands for any characters.

/// True if `name` is `pattern`, whose `*` stand for any characters.
pub fn fits_pattern(name: &str, pattern: &str) -> bool {
    let Some((beginning, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut name) = name.strip_prefix(beginning) else { return false };
    let mut parts = rest.split('*');
    let end = parts.next_back().unwrap_or_default();
    for part in parts {
        // The first place is the best: whatever fits behind a later one fits behind the first.
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_an_alias_stands_for_any_characters() {
        for (name, pattern, fits) in [
            ("claude-3-opus", "claude-*", true),
            ("claude-", "claude-*", true),
            ("claude", "claude-*", false),
            ("gpt-4.1-mini", "gpt-*-mini", true),
            ("gpt-mini", "gpt-*-mini", false),
            ("abab", "*ab*ab", true),
            ("ab", "*ab*ab", false),
            ("anything", "*", true),
            ("", "*", true),
            ("é", "*é*", true),
            ("a", "a", true),
            ("a", "b", false),
        ] {
            assert_eq!(fits_pattern(name, pattern), fits, "{name} {pattern}");
        }
        // Many stars and a long name are no work.
        assert!(!fits_pattern(&"a".repeat(4096), &format!("{}b", "a*".repeat(2000))));
    }
}
