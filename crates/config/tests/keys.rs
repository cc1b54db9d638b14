//! Tests of `[keys.NAME]`: rights, limits, and refusals that repeat no key.

use plimsoll_base::Priority;
use plimsoll_config::{ConfiguredKey, KeyRight, KeySecret};

const SECRET: &str = "sk-0123456789";

fn parse(text: &str) -> Result<Vec<ConfiguredKey>, String> {
    let parsed = plimsoll_config::parse("plimsoll.toml", text, &|_| None);
    parsed.map(|configuration| configuration.serve.keys).map_err(|error| error.to_string())
}

fn key(lines: &str) -> Result<ConfiguredKey, String> {
    parse(&format!("[keys.a]\nkey = \"{SECRET}\"\n{lines}\n")).map(|mut keys| keys.remove(0))
}

#[test]
fn a_key_may_only_use_models_unless_it_says_more() {
    let plain = key("").unwrap();
    assert_eq!(plain.secret, KeySecret::Text(SECRET.to_owned()));
    assert_eq!(
        (plain.name.as_str(), &plain.rights[..], plain.models.as_ref()),
        ("a", &[KeyRight::Use][..], None)
    );
    assert_eq!((plain.requests_per_minute, plain.tokens_per_minute, plain.concurrency), (None, None, None));
    let whole =
        key("models = [\"m-*\"]\nrights = [\"see\", \"change\", \"operate\"]\nrequests-per-minute = 60\n\
         tokens-per-minute = 4000000000\nconcurrency = 2\npriority = \"low\"\nexpires = \"2027-01-31\"")
        .unwrap();
    assert_eq!(whole.rights, [KeyRight::See, KeyRight::Change, KeyRight::Operate]);
    assert_eq!(whole.models.as_deref(), Some(&["m-*".to_owned()][..]));
    let limits = [whole.requests_per_minute, whole.tokens_per_minute, whole.concurrency];
    assert_eq!(limits.map(|limit| limit.unwrap().get()), [60, 4_000_000_000, 2]);
    assert_eq!((whole.priority, whole.expires.unwrap().as_second()), (Priority::Low, 1_801_353_600));
    // Neither no right nor no model is all of them.
    let none = key("models = []\nrights = []").unwrap();
    assert!(none.rights.is_empty() && none.models.unwrap().is_empty());
}

#[test]
fn a_refusal_names_the_line_and_repeats_no_key() {
    for lines in [
        "requests-per-minute = 0",
        "tokens-per-minute = -1",
        "concurrency = 4294967296",
        "concurrency = 1.5",
        "rights = [\"all\"]",
        "rights = \"use\"",
        "models = \"a\"",
        "priority = \"highest\"",
        "expires = \"tomorrow\"",
        "expires = 2027-01-31",
        "right = [\"use\"]",
        "key = \"again\"",
        "models = [\"a\"",
    ] {
        let error = key(lines).unwrap_err();
        assert!(error.starts_with("plimsoll.toml:") && !error.contains(SECRET), "{lines}: {error}");
    }
    for text in [
        "[keys.a]\n".to_owned(),
        "[keys.a]\nkey = \"\"\n".to_owned(),
        "[keys.a]\nkey = \"  \"\n".to_owned(),
        format!("[keys.a]\nkey = \"sha256:{SECRET}\"\n"),
        format!("[keys.a]\nkey = \"{SECRET}\n"),
        format!("[keys.a]\nkey = [\"{SECRET}\"]\n"),
        format!("[keys]\na = \"{SECRET}\"\n"),
        format!("[serve]\napi-keys = [\"sha256:{SECRET}\"]\n"),
        format!("[serve]\napi-keys = \"{SECRET}\"\n"),
        format!("[serve]\napi-keys = {{ a = \"{SECRET}\" }}\n"),
        format!("keys = \"{SECRET}\"\n"),
        format!("keys = {{ a = \"{SECRET}\" }}\n"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(!error.contains(SECRET), "{text}: {error}");
    }
}
