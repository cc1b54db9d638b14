//! Masks secrets in command lines, before they reach a log, a listing or a terminal.
//!
//! The text before a value decides whether it is hidden: a flag (`--api-key`), a variable (`HF_TOKEN=`), a
//! header (`Authorization:`) or a key of JSON. User and query of an address are hidden as well.
//!
//! DECISION: of a variable whose name says nothing, the value is hidden, and the variables that engines and
//! their runtimes read are named here. A secret that is shown costs more than a setting that is not.

use serde_json::Value;

use super::may_name_secret;

/// Stands for a secret.
const MASK: &str = "***";
/// Scripts within scripts (`sh -c "bash -c '…'"`) that are read.
const DEEPEST: u32 = 4;
/// Ends of names of headers that hold a secret.
const SECRET_HEADERS: [&str; 2] = ["authorization", "bearer"];
/// Flags whose value is a secret though their name ends otherwise; `-hft` is llama.cpp's form of
/// `--hf-token`.
const SHORT: [&str; 2] = ["-hft", "--proxy-user"];
/// Flags whose value is a header of HTTP.
const HEADER: [&str; 4] = ["-H", "--header", "--headers", "--extra-header"];
/// Beginnings of variables that engines and their runtimes read.
const ENGINES: [&str; 25] = [
    "CUDA",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "ROCM_",
    "HSA_",
    "AMD_",
    "GPU_",
    "ZE_",
    "ONEAPI_",
    "SYCL_",
    "GGML_",
    "LLAMA_",
    "VK_",
    "OMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH",
    "NCCL_",
    "VLLM_",
    "HF_",
    "XDG_",
    "LC_",
];
const PLAIN: [&str; 8] =
    ["PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONUNBUFFERED", "PYTHONPATH", "VIRTUAL_ENV"];

/// The command line with its secrets hidden.
pub fn masked(arguments: &[String]) -> Vec<String> {
    hide(arguments.iter().map(String::as_str), DEEPEST)
}

/// The same of a command line that is one text, as a shell reads it.
pub fn masked_text(text: &str) -> String {
    in_script(text, DEEPEST)
}

/// Meaning of the word before a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    SecretFlag,
    HeaderFlag,
    /// The name of a header that a shell has as a word of its own.
    Name,
}

fn hide<'a>(words: impl Iterator<Item = &'a str>, depth: u32) -> Vec<String> {
    let mut before = Before::Nothing;
    let hide = |word: &'a str| {
        let bare = unquoted(word);
        let (shown, next) = match before {
            Before::SecretFlag => (MASK.to_owned(), Before::Nothing),
            // `Authorization: Bearer TEXT` in three words.
            Before::Name if bare.eq_ignore_ascii_case("bearer") || bare.eq_ignore_ascii_case("basic") => {
                (word.to_owned(), Before::Name)
            }
            Before::Name => (MASK.to_owned(), Before::Nothing),
            Before::HeaderFlag => (header(&bare).unwrap_or_else(|| MASK.to_owned()), Before::Nothing),
            Before::Nothing => (one(word, &bare, depth), after(&bare)),
        };
        before = next;
        shown
    };
    words.map(hide).collect()
}

/// Meaning of a word for the next one.
fn after(word: &str) -> Before {
    if HEADER.contains(&word) {
        return Before::HeaderFlag;
    }
    let is_flag = word.starts_with('-') && !word.contains('=');
    match word.strip_suffix(':') {
        Some(name) if is_name(name) && is_secret(name) => Before::Name,
        _ if word.eq_ignore_ascii_case("bearer") => Before::Name,
        _ if is_flag && (is_secret(word) || SHORT.contains(&word)) => Before::SecretFlag,
        _ => Before::Nothing,
    }
}

/// A word that stands for itself.
fn one(word: &str, bare: &str, depth: u32) -> String {
    let assigned = || bare.split_once('=').and_then(|(name, value)| assigned(name, value, depth));
    if let Some(hidden) = assigned().or_else(|| json(word)).or_else(|| secret_header(bare)) {
        return hidden;
    }
    if bare.contains(char::is_whitespace) && depth > 0 {
        in_script(word, depth - 1)
    } else {
        without_user(word)
    }
}

/// `NAME=VALUE` or `--flag=VALUE` with the secret part hidden; `None` if nothing is secret.
fn assigned(name: &str, value: &str, depth: u32) -> Option<String> {
    if !is_name(name) {
        return None;
    }
    if HEADER.contains(&name) {
        return Some(format!("{name}={}", header(value).unwrap_or_else(|| MASK.to_owned())));
    }
    let is_variable = !name.starts_with('-') && !name.contains(|c: char| c.is_ascii_lowercase());
    let is_known = ENGINES.iter().any(|beginning| name.starts_with(beginning)) || PLAIN.contains(&name);
    if is_secret(name) || SHORT.contains(&name) || is_variable && !is_known {
        return Some(format!("{name}={MASK}"));
    }
    // Another may stand in it, as in docker's `--env=NAME=VALUE`.
    let shown = one(value, value, depth);
    (shown != value).then(|| format!("{name}={shown}"))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// True for the name of a flag, a variable, a header or a key of JSON that holds a secret.
fn is_secret(name: &str) -> bool {
    let is_header = || SECRET_HEADERS.iter().any(|end| name.to_ascii_lowercase().ends_with(end));
    may_name_secret(name) || is_header()
}

/// `Name: value` without its value; `None` for any other text.
fn header(text: &str) -> Option<String> {
    let (name, _) = text.split_once(':')?;
    Some(format!("{name}: {MASK}"))
}

/// A header that holds a secret, where no flag says that it is one.
fn secret_header(text: &str) -> Option<String> {
    let (name, value) = text.split_once(':')?;
    let is_header = !value.is_empty() && !value.starts_with("//") && is_name(name) && is_secret(name);
    is_header.then(|| format!("{name}: {MASK}"))
}

/// A text of JSON with the values of secret keys hidden; `None` if it is no JSON or has no secret.
fn json(word: &str) -> Option<String> {
    let text = in_quotes(word).map_or(word, |(_, text)| text);
    let mut value: Value = serde_json::from_str(text).ok().filter(|_| text.starts_with(['{', '[']))?;
    hide_in(&mut value).then(|| value.to_string())
}

/// Hides the secrets of a value; true if it has any.
fn hide_in(value: &mut Value) -> bool {
    match value {
        // Each of them, whether or not an earlier one held a secret.
        Value::Array(items) => items.iter_mut().map(hide_in).filter(|found| *found).count() > 0,
        Value::Object(fields) => fields.iter_mut().fold(false, |found, (name, field)| {
            if is_secret(name) && (field.is_string() || field.is_number()) {
                *field = Value::from(MASK);
                return true;
            }
            hide_in(field) || found
        }),
        Value::String(text) => {
            let hidden = without_user(text);
            let is_other = hidden != *text;
            *text = hidden;
            is_other
        }
        _ => false,
    }
}

/// An address without its user and its query, which may hold a signature.
fn without_user(text: &str) -> String {
    let Some((before, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['"', '\'', ' ', ',', ';', '<', '>', '|']).unwrap_or(rest.len());
    let (address, after) = rest.split_at(end);
    let host_end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (authority, path) = address.split_at(host_end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}"),
        None => authority.to_owned(),
    };
    let path = match path.split_once('?') {
        Some((path, query)) if !query.is_empty() => format!("{path}?{MASK}"),
        _ => path.to_owned(),
    };
    format!("{before}://{authority}{path}{}", without_user(after))
}

/// A script with its secrets hidden, and all else as it stands.
fn in_script(script: &str, depth: u32) -> String {
    // One that is an argument of another has quotes around it.
    let (quote, script) = in_quotes(script).unwrap_or(("", script));
    let pieces = pieces(script);
    let mut hidden = hide(pieces.iter().copied().filter(|piece| !is_gap(piece)), depth).into_iter();
    let shown: String = pieces
        .iter()
        .map(|piece| if is_gap(piece) { (*piece).to_owned() } else { hidden.next().unwrap_or_default() })
        .collect();
    format!("{quote}{shown}{quote}")
}

/// The text between quotes, and the quote.
fn in_quotes(text: &str) -> Option<(&str, &str)> {
    let quotes = ["\"", "'"].into_iter();
    let mut inner = quotes.filter_map(|quote| Some((quote, text.strip_prefix(quote)?.strip_suffix(quote)?)));
    inner.next()
}

fn is_between(letter: char) -> bool {
    letter.is_whitespace() || ";|&()".contains(letter)
}

fn is_gap(piece: &str) -> bool {
    piece.chars().all(is_between)
}

/// The words of a script and what stands between them. Quotes and backslashes keep a word together.
fn pieces(script: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut was_gap) = (Vec::new(), 0, None);
    let (mut quote, mut is_escaped) = (None, false);
    for (at, letter) in script.char_indices() {
        let is_gap = quote.is_none() && !is_escaped && is_between(letter);
        if was_gap.is_some_and(|was| was != is_gap) {
            pieces.push(&script[start..at]);
            start = at;
        }
        was_gap = Some(is_gap);
        match (quote, letter) {
            _ if is_escaped => is_escaped = false,
            (Some('\''), '\\') => {}
            (_, '\\') => is_escaped = true,
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            _ => {}
        }
    }
    pieces.push(&script[start..]);
    pieces
}

/// The word as a shell passes it on.
fn unquoted(word: &str) -> String {
    word.chars().filter(|letter| !['"', '\'', '\\'].contains(letter)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &[&str]) -> String {
        masked(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).join(" ")
    }

    /// Each way in which a command line holds the secret `hunter2`.
    const LINES: [&[&str]; 30] = [
        &["--api-key", "hunter2"],
        &["--api-key=hunter2"],
        &["--api_key", "hunter2"],
        &["--hf-token", "hunter2"],
        &["--hf-token=hunter2"],
        &["-hft", "hunter2"],
        &["--password", "hunter2"],
        &["env", "NAME=hunter2", "vllm"],
        &["env", "HF_TOKEN=hunter2", "vllm"],
        &["AWS_ACCESS_KEY_ID=hunter2"],
        &["VLLM_API_KEY=hunter2"],
        &["docker", "run", "-e", "TOKEN=hunter2", "image"],
        &["docker", "run", "--env=MINE=hunter2", "image"],
        &["api_key=hunter2"],
        &["--header", "Authorization: Bearer hunter2"],
        &["-H", "X-Mine: hunter2"],
        &["-H", "hunter2"],
        &["--header=Authorization: hunter2"],
        &["Authorization: hunter2"],
        &["Bearer hunter2"],
        &["https://user:hunter2@h/x"],
        &["https://h/x?signature=hunter2"],
        &["--model-url=https://hunter2@h/x"],
        &["--list=http://h/x,http://a:hunter2@h/y"],
        &["--config", r#"{"a":[{"apiKey":"hunter2"}]}"#],
        &["--config", r#"{"url":"http://hunter2@h"}"#],
        &["sh", "-c", "export NAME=hunter2; exec llama-server --port 1"],
        &["sh", "-c", r#"exec x --api-key "hunter2 hunter2" -c 1"#],
        &["sh", "-c", r#"curl -H "Authorization: Bearer hunter2" http://h && x"#],
        &["sh", "-c", r#"bash -c 'env KEY=hunter2 x --password=hunter2'"#],
    ];

    #[test]
    fn no_way_of_passing_a_secret_shows_it() {
        for line in LINES {
            let text = shown(line);
            assert!(!text.contains("hunter2") && text.contains(MASK), "{text}");
            // The same within a shell, and once more within that.
            let quoted =
                |word: &&str| if word.contains(' ') { format!("\"{word}\"") } else { (*word).to_owned() };
            if !line.iter().any(|word| word.contains('"') || word.contains('\'')) {
                let script = line.iter().map(quoted).collect::<Vec<_>>().join(" ");
                let script = format!("exec {script} -c 1");
                let nested = format!("sh -c '{script}'");
                for text in [masked_text(&script), shown(&["sh", "-c", &script]), masked_text(&nested)] {
                    assert!(!text.contains("hunter2") && text.contains("-c 1"), "{text}");
                }
            }
        }
    }

    #[test]
    fn arguments_without_secrets_are_shown_unmasked() {
        for line in [
            &["vllm", "serve", "m", "--max-tokens", "5", "--api-key-file", "/k", "-c", "4096"][..],
            &["env", "CUDA_VISIBLE_DEVICES=0", "llama-server", "-ot", "blk\\..*=CPU"],
            &["sh", "-c", "cd /a  &&  exec ./b --host 127.0.0.1 | tee 'x y' > /tmp/l; echo \"$!\""],
            &["--override-kv", "tokenizer.ggml.add_bos_token=bool:false", "-hf", "u/r:Q4"],
            &["--chat-template-kwargs", r#"{"enable_thinking": false}"#, "http://127.0.0.1:1/v1"],
            &["docker", "run", "-v", "/a:/b", "-p", "127.0.0.1:1:1", "--gpus=all", "image:tag"],
        ] {
            assert_eq!(shown(line), line.join(" "));
        }
        assert_eq!(
            shown(&["--model-url=https://u:p@h:1/m.gguf?x=1"]),
            "--model-url=https://***@h:1/m.gguf?***"
        );
        assert_eq!(shown(&["-H", "X-Mine: 5"]), "-H X-Mine: ***");
        assert_eq!(masked_text("env A=1 x --api-key k; echo 'b c'"), "env A=*** x --api-key ***; echo 'b c'");
    }

    proptest! {
        #[test]
        fn any_text_is_masked_without_a_panic_and_twice_as_once(words in prop::collection::vec("[ -~é\n]{0,24}", 0..6)) {
            let once = masked(&words);
            prop_assert_eq!(once.len(), words.len());
            prop_assert_eq!(masked(&once).len(), words.len());
            let _ = masked_text(&words.join(" "));
        }
    }
}
