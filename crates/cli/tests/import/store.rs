//! Tests of imports of Ollama's store, with files as Ollama lays them out.

use std::fs;
use std::path::Path;

use plimsoll_config::Configuration;
use plimsoll_import::{ImportedConfiguration, import};
use tempfile::TempDir;

struct Store(TempDir);

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("manifests")).unwrap();
        fs::create_dir_all(folder.path().join("blobs")).unwrap();
        Self(folder)
    }

    /// Adds a blob whose digest is this digit 64 times, and gives its layer.
    fn layer(&self, kind: &str, digit: char, bytes: &[u8]) -> String {
        let hex = digit.to_string().repeat(64);
        fs::write(self.0.path().join(format!("blobs/sha256-{hex}")), bytes).unwrap();
        layer(kind, &format!("sha256:{hex}"))
    }

    fn manifest(&self, path: &str, layers: &[String]) {
        let text = format!("{{\"schemaVersion\":2,\"layers\":[{}]}}", layers.join(","));
        self.text(path, text.as_bytes());
    }

    fn text(&self, path: &str, text: &[u8]) {
        let path = self.0.path().join("manifests").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn import(&self) -> ImportedConfiguration {
        import(self.0.path(), &|_| None).unwrap()
    }
}

fn layer(kind: &str, digest: &str) -> String {
    format!("{{\"mediaType\":\"application/vnd.ollama.image.{kind}\",\"digest\":\"{digest}\"}}")
}

fn read(imported: &ImportedConfiguration) -> Configuration {
    plimsoll_config::parse("plimsoll.toml", &imported.toml, &|_| None).unwrap()
}

fn reported(imported: &ImportedConfiguration) -> String {
    imported.changes.iter().map(|warning| format!("{warning}\n")).collect()
}

#[test]
fn models_get_their_names_files_and_parameters() {
    let store = Store::new();
    let gguf = store.layer("model", 'a', b"GGUF\x03");
    let parameters = br#"{"num_ctx":8192,"temperature":0.6,"stop":["<end>"],"num_gpu":-1,"top_k":20}"#;
    let parameters = store.layer("params", 'b', parameters);
    let projector = store.layer("projector", 'c', b"GGUF\x03");
    let (template, system) =
        (store.layer("template", 'd', b"{{ . }}"), store.layer("system", 'e', b"be kind"));
    let library = "registry.ollama.ai/library";
    store.manifest(&format!("{library}/qwen3/30b"), &[gguf.clone(), template, parameters, system]);
    store.manifest(&format!("{library}/gemma3/latest"), &[gguf.clone(), projector]);
    store.manifest("hf.co/org/Model-GGUF/Q4_K_M", std::slice::from_ref(&gguf));
    store.manifest("registry.ollama.ai/me/own/latest", &[gguf]);
    let imported = store.import();
    let roster = read(&imported);
    let names: Vec<(&str, Vec<String>)> =
        roster.models.iter().map(|model| (model.name.as_str(), model.aliases.clone())).collect();
    assert_eq!(
        names,
        [
            ("hf.co/org/Model-GGUF:Q4_K_M", vec![]),
            ("gemma3:latest", vec!["gemma3".to_owned()]),
            ("qwen3:30b", vec![]),
            ("me/own:latest", vec!["me/own".to_owned()]),
        ]
    );
    let flags = |at: usize| roster.models[at].launch.options().unwrap().to_argv().join(" ");
    let blob = |digit: &str| format!("{}/blobs/sha256-{}", store.0.path().display(), digit.repeat(64));
    assert_eq!(flags(2), format!("--model {} --ctx-size 8192 --temperature 0.6 --top-k 20", blob("a")));
    assert_eq!(flags(1), format!("--model {} --mmproj {} --ctx-size 4096", blob("a"), blob("c")));
    assert!(roster.models.iter().all(|model| model.ttl.is_some_and(|ttl| ttl.as_secs() == 300)));
    assert!(
        imported.toml.contains(&format!("  # {}/manifests/{library}/qwen3/30b\n", store.0.path().display()))
    );
    let filters = &roster.models[2].filters;
    assert_eq!(filters.system.as_deref(), Some("be kind"));
    assert_eq!(filters.default["stop"], serde_json::json!(["<end>"]));
    let reported = reported(&imported);
    for words in [
        "`qwen3:30b` have a template in Ollama's own language",
        "`gemma3:latest` gets Ollama's usual context of 4096 tokens; raise --ctx-size in `flags`",
        "Ollama's API is at http://127.0.0.1:8080, and not on port 11434; set OLLAMA_HOST=http://127.0.0.1:8080 for the \
            clients, or stop Ollama and set `listen = \"11434\"` under [serve]",
    ] {
        assert!(reported.contains(words), "{words}\n{reported}");
    }
}

#[test]
fn a_model_for_embeddings_is_started_as_one_and_no_context_passes_the_trained_one() {
    let store = Store::new();
    let blob = |digit: char, name: &str| {
        let path = store.0.path().join(format!("blobs/sha256-{}", digit.to_string().repeat(64)));
        plimsoll_specimens::write(name, &path, &plimsoll_specimens::Changes::default()).unwrap();
        layer("model", &format!("sha256:{}", digit.to_string().repeat(64)))
    };
    let (embeds, chats) = (blob('a', "nomic-embed"), blob('b', "tiny"));
    let parameters = store.layer("params", 'c', br#"{"num_ctx":99999999}"#);
    let library = "registry.ollama.ai/library";
    store.manifest(&format!("{library}/embed/latest"), std::slice::from_ref(&embeds));
    store.manifest(&format!("{library}/long/latest"), &[embeds, parameters.clone()]);
    store.manifest(&format!("{library}/tiny/latest"), &[chats, parameters]);
    let imported = store.import();
    let roster = read(&imported);
    let text = |name: &str, flag: &str| {
        let model = roster.models.iter().find(|model| model.name == name).unwrap();
        let options = model.launch.options().unwrap();
        options.get(flag).map(|_| options.text(flag).unwrap_or("on").to_owned())
    };
    for name in ["embed:latest", "long:latest"] {
        assert_eq!(text(name, "--ctx-size").as_deref(), Some("2048"), "{name}");
        assert_eq!(text(name, "--ubatch-size").as_deref(), Some("2048"), "{name}");
        assert_eq!(text(name, "--embeddings").as_deref(), Some("on"), "{name}");
    }
    assert_eq!(text("tiny:latest", "--embeddings"), None);
    let reported = reported(&imported);
    assert!(
        reported.contains("`long:latest` asks for a context of 99999999 tokens, and gets the 2048"),
        "{reported}"
    );
    assert!(!reported.contains("`embed:latest` gets Ollama's usual context"), "{reported}");
}

#[test]
fn unservable_ollama_models_are_named_and_the_rest_is_imported() {
    let store = Store::new();
    let gguf = store.layer("model", 'a', b"GGUF\x03");
    let library = "registry.ollama.ai/library";
    store.manifest(&format!("{library}/good/1b"), std::slice::from_ref(&gguf));
    store.manifest(&format!("{library}/cloud/1t"), &[]);
    store.manifest(&format!("{library}/safe/1b"), &[store.layer("tensor", 'b', b"x")]);
    store.manifest(&format!("{library}/torn/1b"), &[store.layer("model", 'c', b"GG")]);
    store.manifest(&format!("{library}/other/1b"), &[store.layer("model", 'd', b"PK\x03\x04")]);
    store.manifest(&format!("{library}/gone/1b"), &[layer("model", &format!("sha256:{}", "9".repeat(64)))]);
    store.manifest(&format!("{library}/evil/1b"), &[layer("model", "sha256:../../../../etc/passwd")]);
    store.manifest(&format!("{library}/split/1b"), &[gguf.clone(), gguf.clone()]);
    store.manifest(&format!("{library}/odd/1b"), &[gguf.clone(), store.layer("params", 'e', b"[1]")]);
    store.text(&format!("{library}/text/1b"), b"not json");
    store.text(&format!("{library}/long/1b"), &vec![b' '; 3 << 20]);
    store.text("registry.ollama.ai/library/stray", b"{}");
    store.text(&format!("{library}/good/deep/er"), b"{}");
    let imported = store.import();
    let names: Vec<String> = read(&imported).models.into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["good:1b"]);
    let reported = reported(&imported);
    for words in [
        "`cloud:1t` is not imported: it has no GGUF file",
        "`safe:1b` has a layer `tensor`, which is left out",
        "`safe:1b` is not imported: it has no GGUF file",
        "`torn:1b` is not imported: ",
        "is not a GGUF file; `ollama pull` fetches it again",
        "`gone:1b` is not imported: ",
        "cannot be read (No such file",
        "`evil:1b` is not imported: `sha256:../../../../etc/passwd` is not a digest",
        "`split:1b` is not imported: it has several model files",
        "`odd:1b` is not imported: its parameters are not a JSON object",
        "`text:1b` is not imported: its manifest is not one of Ollama's",
        "`long:1b` is not imported: its manifest cannot be read (it is longer than 1 MiB)",
    ] {
        assert!(reported.contains(words), "{words}\n{reported}");
    }
}

/// A pipe without a writer would be opened for ever, and `/dev/zero` be read for ever.
#[test]
fn a_store_of_pipes_and_devices_is_refused_and_not_waited_for() {
    let store = Store::new();
    let library = "registry.ollama.ai/library";
    let gguf = store.layer("model", 'a', b"GGUF\x03");
    for (name, digit) in [("blob", 'b'), ("params", 'c'), ("zero", 'd')] {
        let layer = store.layer(if name == "params" { "params" } else { "model" }, digit, b"");
        let blob = store.0.path().join(format!("blobs/sha256-{}", digit.to_string().repeat(64)));
        fs::remove_file(&blob).unwrap();
        match name {
            "zero" => std::os::unix::fs::symlink("/dev/zero", &blob).unwrap(),
            _ => assert!(std::process::Command::new("mkfifo").arg(&blob).status().unwrap().success()),
        }
        let layers = if name == "params" { vec![gguf.clone(), layer] } else { vec![layer] };
        store.manifest(&format!("{library}/{name}/1b"), &layers);
    }
    let (done, waits) = std::sync::mpsc::channel();
    // On a thread, so that an open that waits fails the test instead of hanging it.
    std::thread::spawn(move || done.send(reported(&store.import())));
    let reported = waits.recv_timeout(std::time::Duration::from_secs(20)).expect("nothing waits");
    for name in ["blob", "params", "zero"] {
        assert!(reported.contains(&format!("`{name}:1b` is not imported: ")), "{reported}");
    }
    assert_eq!(reported.matches("it is not a regular file").count(), 3, "{reported}");
}

#[test]
fn the_store_of_the_machine_is_found_by_ollamas_own_variable() {
    let store = Store::new();
    store.manifest("registry.ollama.ai/library/a/1b", &[store.layer("model", 'a', b"GGUF\x03")]);
    let path = store.0.path().display().to_string();
    let found = import(Path::new("ollama"), &|name| (name == "OLLAMA_MODELS").then(|| path.clone())).unwrap();
    assert_eq!(found.models, 1);
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".ollama")).unwrap();
    std::os::unix::fs::symlink(store.0.path(), home.path().join(".ollama/models")).unwrap();
    let home = home.path().display().to_string();
    let found = import(Path::new("ollama"), &|name| (name == "HOME").then(|| home.clone())).unwrap();
    assert_eq!(found.models, 1);
    let empty = tempfile::tempdir().unwrap();
    let error = import(empty.path(), &|_| None).unwrap_err().to_string();
    assert!(
        error.starts_with("there is no store of Ollama in ") && error.ends_with("plimsoll import FOLDER")
    );
}

#[test]
fn million_manifests_and_parameters_are_refused_or_become_toml() {
    let store = Store::new();
    let gguf = store.layer("model", 'a', b"GGUF\x03");
    let manifest = format!("{{\"layers\":[{gguf},{}]}}", store.layer("params", 'b', b"{}"));
    let parameters = br#"{"num_ctx":8192,"temperature":0.6,"stop":["<end>"],"seed":18446744073709551615}"#;
    plimsoll_fuzz::mutants(&[manifest.as_bytes(), parameters], &[b"sha256:", b"\"layers\":["], |mutant| {
        // Half of the mutants for each file.
        match mutant.len() % 2 {
            0 => store.text("registry.ollama.ai/library/a/1b", mutant),
            _ => store.manifest(
                "registry.ollama.ai/library/a/1b",
                &[gguf.clone(), store.layer("params", 'b', mutant)],
            ),
        }
        store.import();
    });
}
