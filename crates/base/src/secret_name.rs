//! Decides by its name whether a flag, a variable or a key of JSON holds a secret.

/// Ends of words that name a secret. `TOKENS` is a number in this field.
const ENDS: [&str; 12] = [
    "key",
    "keys",
    "token",
    "secret",
    "secrets",
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "cookie",
];
/// Whole words that do.
const WORDS: [&str; 5] = ["pass", "pw", "auth", "oauth", "pat"];
/// Parts of words that stand in no name of anything else.
const PARTS: [&str; 3] = ["secret", "passw", "credential"];

/// True for a name that ends as those of secrets do, also with a number behind it: `VLLM_API_KEY_2`.
pub fn ends_as_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_');
    is_end(name.rsplit(['-', '_']).next().unwrap_or_default())
}

/// True for a name that may be that of a secret. For what is only hidden: a name too many costs nothing.
///
/// Of a variable any word counts (`AWS_ACCESS_KEY_ID`), of a flag the last: `--api-key-file` names a file,
/// and `--max-tokens` is a number.
pub fn may_name_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_secret = |word: &str| is_end(word) || PARTS.iter().any(|part| word.contains(part));
    let is_variable = !name.contains('-') && !name.ends_with("_file");
    is_secret(name.rsplit(['-', '_']).next().unwrap_or_default())
        || is_variable && name.split('_').any(is_secret)
}

fn is_end(word: &str) -> bool {
    ENDS.iter().any(|end| word.ends_with(end)) || WORDS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_differ_from_others() {
        for name in
            ["HF_TOKEN", "VLLM_API_KEY_2", "ray_auth", "--api-key", "apiKey", "DB_PASSWORD", "GIT_PAT"]
        {
            assert!(ends_as_secret(name) && may_name_secret(name), "{name}");
        }
        for name in ["AWS_ACCESS_KEY_ID", "SECRETKEY_BASE", "SSH_AUTH_SOCK", "PASSWORD_STORE", "OAUTH_CLIENT"]
        {
            assert!(!ends_as_secret(name) && may_name_secret(name), "{name}");
        }
        for name in [
            "--api-key-file",
            "--max-tokens",
            "TOKENIZERS_PARALLELISM",
            "PATH",
            "KEYBOARD",
            "API_KEY_FILE",
            "",
        ] {
            assert!(!ends_as_secret(name) && !may_name_secret(name), "{name}");
        }
    }
}
