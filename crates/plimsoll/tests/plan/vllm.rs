//! Tests of plans of vLLM for repositories on a server, with a fake hub.

use std::fs;
use std::path::Path;

use fake_hub::{FakeHub, Fault, HostedFile};
use serde_json::json;

use super::remote::{json, plan};
use super::text;

const REPO: &str = "user/qwen3";
const INDEX: &str = "model.safetensors.index.json";
const FLAGS: [&str; 7] = [
    "--json",
    "--card",
    "name=H100,total=80GiB,free=79GiB,cc=9.0",
    "--",
    "vllm",
    "serve",
    "--max-model-len=8k",
];

/// The header of a file with this many matrices of 32 MiB.
fn header(first: u64, matrices: u64) -> (Vec<u8>, u64) {
    let size = 4096 * 4096 * 2;
    let tensors: serde_json::Map<String, serde_json::Value> = (0..matrices)
        .map(|at| {
            let name = format!("model.layers.{}.self_attn.q_proj.weight", first + at);
            (name, json!({ "dtype": "BF16", "shape": [4096, 4096], "data_offsets": [at * size, (at + 1) * size] }))
        })
        .collect();
    let text = serde_json::Value::Object(tensors).to_string();
    let length = u64::try_from(text.len()).unwrap();
    let head = [&length.to_le_bytes(), text.as_bytes()].concat();
    let whole = u64::try_from(head.len()).unwrap() + matrices * size;
    (head, whole)
}

/// `config.json`, and two files of which the second has a header of more than 64 KiB.
fn files() -> Vec<(&'static str, Vec<u8>, u64)> {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/vllm/configs.json");
    let configs: serde_json::Value = serde_json::from_slice(&fs::read(configs).unwrap()).unwrap();
    let config = configs["qwen3-8b"]["config"].to_string().into_bytes();
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let index = json!({ "weight_map": { "a": names[0], "b": names[1] } }).to_string().into_bytes();
    let (small, large) = (header(0, 2), header(2, 800));
    assert!(small.0.len() < 64 << 10 && large.0.len() > 64 << 10);
    let whole = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap();
    let (of_config, of_index) = (whole(&config), whole(&index));
    vec![
        ("config.json", config, of_config),
        (INDEX, index, of_index),
        (names[0], small.0, small.1),
        (names[1], large.0, large.1),
    ]
}

fn server(files: &[(&'static str, Vec<u8>, u64)], fault: Fault) -> FakeHub {
    let hosted = files.iter().map(|(path, head, length)| {
        let file = HostedFile { head: head.as_slice().into(), length: *length, ..HostedFile::default() };
        (REPO, *path, if path.ends_with(".safetensors") { file.with(fault) } else { file })
    });
    let gguf = ("user/gguf", "m-Q4_K_M.gguf", HostedFile::whole(b"GGUF"));
    let config = ("user/gguf", "config.json", HostedFile::whole(&files[0].1));
    FakeHub::start(hosted.chain([gguf, config]).collect()).unwrap()
}

#[test]
fn a_repository_for_vllm_is_planned_as_its_folder_would_be_and_no_weight_is_fetched() {
    let (files, home) = (files(), tempfile::tempdir().unwrap());
    let server = server(&files, Fault::None);
    let folder = home.path().join("qwen3");
    fs::create_dir(&folder).unwrap();
    for (path, head, length) in &files {
        fs::write(folder.join(path), head).unwrap();
        fs::File::options().write(true).open(folder.join(path)).unwrap().set_len(*length).unwrap();
    }
    let of = |model: &str| plan(&server, home.path(), &[&FLAGS[..], &[model]].concat());
    let (here, remote) = (of(folder.to_str().unwrap()), of(REPO));
    assert_eq!(remote.status.code(), here.status.code(), "{}", text(&remote.stderr));
    let (here, found) = (json(&here), json(&remote));
    assert_eq!(found["engines"][0]["model"], REPO);
    assert_eq!(found["engines"][0]["plan"], here["engines"][0]["plan"]);
    assert!(text(&remote.stderr).starts_with("fetched config.json and the headers of user/qwen3: "));
    // The large header is asked for twice: 64 KiB of it, and then all of it.
    let ranges: Vec<u64> = server
        .requests()
        .iter()
        .filter_map(|request| request.range)
        .map(|(from, to)| to - from + 1)
        .collect();
    let large = u64::try_from(files[3].1.len()).unwrap();
    assert!(ranges.iter().all(|length| *length <= large.max(64 << 10)), "{ranges:?}");
    assert!(ranges.contains(&large) && ranges.contains(&(64 << 10)), "{ranges:?}");
}

#[test]
fn a_repository_that_cannot_be_read_for_vllm_is_named_with_a_remedy() {
    let (files, home) = (files(), tempfile::tempdir().unwrap());
    for (model, fault, stated) in [
        ("user/none", Fault::None, "user/none"),
        ("user/gguf", Fault::None, "hint: `plimsoll plan -hf user/gguf`"),
        ("no folder", Fault::None, "`no folder` is no folder"),
        (REPO, Fault::IgnoresRanges, "does not support range requests"),
        (REPO, Fault::Truncates, "ended early"),
        (REPO, Fault::Noise, "hint: "),
    ] {
        let server = server(&files, fault);
        let output = plan(&server, home.path(), &[&FLAGS[..], &[model]].concat());
        assert_eq!(output.status.code(), Some(2), "{model}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(stated), "{model}: {}", text(&output.stderr));
    }
    let server = server(&files, Fault::None);
    let limited = [&["--header-limit", "64KiB"], &FLAGS[..], &[REPO]].concat();
    let stated = text(&plan(&server, home.path(), &limited).stderr);
    assert!(stated.contains("--header-limit raises the limit"), "{stated}");
}
