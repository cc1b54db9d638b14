//! Folder in which the commands of a documentation page run, with the programs, models and files that they
//! name.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use plimsoll_specimens::{shape, specimen};
use serde_json::json;
use tempfile::TempDir;

use super::page::Page;
use super::repository;
use crate::built::built;
use crate::pages::real::{driver, guard, take};

/// What the pages call their models, and the synthetic shapes behind the names.
const MODELS: &[(&str, &str)] =
    &[("l8.gguf", "l8"), ("m8.gguf", "m8"), ("q30.gguf", "q30"), ("embed.gguf", "nomic-embed")];

/// The configuration of pages that show none.
const CONFIGURATION: &str = "[models.chat]\nmodel = \"l8.gguf\"\nflags = \"-c 8192 -ctk q8_0 -ctv q8_0\"\n";

/// The address in the pages; each test serves on a port of its own.
const ADDRESS: &str = "127.0.0.1:8080";

pub(crate) struct Room {
    folder: TempDir,
    /// Where fake-cuda lies under the name of the driver.
    driver: TempDir,
    serving: Option<(Child, String)>,
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.serving.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Room {
    pub(crate) fn furnished(page: &Page) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_plimsoll"), at("bin/plimsoll")).unwrap();
        // An engine that computes on the processor, whose plan is the formulas'.
        fs::copy(built("fake-engine", "fake-engine"), at("bin/llama-server")).unwrap();
        fs::write(at("bin/libggml-cpu.so"), "").unwrap();
        symlink(take(), at("bin/take")).unwrap();
        symlink(repository().join("data/sysroot/gb10"), at("gb10")).unwrap();
        for (name, of) in MODELS {
            let draft = specimen(of).unwrap_or_else(|| shape(of).unwrap().files(1).remove(0));
            write_header(&at(name), &draft.header(), draft.data_length().get());
        }
        let log = repository().join("data/logs/kv_cache_too_large.h200.llama.log");
        fs::copy(log, at("server.log")).unwrap();
        fs::copy(repository().join("data/traces/b8799-q8_0-distinct.csv"), at("trace.csv")).unwrap();
        let configuration = page.file("toml").unwrap_or_else(|| CONFIGURATION.to_owned());
        fs::write(at("plimsoll.toml"), configuration).unwrap();
        for (format, name) in [("yaml", "llama-swap.yaml"), ("ini", "models.ini")] {
            fs::write(at(name), page.file(format).unwrap_or_default()).unwrap();
        }
        put_ollama(folder.path());
        put_safetensors(&at("Qwen3-8B"));
        let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
        Self { folder, driver, serving: None }
    }

    /// Runs a command and returns its status and both its streams, in the order of a terminal.
    pub(crate) fn run(&self, command: &str) -> (Option<i32>, String) {
        let output = self.shell(&format!("{{ {command}; }} 2>&1")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a server and waits for its address, which is the first line on stdout.
    pub(crate) fn serve(&mut self, command: &str) {
        let line = format!("exec {command} --listen 127.0.0.1:0 --card name=host,kind=host,total=64GiB");
        let mut child = self.shell(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("http://").expect("an address").to_owned();
        self.serving = Some((child, address));
    }

    fn shell(&self, command: &str) -> Command {
        let address = self.serving.as_ref().map_or(ADDRESS, |(_, address)| address);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &command.replace(ADDRESS, address)])
            .current_dir(self.folder.path())
            .env("PATH", path_with(&self.folder.path().join("bin")))
            .env("HOME", self.folder.path())
            // No page fetches anything, on a machine with a network either.
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env("PLIMSOLL_NVML", "")
            .env("PLIMSOLL_GUARD_LIBRARY", guard())
            .env("COLUMNS", "120")
            // Otherwise each page would show that this machine has no card.
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null());
        if command.contains("plimsoll run") {
            shell.envs(self.one_card());
        }
        shell
    }

    /// A driver and an NVML of doubles, with one card of 8 GiB.
    fn one_card(&self) -> [(&'static str, String); 4] {
        let uuid = "GPU-00000001-0000-0000-0000-000000000000";
        let card =
            json!([{"uuid": uuid, "name": "RTX3090", "total": 8_u64 << 30, "pci": "00000000:01:00.0"}]);
        let shared = self.driver.path().join("shared");
        [
            ("LD_LIBRARY_PATH", self.driver.path().display().to_string()),
            ("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml").display().to_string()),
            ("PLIMSOLL_FAKE_NVML_CARDS", card.to_string()),
            ("PLIMSOLL_FAKE_CUDA", format!("cards=1 uuids={uuid} context=0 shared={}", shared.display())),
        ]
    }
}

/// Puts a store of Ollama below the home folder, with one model that sets its context and a word to stop at.
fn put_ollama(home: &Path) {
    let store = home.join(".ollama/models");
    let manifests = store.join("manifests/registry.ollama.ai/library/llama3");
    fs::create_dir_all(&manifests).unwrap();
    fs::create_dir_all(store.join("blobs")).unwrap();
    let blob = |digit: &str| store.join(format!("blobs/sha256-{}", digit.repeat(64)));
    symlink(home.join("l8.gguf"), blob("a")).unwrap();
    fs::write(blob("b"), r#"{"num_ctx": 8192, "stop": ["<|eot_id|>"]}"#).unwrap();
    let layer = |kind: &str, digit: &str| {
        json!({"mediaType": format!("application/vnd.ollama.image.{kind}"),
            "digest": format!("sha256:{}", digit.repeat(64))})
    };
    let manifest = json!({"layers": [layer("model", "a"), layer("params", "b")]});
    fs::write(manifests.join("8b"), manifest.to_string()).unwrap();
}

/// Writes a folder of safetensors with the sizes of a published model, and a hole in place of its weights.
fn put_safetensors(folder: &Path) {
    let configs = fs::read(repository().join("data/vllm/configs.json")).unwrap();
    let configs: serde_json::Value = serde_json::from_slice(&configs).unwrap();
    let config = &configs["qwen3-8b"]["config"];
    let of = |field: &str| config[field].as_u64().unwrap();
    let (hidden, inner, words) = (of("hidden_size"), of("intermediate_size"), of("vocab_size"));
    let keys = of("num_key_value_heads") * of("head_dim");
    let mut matrices = vec![("model.embed_tokens".to_owned(), words), ("lm_head".to_owned(), words)];
    for layer in 0..of("num_hidden_layers") {
        let of = |(part, rows)| (format!("model.layers.{layer}.{part}"), rows);
        let attention =
            [("self_attn.q_proj", hidden), ("self_attn.k_proj", keys), ("self_attn.v_proj", keys)];
        let rest = [("self_attn.o_proj", hidden), ("mlp.gate_proj", inner), ("mlp.up_proj", inner)];
        matrices.extend(attention.into_iter().chain(rest).chain([("mlp.down_proj", inner)]).map(of));
    }
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, rows) in matrices {
        let begin = end;
        end += rows * hidden * 2;
        let tensor = json!({"dtype": "BF16", "shape": [rows, hidden], "data_offsets": [begin, end]});
        header.insert(format!("{name}.weight"), tensor);
    }
    let text = serde_json::Value::Object(header).to_string();
    let length = u64::try_from(text.len()).unwrap();
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let header = [&length.to_le_bytes(), text.as_bytes()].concat();
    write_header(&folder.join("model.safetensors"), &header, end);
}

fn path_with(folder: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap()
}

/// Writes a header and a hole of the length of the weights behind it.
fn write_header(path: &Path, header: &[u8], data: u64) {
    fs::write(path, header).unwrap();
    let length = u64::try_from(header.len()).unwrap() + data;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}
