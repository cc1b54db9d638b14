//! Writes a number with its noun in the singular or the plural: `1 request`, `2 requests`.

/// The number and the noun; a noun that ends in a hissing sound takes `es`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let ending = match count {
        1 => "",
        _ if ["s", "x", "ch"].iter().any(|end| noun.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_every_other_number_plural() {
        for (count, reported) in [(0_u64, "0 requests"), (1, "1 request"), (2, "2 requests")] {
            assert_eq!(counted(count, "request"), reported);
        }
        assert_eq!(
            (counted(2_usize, "process"), counted(1_i32, "process")),
            ("2 processes".to_owned(), "1 process".to_owned())
        );
    }
}
