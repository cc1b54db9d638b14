//! Tests of requests that name no model or an unknown one, of a model with a bad flag, and of a server on
//! several addresses.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::json;

use crate::daemon::{Setup, fake_engine, until};
use crate::http::{Answer, chat, get, post};

fn engine_of(answer: &Answer) -> Option<&str> {
    answer.header("x-plimsoll-model")
}

#[test]
fn the_only_model_answers_every_name_and_none() {
    let daemon = Setup::new().model("a", "100MiB", "", "aliases = ['claude-*']\n").start();
    let unnamed = post(daemon.address, "/v1/chat/completions", &json!({"messages": []}));
    assert_eq!((unnamed.status, engine_of(&unnamed)), (200, None), "{}", unnamed.text());
    let foreign = chat(daemon.address, "gpt-4.1");
    assert_eq!((foreign.status, engine_of(&foreign)), (200, Some("a")));
    let alias = chat(daemon.address, "claude-opus-4");
    assert_eq!((alias.status, engine_of(&alias)), (200, None));
    // Orders and listings name their model.
    assert_eq!(post(daemon.address, "/models/unload", &json!({"model": "gpt-4.1"})).status, 404);
    assert_eq!(get(daemon.address, "/v1/models/gpt-4.1").status, 404);
    // A second model ends it, by a reload.
    let more = "[models.b]\ncmd = 'x ${PORT}'\nmemory = '1MiB'\n";
    let text = std::fs::read_to_string(daemon.config_file()).unwrap() + more;
    std::fs::write(daemon.config_file(), &text).unwrap();
    daemon.signal("HUP");
    until("there are two", || chat(daemon.address, "gpt-4.1").status == 404);
    let unnamed = || post(daemon.address, "/v1/chat/completions", &json!({"messages": []}));
    assert_eq!(unnamed().json()["error"]["code"], "model_missing");
    // And a default brings back requests without a name.
    std::fs::write(daemon.config_file(), format!("[serve]\ndefault = 'a'\n{text}")).unwrap();
    daemon.signal("HUP");
    until("there is a default", || unnamed().status == 200);
    assert_eq!(chat(daemon.address, "gpt-4.1").status, 404);
}

#[test]
fn strict_names_refuse_an_unknown_name_and_autoload_off_loads_nothing() {
    let daemon = Setup::new()
        .config("[serve]\nstrict-names = true\nautoload = false\n")
        .model("a", "100MiB", "", "")
        .start();
    assert_eq!(chat(daemon.address, "gpt-4.1").status, 404);
    let refused = chat(daemon.address, "a");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("model_not_loaded")));
    assert_eq!(get(daemon.address, "/props").json()["models_autoload"], false);
    assert!(daemon.running().is_empty(), "a look loads nothing");
    let autoload = post(daemon.address, "/v1/chat/completions?autoload=true", &json!({"messages": []}));
    assert_eq!(autoload.status, 200, "{}", autoload.text());
    // Now that it runs, its properties and metrics are there.
    assert!(get(daemon.address, "/metrics").text().contains("plimsoll_loads_total{model=\"a\"} 1"));
    assert_ne!(get(daemon.address, "/props").json()["role"], "router");
}

#[test]
fn one_bad_flag_refuses_one_model_and_check_reports_it() {
    let bad = "[models.bad]\nmodel = 'x.gguf'\nflags = '--no-such-flag'\n";
    let daemon = Setup::new().model("a", "100MiB", "", "").config(bad).start();
    assert_eq!(chat(daemon.address, "a").status, 200);
    let refused = chat(daemon.address, "bad");
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "model_misconfigured");
    assert!(refused.text().contains("unknown flag `--no-such-flag`"), "{}", refused.text());
    daemon.reported("the model `bad` is not served");
    // It is no only model: the other one was meant to be there.
    assert_eq!(chat(daemon.address, "gpt-4.1").status, 404);
    let check = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve", "--check", "--card", "name=host,kind=host,total=1GiB"])
        .arg(daemon.config_file())
        .output()
        .unwrap();
    let stated = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(check.status.code() == Some(2) && stated.contains("unknown flag `--no-such-flag`"), "{stated}");
    // A flag that a reload brings does not end a model that runs.
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(
        daemon.config_file(),
        text.replace("[models.bad]", "[models.c]\nmodel = 'x'\nflags = '--nope'\n[models.bad]"),
    )
    .unwrap();
    daemon.signal("HUP");
    daemon.reported("unknown flag `--nope`");
    daemon.reported("the old configuration remains in effect");
    assert_eq!(chat(daemon.address, "a").status, 200);
}

#[test]
fn it_listens_on_several_addresses() {
    let daemon = Setup::new().model("a", "100MiB", "", "").argument("--listen=127.0.0.1:0,[::1]:0").start();
    daemon.reported("at http://[::1]:");
    let talk = daemon.talk();
    let second = talk.split("at http://").find(|rest| rest.starts_with("[::1]")).unwrap();
    let second: SocketAddr = second.split_whitespace().next().unwrap().parse().unwrap();
    for address in [daemon.address, second] {
        assert_eq!(chat(address, "a").status, 200, "{address}");
    }
    drop(daemon);
    // One address of another program is one too many.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let both = format!("--listen=127.0.0.1:0,{}", taken.local_addr().unwrap());
    let stated = Setup::new().model("a", "1MiB", "", "").argument(&both).refused();
    assert!(stated.contains("the address is in use"), "{stated}");
    let open = Setup::new().model("a", "1MiB", "", "").argument("--listen=127.0.0.1:0,0.0.0.0:0").refused();
    assert!(open.contains("can be reached from other machines"), "{open}");
}

#[test]
fn tools_are_those_of_a_model_that_has_them() {
    let model = |name: &str, flags: &str| {
        format!("[models.{name}]\nmodel = '/dev/null'\nmemory = '1MiB'\nflags = '{flags}'\n")
    };
    let daemon = Setup::new()
        .config(&(model("plain", "") + &model("tooled", "--tools all")))
        .argument("--engine")
        .argument(&fake_engine().to_string_lossy())
        .start();
    let answer = get(daemon.address, "/tools");
    assert!(answer.header("x-fake-engine").is_some(), "{}", answer.text());
    assert_eq!(daemon.running(), ["tooled"]);
    let proxy = get(daemon.address, "/cors-proxy?url=http://localhost");
    assert_eq!((proxy.status, &proxy.json()["error"]["code"]), (403, &json!("feature_disabled")));
}
