//! Tests of `plimsoll plan` with several models: the table, the verdict, and the configuration for `serve`.

use std::path::{Path, PathBuf};

use plimsoll_specimens::{Changes, write};
use serde_json::Value;

use super::{plimsoll, text};

const CARDS: [&str; 4] = ["--card", "2x3090", "--card", "RTX 4060 Ti 16GB"];

/// Twelve models of nine families; variants of one have other layers.
fn twelve(folder: &Path) -> Vec<String> {
    let shapes = ["q30", "oss", "llama-70b", "qwen3-4b", "llama-1b", "m8", "l8"];
    let mut all: Vec<PathBuf> = Vec::new();
    for shape in shapes {
        all.push(folder.join(format!("{shape}.gguf")));
        write(shape, all.last().unwrap(), &Changes::default()).unwrap();
    }
    for layers in [24, 28, 40, 44, 48] {
        all.push(folder.join(format!("l8-{layers}.gguf")));
        write("l8", all.last().unwrap(), &Changes { layers: Some(layers), ..Changes::default() }).unwrap();
    }
    all.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
}

fn plan(models: &[String], more: &[&str]) -> std::process::Output {
    let mut words = vec!["plan"];
    words.extend(models.iter().map(String::as_str));
    words.extend(more);
    plimsoll(&words)
}

#[test]
fn twelve_models_on_three_cards_are_placed_and_served_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let models = twelve(folder.path());
    let output = plan(&models, &CARDS);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    assert!(table.lines().all(|line| line.chars().count() <= 80 || line.starts_with("warning")), "{table}");
    let json = plan(&models, &[&CARDS[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["schema"], "plimsoll.plan-many/1");
    let rows = json["models"].as_array().unwrap();
    assert_eq!((rows.len(), json["is_largest"].as_bool()), (12, Some(true)));
    // No card holds more than it has.
    for card in json["cards"].as_array().unwrap() {
        let shares = rows.iter().flat_map(|row| row["together"].as_array().into_iter().flatten());
        let held: u64 = shares
            .filter(|share| share["card"] == card["id"])
            .map(|share| share["bytes"].as_u64().unwrap())
            .sum();
        assert!(held <= card["free"].as_u64().unwrap(), "{json}");
    }
    // Each of the others says who leaves for it.
    for row in rows.iter().filter(|row| row["together"].is_null()) {
        assert!(!row["after"]["leave"].as_array().unwrap().is_empty(), "{row}");
    }
    let verdict = json["verdict"].as_str().unwrap();
    assert!(!json["together"].as_array().unwrap().is_empty() && table.contains(&verdict[..20]), "{table}");

    let file = folder.path().join("plimsoll.toml");
    let to_file = format!("--toml={}", file.display());
    let written = plan(&models, &[&CARDS[..], &[&to_file]].concat());
    assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
    let on_stdout = plan(&models, &[&CARDS[..], &["--toml"]].concat());
    let configuration = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text(&on_stdout.stdout), configuration);
    let check = plimsoll(&[&["serve", file.to_str().unwrap(), "--check", "--json"][..], &CARDS].concat());
    let check: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(check["together"]["verdict"], json["verdict"], "{check}");
    assert_eq!(check["together"]["together"], json["together"]);
    assert_eq!(check["mistakes"], serde_json::json!([]));
    let words = plimsoll(&[&["serve", file.to_str().unwrap(), "--check"][..], &CARDS].concat());
    assert!(
        text(&words.stdout).trim_end().ends_with(table.trim_end().rsplit('\n').next().unwrap()),
        "{table}"
    );
}

#[test]
fn a_folder_is_planned_as_its_files_and_the_hosts_memory_is_counted_as_serve_counts_it() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    std::fs::create_dir(&models).unwrap();
    for (shape, name) in [("l8", "a"), ("m8", "b"), ("llama-1b", "c"), ("qwen3-4b", "d"), ("l8", "e")] {
        write(shape, &models.join(format!("{name}.gguf")), &Changes::default()).unwrap();
    }
    let place = models.to_str().unwrap();
    let file = folder.path().join("plimsoll.toml");
    let to_file = format!("--toml={}", file.display());
    let json = |output: &std::process::Output| -> Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    // Each takes 100 MiB of it for prompts, and some hundred for its own.
    let host = ["--host", "1600MiB"];
    let planned = json(&plan(&[place.to_owned()], &[&CARDS[..], &host, &["--json", &to_file]].concat()));
    let members = planned["together"].as_array().unwrap().len();
    assert!((1..5).contains(&members), "{planned}");
    let unbounded = json(&plan(&[place.to_owned()], &[&CARDS[..], &["--json"]].concat()));
    assert_eq!(unbounded["verdict"], "all 5 models fit at the same time");
    let mut relative = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let relative = relative.args(["plan", "models", "--json"]).args(CARDS).current_dir(folder.path());
    assert_eq!(json(&relative.output().unwrap())["verdict"], unbounded["verdict"]);
    let described = ["--card", "kind=host,total=1600MiB"];
    for host in [host, described] {
        // Without its engine, both plan for the build that the formulas were read from.
        let serve =
            ["serve", file.to_str().unwrap(), "--check", "--json", "--engine", "/nowhere/llama-server"];
        let words = [&serve[..], &CARDS, &host].concat();
        let check = json(&plimsoll(&words));
        assert_eq!(check["together"]["verdict"], planned["verdict"], "{check}");
        assert_eq!(check["together"]["together"], planned["together"]);
        let summary = check["summary"].as_str().unwrap();
        assert!(
            summary
                .starts_with("5 of 5 models can be placed on these cards; 0 can be started, and 5 without"),
            "{check}"
        );
        let sizes = |document: &Value| -> Vec<(Value, Value)> {
            let rows = document["models"].as_array().unwrap().iter();
            rows.map(|row| (row["memory"].clone(), row["host_memory"].clone())).collect()
        };
        assert_eq!(sizes(&check["together"]), sizes(&planned));
        let one = json(&plan(&[place.to_owned()], &[&CARDS[..], &host, &["--json"]].concat()));
        assert_eq!(one["together"], planned["together"]);
    }
}

#[test]
fn files_that_are_no_models_are_named_and_odd_names_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write("m8", &path("Grüße \"1\" [x].gguf"), &Changes::default()).unwrap();
    write("m8", &path("a\nb.gguf"), &Changes::default()).unwrap();
    std::fs::write(path("empty.gguf"), "").unwrap();
    std::fs::create_dir(path("folder.gguf")).unwrap();
    let whole = std::fs::read(path("a\nb.gguf")).unwrap();
    std::fs::write(path("torn.gguf"), &whole[..4000]).unwrap();
    let names =
        ["Grüße \"1\" [x].gguf", "a\nb.gguf", "empty.gguf", "folder.gguf", "torn.gguf", "nowhere.gguf"];
    let models = names.map(|name| path(name).to_str().unwrap().to_owned());
    let output = plan(&models, &["--card", "3090"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}{}", text(&output.stderr));
    for name in ["empty", "folder", "torn", "nowhere"] {
        assert!(table.contains(&format!("{name}: cannot be loaded: ")), "{table}");
    }
    assert!(table.contains("2 of 6 models fit at the same time; 4 cannot be loaded"), "{table}");
    let toml = plan(&models, &["--card", "3090", "--toml"]);
    let file = path("plimsoll.toml");
    std::fs::write(&file, &toml.stdout).unwrap();
    let check = plimsoll(&["serve", file.to_str().unwrap(), "--check", "--json", "--card", "3090"]);
    let check: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(check["together"]["verdict"], "all 2 models fit at the same time", "{check}");
}

#[test]
fn a_projector_and_a_draft_are_planned_with_their_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (specimen, name) in [
        ("gemma3-4b", "gemma.gguf"),
        ("gemma3-4b-mmproj", "mmproj-F16.gguf"),
        ("l8", "llama-8b.gguf"),
        ("llama-1b", "llama-8b-draft.gguf"),
    ] {
        write(specimen, Path::new(&path(name)), &Changes::default()).unwrap();
    }
    let memory = |names: &[&str]| -> Value {
        let files: Vec<String> = names.iter().map(|name| path(name)).collect();
        let output = plan(&files, &["--card", "H100", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let alone = memory(&["gemma.gguf", "llama-8b.gguf"]);
    let whole = memory(&["mmproj-F16.gguf", "gemma.gguf", "llama-8b-draft.gguf", "llama-8b.gguf"]);
    let rows = |plans: &Value| plans["models"].as_array().unwrap().clone();
    assert_eq!((rows(&alone).len(), rows(&whole).len()), (2, 2), "{whole}");
    for (row, flag, part) in [(0, "--mmproj", "mmproj-F16.gguf"), (1, "--model-draft", "llama-8b-draft.gguf")]
    {
        let (alone, whole) = (&rows(&alone)[row], &rows(&whole)[row]);
        let words: Vec<&str> = whole["flags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(words.windows(2).any(|pair| pair == [flag, &path(part)]), "{whole}");
        let bytes = |row: &Value| row["alone"][0]["bytes"].as_u64().unwrap();
        assert!(bytes(whole) > bytes(alone), "{whole} {alone}");
    }
    // Without its model it is named, and no model.
    let lone = plan(&[path("mmproj-F16.gguf"), path("llama-8b.gguf")], &["--card", "H100"]);
    let table = text(&lone.stdout);
    assert!(table.contains("mmproj-F16: cannot be loaded: the projector belongs to no model"), "{table}");
}

#[test]
fn options_of_one_model_are_refused_for_several() {
    let folder = tempfile::tempdir().unwrap();
    let models = [folder.path().join("a.gguf"), folder.path().join("b.gguf")];
    let models = models.map(|path| path.to_str().unwrap().to_owned());
    for (more, reported) in [
        (&["--fit", "ctx"][..], "--fit is for a plan of one model"),
        (&["--svg", "x.svg"], "--svg is for a plan of one model"),
        (&["-dev", "CUDA0"], "places them itself, so -dev cannot be given"),
    ] {
        let output = plan(&models, &[&["--card", "3090"], more].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(reported), "{}", text(&output.stderr));
    }
    let output = plimsoll(&["plan", "--toml", "--card", "3090"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no model is given"), "{}", text(&output.stderr));
}
