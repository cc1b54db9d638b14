//! Replaces secrets in the texts of a bug report: API keys, tokens, passwords, credentials in addresses, and
//! the home folder.

use regex_lite::Regex;

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// Values that are shorter occur in every text.
const SHORTEST: usize = 4;

/// Names of settings whose value is a secret, in any file format and in log lines.
const SECRET_NAMES: &str = "(?:api[_-]?keys?|access[_-]?keys?|private[_-]?key|secret|passw(?:or)?d|passphrase\
    |credentials?|webhook|(?:[_-]|\\b)token\\b|(?:[_-]|\\b)auth(?:orization)?\\b)";

/// Patterns with their replacements, in the order in which they are applied.
fn patterns() -> Vec<(String, String)> {
    let closed = r#""(?:[^"\\]|\\.)*"|'[^']*'|\[(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\]"'])*\]"#;
    // What is not closed ends with its line.
    let value = format!(r#"{closed}|["'\[][^\r\n]*|[^\s"',;&}}\]\[][^\r\n,;&}}\]"]*"#);
    let word = r#""[^"]*"|'[^']*'|[^\s"',\]]+"#;
    let pairs = [
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?".to_owned(),
            REDACTED.to_owned(),
        ),
        (r"(?i)((?:set-)?cookie\s*:\s*)[^\r\n]+".to_owned(), format!("${{1}}{REDACTED}")),
        (r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}".to_owned(), format!("${{1}}${{2}}{REDACTED}")),
        (r#"([A-Za-z][A-Za-z0-9+.-]*://)[^\s@"'<>/]+@"#.to_owned(), format!("${{1}}{REDACTED}@")),
        (r#"https://hooks\.[^\s"'<>]+"#.to_owned(), REDACTED.to_owned()),
        (
            r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA)[A-Za-z0-9_-]{6,}".to_owned(),
            REDACTED.to_owned(),
        ),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*".to_owned(), REDACTED.to_owned()),
        (
            format!(r#"(?i)(--?(?:hft|[\w-]*{SECRET_NAMES})["']?(?:\s*=\s*|[\s,]+))(?:{word})"#),
            format!("${{1}}{REDACTED}"),
        ),
        (
            format!(r#"(?i)(["']?[\w.-]*(?:{SECRET_NAMES}|\bkeys?\b)[\w-]*["']?\s*[:=]\s*)(?:{value})"#),
            format!("${{1}}{REDACTED}"),
        ),
        // At the start of a path: a folder may be called `home`.
        (r#"(^|[^\w./~-])(?:/home/|/Users/)[^/\s"':,]+"#.to_owned(), "${1}~".to_owned()),
    ];
    pairs.into()
}

/// Removes secrets from texts.
pub(super) struct Redactor {
    /// Known secrets, the longest first, so that none leaves a part of another.
    secrets: Vec<String>,
    home: Option<String>,
    patterns: Vec<(Regex, String)>,
}

impl Redactor {
    pub(super) fn new(secrets: impl IntoIterator<Item = String>, home: Option<String>) -> Self {
        let mut secrets: Vec<String> = secrets.into_iter().filter(|it| it.len() >= SHORTEST).collect();
        secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        let patterns = patterns().into_iter();
        // Each pattern is a constant, and a test compiles them all.
        let patterns = patterns.filter_map(|(pattern, with)| Some((Regex::new(&pattern).ok()?, with)));
        Self { secrets, home: home.filter(|home| home.len() > 1), patterns: patterns.collect() }
    }

    pub(super) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret, REDACTED);
        }
        for (pattern, with) in &self.patterns {
            text = pattern.replace_all(&text, with).into_owned();
        }
        match &self.home {
            Some(home) => text.replace(home, "~"),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_one() {
        assert!(patterns().iter().all(|(pattern, _)| Regex::new(pattern).is_ok()));
    }

    #[test]
    fn a_secret_is_found_in_every_place() {
        let redactor = Redactor::new(["pLanted-known".to_owned()], Some("/srv/people/ann".to_owned()));
        for text in [
            "api-keys = [\"pLanted1\", \"pLanted2\"]",
            "api-keys = [\n  \"pLanted1\",\n  'pLanted2',\n]",
            "[keys.friend]\nkey = \"pLanted\"",
            "[keys]\nfriend = { key = 'pLanted pLanted' }\nkeys.ann.key=\"pLanted\"",
            "hf-token = 'pLanted'",
            "password: pLanted and pLanted",
            "LLAMA_API_KEY=pLanted",
            "env = { HF_TOKEN = \"pLanted\", MY_SECRET = \"pLan\\\"pLanted\" }",
            "{\"api_key\":\"pLanted\",\"token\": \"pLanted\"}",
            "cmd = \"vllm serve m --api-key pLanted --port 1\"",
            "[\"--api-key\", \"pLanted\"]",
            "llama-server -hft pLanted --hf-token=pLanted",
            "Authorization: Bearer pLanted.pLanted",
            "authorization = \"Basic cExhbnRlZA==pLanted\"",
            "Cookie: a=pLanted; b=pLanted",
            "http://ann:pLanted@host:8080/v1 and etcd://pLanted@10.0.0.1",
            "GET /v1/models?api_key=pLanted&token=pLanted",
            "webhook = \"https://example.org/pLanted\"",
            "posting to https://hooks.slack.com/services/T0/B0/pLanted",
            "downloading with hf_pLanted12345 and sk-pLanted-12345",
            "-----BEGIN PRIVATE KEY-----\npLanted\n-----END PRIVATE KEY-----",
            "the key pLanted-known was refused",
            "api-keys = [\"a]b pLanted\", \"pLanted\"]",
            "api-keys = [\"pLanted\"",
            "password = \"pLanted",
            "/home/pLanted/models/m.gguf /Users/pLanted/m.gguf",
        ] {
            let redacted = redactor.redact(text);
            assert!(!redacted.contains("pLanted"), "{text} became {redacted}");
        }
        assert_eq!(redactor.redact("/srv/people/ann/m.gguf"), "~/m.gguf");
        assert_eq!(redactor.redact("/work/home/.local/m.gguf"), "/work/home/.local/m.gguf");
        assert_eq!(redactor.redact("a=/home/ann/m:/home/bob/n"), "a=~/m:~/n");
    }

    #[test]
    fn text_without_secrets_stays() {
        let redactor = Redactor::new(["abc".to_owned()], None);
        for text in [
            "slot 0: n_tokens = 512, prompt tokens: 12, 3.5 tokens per second",
            "--ctx-size 4096 --max-tokens 5 --keep 4",
            "model = \"l8.gguf\"\nflags = \"-c 8192\"",
            "http://127.0.0.1:8080/v1/chat/completions abc",
            "card RTX 3090, 24576 MiB",
        ] {
            assert_eq!(redactor.redact(text), text);
        }
    }
}
