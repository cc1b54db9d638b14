//! Tests of downloads over HTTP: a model is downloaded, served and removed, and only permitted clients may
//! request it.

use std::io::{BufRead, BufReader};
use std::thread;
use std::time::Duration;

use fake_hub::{FakeHub, HostedFile};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{get, open, open_with, post, read};

const NAME: &str = "user/model-GGUF:Q8_0";

fn tiny() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("as the test has made it");
    let path = folder.path().join("tiny.gguf");
    plimsoll_specimens::write("tiny", &path, &plimsoll_specimens::Changes::default())
        .expect("as the test has made it");
    std::fs::read(path).expect("as the test has made it")
}

fn names(daemon: &Daemon) -> Vec<String> {
    let list = get(daemon.address, "/models").json();
    let models = list["data"].as_array().expect("as the test has made it").iter();
    models.map(|model| model["id"].as_str().expect("as the test has made it").to_owned()).collect()
}

fn remove(daemon: &Daemon, name: &str) -> u16 {
    read(&open(daemon.address, "DELETE", &format!("/models?model={name}"), None)).status
}

#[test]
fn a_model_is_downloaded_served_and_removed_again() {
    let file = HostedFile::whole(&tiny());
    let hub = FakeHub::start(vec![("user/model-GGUF", "model-Q8_0.gguf", file)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Setup::new()
        .config(&format!("[serve]\ndownloads = \"{}\"\n", folder.path().display()))
        .model("a", "64MiB", "", "")
        .variable("MODEL_ENDPOINT", &hub.address)
        .start();
    let events = open(daemon.address, "GET", "/models/sse", None);
    let events = thread::spawn(move || {
        let lines = BufReader::new(events).lines().map_while(Result::ok);
        let events = lines.filter_map(|line| {
            let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
            Some(event["event"].as_str()?.to_owned())
        });
        let mut events = events.filter(|event| event.starts_with("download") || event == "model_remove");
        let mut seen = Vec::new();
        while seen.last().is_none_or(|event| event != "model_remove") {
            seen.push(events.next().unwrap());
        }
        seen
    });
    thread::sleep(Duration::from_millis(200));
    let order = json!({ "model": NAME });
    let answer = post(daemon.address, "/models", &order);
    assert_eq!((answer.status, answer.json()["success"] == true), (200, true), "{}", answer.text());
    daemon.reported(&format!("download {NAME}: complete"));
    until("the model is listed", || names(&daemon) == ["a", NAME]);
    daemon.reported(&format!("INFO audit download {NAME}: no key is required"));
    assert_eq!(post(daemon.address, "/models", &order).status, 400, "it exists");
    // The plan reads its header: the file is there.
    let planned = get(daemon.address, &format!("/api/what-if?model={NAME}"));
    assert_eq!(planned.status, 200, "{}", planned.text());
    let list = get(daemon.address, "/models").json();
    let removable = list["data"].as_array().unwrap().iter().map(|model| model["can_remove"].as_bool());
    assert_eq!(removable.collect::<Vec<_>>(), [Some(false), Some(true)]);
    assert_eq!(remove(&daemon, "a"), 400, "a model of the configuration");
    assert_eq!(remove(&daemon, NAME), 200);
    until("the model has gone", || names(&daemon) == ["a"]);
    assert_eq!(remove(&daemon, NAME), 400, "it is gone");
    let seen = events.join().unwrap();
    let finished = seen.iter().position(|event| event == "download_finished").unwrap();
    assert!(seen[..finished].iter().all(|event| event == "download_progress") && finished > 0, "{seen:?}");
}

#[test]
fn a_download_that_cannot_be_is_refused_with_its_reason() {
    let hub = FakeHub::start(Vec::new()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[serve]\ndownloads = \"{}\"\n", folder.path().display());
    let keys = "[keys.ops]\nkey = \"k-ops\"\nrights = [\"operate\"]\nmodels = [\"user/*\"]\n\
        [keys.user]\nkey = \"k-user\"\nrights = [\"use\", \"see\", \"change\"]\n";
    let daemon = Setup::new().config(&(config + keys)).variable("MODEL_ENDPOINT", &hub.address).start();
    let ask = |key: &str, body: Value| {
        let key = format!("Authorization: Bearer {key}\r\n");
        read(&open_with(daemon.address, "POST", "/models", &key, Some(&body)))
    };
    for (body, status, code) in [
        (json!({ "model": "user/none" }), 400, "download_refused"),
        (json!({ "model": "user/../x" }), 400, "download_refused"),
        (json!({ "model": "user/x:../../y" }), 400, "download_refused"),
        (json!({ "model": "other/x" }), 403, "model_not_permitted"),
        (json!({ "model": "" }), 400, "model_missing"),
        (json!({ "model": 5 }), 400, "model_missing"),
        (json!([]), 400, "model_missing"),
    ] {
        let answer = ask("k-ops", body.clone());
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (status, &json!(code)), "{body}");
    }
    let answer = ask("k-user", json!({ "model": "user/x" }));
    assert!(answer.status == 403 && answer.text().contains("`operate`"), "{}", answer.text());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let off = Setup::new().start();
    let answer = post(off.address, "/models", &json!({ "model": "user/x" }));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (501, &json!("downloads_off")));
}

/// The lines of an answer by Ollama's API.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn a_client_of_ollama_pulls_a_model_of_the_hub_and_deletes_it() {
    let whole = tiny();
    let size = whole.len();
    let hub =
        FakeHub::start(vec![("user/model-GGUF", "model-Q8_0.gguf", HostedFile::whole(&whole))]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = "[keys.ops]\nkey = \"k-ops\"\nrights = [\"operate\"]\n[keys.user]\nkey = \"k-user\"\nrights = [\"use\"]\n";
    let daemon = Setup::new()
        .config(&format!("[serve]\ndownloads = \"{}\"\n{keys}", folder.path().display()))
        .model("a", "64MiB", "", "")
        .variable("MODEL_ENDPOINT", &hub.address)
        .start();
    let ask = |key: &str, method: &str, path: &str, body: Value| {
        let key = format!("Authorization: Bearer {key}\r\n");
        read(&open_with(daemon.address, method, path, &key, Some(&body)))
    };
    let pull = |key: &str, body: Value| ask(key, "POST", "/api/pull", body);
    let name = format!("hf.co/{NAME}");
    let refused = pull("k-user", json!({ "model": name }));
    assert!(refused.status == 403 && refused.text().contains("`operate`"), "{}", refused.text());
    assert_eq!(
        pull("k-user", json!({ "model": "a", "stream": false })).json(),
        json!({ "status": "success" })
    );
    for (model, status) in
        [("llama3.2", 404), ("hf.co/user/none", 400), ("hf.co/user/../x", 400), ("hf.co/", 404)]
    {
        let answer = pull("k-ops", json!({ "model": model }));
        assert_eq!(
            (answer.status, answer.json()["error"].is_string()),
            (status, true),
            "{model}: {}",
            answer.text()
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let reported = lines(&pull("k-ops", json!({ "model": name })).text());
    let statuses: Vec<&str> = reported.iter().filter_map(|line| line["status"].as_str()).collect();
    assert_eq!(
        (statuses.first(), statuses.last()),
        (Some(&"pulling manifest"), Some(&"success")),
        "{reported:?}"
    );
    let file =
        reported.iter().rfind(|line| line["status"] == "pulling model-Q8_0.gguf").expect("its progress");
    assert_eq!((&file["total"], &file["completed"]), (&json!(size), &json!(size)));
    // It is served under both names, and a second pull has nothing to do.
    let shown = ask("k-user", "POST", "/api/show", json!({ "model": name }));
    assert_eq!(shown.status, 200, "{}", shown.text());
    assert_eq!(lines(&pull("k-ops", json!({ "model": NAME })).text()), [json!({ "status": "success" })]);

    assert_eq!(ask("k-user", "DELETE", "/api/delete", json!({ "model": name })).status, 403);
    assert_eq!(ask("k-ops", "DELETE", "/api/delete", json!({ "model": "a" })).status, 400);
    assert_eq!(ask("k-ops", "DELETE", "/api/delete", json!({ "model": name })).status, 200);
    assert_eq!(ask("k-user", "POST", "/api/show", json!({ "model": name })).status, 404);
    let again = pull("k-ops", json!({ "model": name, "stream": false }));
    assert_eq!((again.status, again.json()), (200, json!({ "status": "success" })), "{}", again.text());
}

/// A daemon that downloads into `folder`, with a card of 1 GiB and an engine that models can be planned for.
fn planning(folder: &tempfile::TempDir, hub: &FakeHub) -> Daemon {
    let (folder, engine) = (folder.path().display(), crate::daemon::fake_engine());
    let config =
        format!("[serve]\ndownloads = \"{folder}\"\n[engine]\ncommand = [\"{}\"]\n", engine.display());
    let setup = Setup::with_cards(&["name=RTX3060,total=1GiB,free=1GiB,cc=8.6"]).config(&config);
    setup.variable("MODEL_ENDPOINT", &hub.address).variable("HF_ENDPOINT", &hub.address).start()
}

#[test]
fn a_model_that_fits_on_no_card_is_refused_before_its_first_byte_unless_it_is_forced() {
    let draft = plimsoll_specimens::shape("l8").expect("a shape").files(1).remove(0);
    let hub = FakeHub::start(vec![("user/model-GGUF", "m-Q8_0.gguf", HostedFile::of(&draft))]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let daemon = planning(&folder, &hub);
    let answer = post(daemon.address, "/models", &json!({ "model": NAME }));
    assert_eq!(answer.status, 413, "{}", answer.text());
    let text = answer.text();
    assert!(text.contains("1024 MiB") && text.contains("--force"), "{text}");
    assert!(hub.requested().0 < 32 << 20, "the header alone: its vocabulary has 128 000 words");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let forced = post(daemon.address, "/models", &json!({ "model": NAME, "force": true }));
    assert_eq!(forced.status, 200, "{}", forced.text());
    assert!(forced.json()["memory"].as_str().unwrap().contains("is refused"), "{}", forced.text());
    let shown = || daemon.status()["downloads"].clone();
    until("its progress is shown", || shown()[0]["total"].as_u64().is_some_and(|total| total > 1 << 30));
    assert_eq!(remove(&daemon, NAME), 200);
    until("it has ended", || shown() == json!([]));
    assert_eq!(names(&daemon), Vec::<String>::new());
}

#[test]
fn a_model_comes_from_an_address_and_says_what_it_will_take() {
    let file = HostedFile::whole(&tiny());
    let hub = FakeHub::start(vec![("user/model-GGUF", "tiny-Q8_0.gguf", file)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let daemon = planning(&folder, &hub);
    let order = json!({ "model": hub.plain("user/model-GGUF", "tiny-Q8_0.gguf") });
    let answer = post(daemon.address, "/models", &order).json();
    assert_eq!((&answer["success"], &answer["model"]), (&json!(true), &json!("tiny-Q8_0")), "{answer}");
    assert!(answer["memory"].as_str().is_some_and(|text| text.contains(" MiB planned")), "{answer}");
    until("the model is listed", || names(&daemon) == ["tiny-Q8_0"]);
    // It is listed while it is downloaded, and can be asked for once it is whole.
    let planned = || get(daemon.address, "/api/what-if?model=tiny-Q8_0").json();
    until("the model can be loaded", || planned()["fits"] == "now");
    assert_eq!(post(daemon.address, "/models", &order).status, 400, "it exists");
    assert_eq!(remove(&daemon, "tiny-Q8_0"), 200);
    until("the model has gone", || names(&daemon).is_empty());
}

#[test]
fn a_download_is_followed_in_a_terminal_to_its_end_or_its_failure() {
    let wrong = HostedFile { digest: Some("ab".repeat(32)), ..HostedFile::whole(&tiny()) };
    let files = vec![
        ("user/model-GGUF", "model-Q8_0.gguf", HostedFile::whole(&tiny())),
        ("user/bad-GGUF", "model-Q8_0.gguf", wrong),
    ];
    let hub = FakeHub::start(files).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let daemon = planning(&folder, &hub);
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output =
            command.args(words).env("PLIMSOLL_URL", format!("http://{}", daemon.address)).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    let (status, stated) = run(&["download", NAME]);
    assert!(status == Some(0) && stated.starts_with(&format!("{NAME} is there, and served\n")), "{stated}");
    assert!(stated.contains("planned"), "{stated}");
    let (status, stated) = run(&["download", "user/bad-GGUF"]);
    assert!(status == Some(1) && stated.contains("SHA-256"), "{stated}");
    let failed = daemon.status()["downloads"].clone();
    assert!(failed[0]["error"].as_str().is_some_and(|error| error.contains("SHA-256")), "{failed}");
    let (_, stated) = run(&["ps"]);
    assert!(stated.contains("download of user/bad-GGUF failed: "), "{stated}");
    let (status, stated) = run(&["download", NAME, "--remove"]);
    assert_eq!(status, Some(0), "{stated}");
    until("the model has gone", || names(&daemon).is_empty());
    let (status, stated) = run(&["download", "user/none"]);
    assert!(status == Some(1) && stated.contains("refuses"), "{stated}");
}
