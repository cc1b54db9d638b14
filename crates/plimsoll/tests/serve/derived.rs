//! Tests of `/api/create` and `/api/copy`, by which clients of Ollama derive a model from a served one.

use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{Answer, get, open, open_with, post, read};

fn daemon(folder: &Path, model: &str, more: &str) -> Daemon {
    let config = format!("[serve]\ndownloads = \"{}\"\n{more}", folder.display());
    Setup::new().config(&config).model(model, "64MiB", "", "").start()
}

fn names(daemon: &Daemon, path: &str, list: &str, key: &str) -> Vec<String> {
    let answer = get(daemon.address, path).json();
    let models = answer[list].as_array().expect("a list").iter();
    models.map(|model| model[key].as_str().expect("a name").to_owned()).collect()
}

fn ask(daemon: &Daemon, path: &str, body: Value) -> Answer {
    post(daemon.address, path, &body)
}

fn delete(daemon: &Daemon, name: &str) -> u16 {
    read(&open(daemon.address, "DELETE", "/api/delete", Some(&json!({ "model": name })))).status
}

/// The body of a request as the engine has it.
fn reaches(daemon: &Daemon, model: &str) -> Value {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
    let answer = ask(daemon, "/apply-template", body).json();
    serde_json::from_str(answer["prompt"].as_str().expect("the double repeats the body")).expect("JSON")
}

#[test]
fn a_derived_model_is_served_at_once_by_the_engine_of_its_model_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let served = daemon(folder.path(), "a", "");
    let create =
        json!({ "model": "mine", "from": "a", "system": "be kind", "parameters": { "temperature": 0.2 } });
    let created = ask(&served, "/api/create", create);
    assert!(
        created.status == 200 && created.text().ends_with("{\"status\":\"success\"}\n"),
        "{}",
        created.text()
    );
    let copied = ask(&served, "/api/copy", json!({ "source": "mine", "destination": "twin:7b" }));
    assert_eq!((copied.status, copied.text().as_str()), (200, ""));
    served.reported("INFO audit create mine: no key is required");
    for served in [served, daemon(folder.path(), "a", "")] {
        assert_eq!(names(&served, "/api/tags", "models", "name"), ["a", "mine", "twin:7b"]);
        assert_eq!(names(&served, "/v1/models", "data", "id"), ["a", "mine", "twin:7b"]);
        assert_eq!(get(served.address, "/v1/models/mine").json()["id"], "mine");
        for name in ["mine", "twin:7b"] {
            let seen = reaches(&served, name);
            let system = json!({ "role": "system", "content": "be kind" });
            assert_eq!((&seen["messages"][0], &seen["temperature"]), (&system, &json!(0.2)), "{seen}");
        }
        assert_eq!(
            reaches(&served, "a")["messages"].as_array().unwrap().len(),
            1,
            "its model stays as it is"
        );
        assert_eq!(served.engines().len(), 1, "all names share an engine");
        let chat = json!({ "model": "mine:latest", "messages": [{ "role": "user", "content": "hi" }], "stream": false });
        assert_eq!(ask(&served, "/api/chat", chat).json()["model"], "mine:latest");
        assert_eq!(names(&served, "/api/ps", "models", "name"), ["a"]);
    }
}

#[test]
fn a_derived_model_is_replaced_and_deleted_and_its_model_stays() {
    let folder = tempfile::tempdir().unwrap();
    let served = daemon(folder.path(), "a", "");
    for system in ["old", "new"] {
        let create = json!({ "model": "mine", "from": "a", "system": system, "stream": false });
        assert_eq!(ask(&served, "/api/create", create).json(), json!({ "status": "success" }));
        assert_eq!(reaches(&served, "mine")["messages"][0]["content"], system);
    }
    let shown = ask(&served, "/api/show", json!({ "model": "mine" })).json();
    assert_eq!((&shown["system"], &shown["details"]["parent_model"]), (&json!("new"), &json!("a")));
    for (path, body, code) in [
        ("/api/copy", json!({ "source": "mine", "destination": "a" }), 400),
        ("/api/create", json!({ "model": "a", "from": "mine" }), 400),
        ("/api/create", json!({ "model": "a*", "from": "a" }), 400),
        ("/api/create", json!({ "model": "../x y", "from": "a" }), 400),
        ("/api/copy", json!({ "source": "none", "destination": "b" }), 404),
    ] {
        let answer = ask(&served, path, body.clone());
        assert!(answer.status == code && answer.json()["error"].is_string(), "{body}: {}", answer.text());
    }
    assert_eq!(delete(&served, "a"), 400);
    assert_eq!(delete(&served, "mine:latest"), 200);
    assert_eq!(names(&served, "/api/tags", "models", "name"), ["a"]);
    assert_eq!(ask(&served, "/api/show", json!({ "model": "mine" })).status, 404);
    assert_eq!(std::fs::read_dir(folder.path().join("plimsoll")).unwrap().count(), 0);
    assert_eq!(delete(&served, "mine"), 400);
}

#[test]
fn a_derived_model_goes_with_its_model_and_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let served = daemon(folder.path(), "a", "");
    assert_eq!(ask(&served, "/api/copy", json!({ "source": "a", "destination": "mine" })).status, 200);
    let config = std::fs::read_to_string(served.config_file()).unwrap();
    std::fs::write(served.config_file(), config.replace("[models.a]", "[models.b]")).unwrap();
    let reloaded = get(served.address, "/models?reload=1");
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let warning =
        "the derived model `mine` is not served: the model `a`, from which it is derived, is not served";
    until("the warning", || served.talk().contains(warning));
    assert_eq!(names(&served, "/api/tags", "models", "name"), ["b"]);
    drop(served);
    let other = daemon(folder.path(), "b", "");
    other.reported(warning);
    assert_eq!(names(&other, "/api/tags", "models", "name"), ["b"]);
    assert_eq!(delete(&other, "mine"), 200, "its note can still be removed");
}

#[test]
fn only_a_key_that_operates_derives_a_model_and_only_within_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "[keys.ops]\nkey = \"key-of-ops\"\nrights = [\"use\", \"operate\"]\nmodels = [\"a\", \"my-*\"]\n\
        [keys.user]\nkey = \"key-of-user\"\nrights = [\"use\", \"see\", \"change\"]\n";
    let served = daemon(folder.path(), "a", keys);
    let ask = |key: &str, path: &str, body: Value| {
        let key = format!("Authorization: Bearer {key}\r\n");
        read(&open_with(served.address, "POST", path, &key, Some(&body)))
    };
    let copy = |name: &str| json!({ "source": "a", "destination": name });
    let refused = ask("key-of-user", "/api/copy", copy("my-x"));
    assert!(refused.status == 403 && refused.text().contains("`operate`"), "{}", refused.text());
    let create = json!({ "model": "my-x", "from": "a" });
    assert_eq!(ask("key-of-user", "/api/create", create).status, 403);
    assert_eq!(ask("key-of-ops", "/api/copy", copy("other")).status, 403);
    assert_eq!(ask("key-of-ops", "/api/copy", copy("my-x")).status, 200);
}

#[test]
fn without_a_folder_of_downloads_the_answer_has_the_lines_to_write() {
    let served = Setup::new().model("a", "64MiB", "", "").start();
    let copied = ask(&served, "/api/copy", json!({ "source": "a", "destination": "mine" }));
    assert!(copied.status == 501 && copied.text().contains("aliases = ["), "{}", copied.text());
    let created = ask(&served, "/api/create", json!({ "model": "mine", "from": "a", "system": "x" }));
    assert!(created.status == 501 && created.text().contains("filters.system"), "{}", created.text());
}
