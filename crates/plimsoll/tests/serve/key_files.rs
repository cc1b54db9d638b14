//! Tests of API key files: an empty file grants no access, and the daemon warns of weak keys without printing
//! them.

use std::process::Command;

use crate::daemon::Setup;
use crate::http::{open_with, read};

/// A configuration with a file of keys beside it.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new(text: &str) -> Self {
        let keys = Self(tempfile::tempdir().expect("a temporary folder"));
        keys.write(text);
        keys
    }

    fn file(&self) -> String {
        self.0.path().join("keys").to_string_lossy().into_owned()
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).expect("the folder can be written");
    }

    fn setup(&self) -> Setup {
        Setup::new()
            .config(&format!("[serve]\napi-key-files = ['{}']\n", self.file()))
            .model("a", "64MiB", "", "")
    }
}

#[test]
fn a_file_without_a_key_is_refused_at_the_start_and_by_a_reload_which_keeps_the_old_keys() {
    for empty in ["", "\n\n", "# my keys\n"] {
        let keys = Keys::new(empty);
        let stated = keys.setup().refused();
        let reported = format!("{}: the file contains no API key", keys.file());
        assert!(
            stated.contains(&reported) && stated.contains("remove the file from `api-key-files`"),
            "{stated}"
        );
    }
    let keys = Keys::new("# my keys\nthe-key-of-all\n");
    let daemon = keys.setup().start();
    let ask = |key: &str, method: &str, path: &str| {
        read(&open_with(daemon.address, method, path, &format!("Authorization: Bearer {key}\r\n"), None))
    };
    assert_eq!(ask("# my keys", "GET", "/v1/models").status, 401, "a comment is no key");
    keys.write("\n");
    let answer = ask("the-key-of-all", "POST", "/api/reload");
    assert!(
        answer.status >= 400 && answer.text().contains("the file contains no API key"),
        "{}",
        answer.text()
    );
    daemon.reported("; the old configuration remains in effect");
    for (key, status) in [("the-key-of-all", 200), ("", 401), ("other", 401)] {
        assert_eq!(ask(key, "GET", "/v1/models").status, status, "{key}");
    }
}

#[test]
fn weak_keys_and_names_of_no_model_are_reported_and_no_key_is_shown() {
    let keys = Keys::new("'sesame-open-wide'\nhunter2\n#swordfish-1\n");
    let daemon = keys
        .setup()
        .config("[keys.agents]\nkey = 'short'\nmodels = ['a', 'xx*']\n[keys.other]\nkey = 'long-enough-for-all'\nmodels = ['a*']\n")
        .start();
    let file = keys.file();
    daemon.reported(&format!("{file}:1: the quotation marks around this API key are part of it"));
    daemon.reported(&format!("{file}:2: an API key is shorter than 8 characters and can be guessed"));
    daemon.reported(&format!(
        "{file}:3: this line begins with `#`, so it is read as a comment and not as an API key"
    ));
    daemon.reported("the API key of `agents` is shorter than 8 characters");
    daemon.reported("API key `agents`: `models` lists `xx*`, but there is no such model");
    let talk = daemon.talk();
    assert!(!talk.contains("key `other`") && !talk.contains("called `a`"), "{talk}");
    for secret in ["sesame", "hunter2", "swordfish", "'short'"] {
        assert!(!talk.contains(secret), "{talk}");
    }
}

#[test]
fn a_reload_names_the_keys_that_it_changed_and_reports_new_warnings_once() {
    let old = "[keys.agents]\nkey = 'first-key-of-agents'\nrights = ['use', 'operate']\n[keys.gone]\nkey = 'the-key-of-gone'\n";
    let daemon = Setup::new().config(old).model("a", "64MiB", "", "").start();
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    let rest = text.strip_prefix(old).unwrap();
    let new = "[keys.agents]\nkey = 'second-key-of-agents'\nrights = ['use', 'operate']\n[keys.new]\nkey = 'short'\n";
    std::fs::write(daemon.config_file(), format!("{new}{rest}")).unwrap();
    let reload = |key: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("reload")
            .env("PLIMSOLL_URL", format!("http://{}", daemon.address))
            .env("PLIMSOLL_API_KEY", key)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let stated = reload("first-key-of-agents");
    for line in ["0 models changed", "key agents: replaced", "key new: added", "key gone: removed"] {
        assert!(stated.lines().any(|found| found == line), "{line}\n{stated}");
    }
    assert!(
        stated.contains("warning: ") && stated.contains("the API key of `new` is shorter than 8 characters"),
        "{stated}"
    );
    daemon.reported("INFO audit replace key agents: ");
    let again = reload("second-key-of-agents");
    assert!(!again.contains("warning") && !again.contains("key "), "{again}");
    assert!(!stated.contains("-key-of-") && !daemon.talk().contains("-key-of-"));
}
