//! Tests of models that are found in folders and stores: each file is served, or named with the reason.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_config::{Configuration, ConfiguredModel};
use plimsoll_hub::Caches;
use plimsoll_import::{Found, Places, find, write_found};
use plimsoll_model::gguf::{DraftHeader, DraftTensor};
use plimsoll_model::types::F16;
use plimsoll_plan::PlannedHost;
use plimsoll_planner::HostRoom;
use plimsoll_specimens::{Changes, write, write_header};

/// A folder of models that nobody writes to any more.
struct ModelFolder(tempfile::TempDir);

impl ModelFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn model(&self, specimen: &str, name: &str) {
        write(specimen, &self.path(name), &Changes::default()).unwrap();
    }

    /// Several files with one header.
    fn copies(&self, specimen: &str, names: &[String]) {
        let draft = plimsoll_specimens::specimen(specimen)
            .unwrap_or_else(|| plimsoll_specimens::shape(specimen).unwrap().files(1).remove(0));
        let header = draft.header();
        let length = u64::try_from(header.len()).unwrap() + draft.data_length().get();
        for name in names {
            self.bytes(name, &header);
            File::options().write(true).open(self.path(name)).unwrap().set_len(length).unwrap();
        }
    }

    fn shards(&self, name: &str, count: u16) {
        write("tiny", &self.path(name), &Changes { shards: count, ..Changes::default() }).unwrap();
    }

    fn bytes(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// All files and folders, but for links.
    fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.symlink_metadata().unwrap() {
                    about if about.is_dir() => folders.push(path),
                    about if about.is_file() => files.push(path),
                    _ => {}
                }
            }
        }
        files
    }

    fn settle(&self) {
        self.files().iter().for_each(|file| settle(file));
    }

    fn places(&self) -> Places {
        Places { paths: vec![self.0.path().to_owned()], ..Places::default() }
    }

    fn found(&self) -> Found {
        self.settle();
        find(&self.places(), SystemTime::now())
    }
}

fn settle(file: &Path) {
    let hour = Duration::from_secs(3600);
    File::options().write(true).open(file).unwrap().set_modified(SystemTime::now() - hour).unwrap();
}

fn names(found: &Found) -> Vec<&str> {
    found.models.iter().map(|model| model.name.as_str()).collect()
}

/// The flags of a model, without folders.
fn flags(found: &Found, name: &str) -> String {
    let model = found.models.iter().find(|model| model.name == name).unwrap();
    let words = model.options.to_argv();
    let words = words.iter().map(|word| word.rsplit('/').next().unwrap_or(word));
    words.collect::<Vec<_>>().join(" ")
}

/// The reason for which a file is not served.
fn reason<'a>(found: &'a Found, name: &str) -> &'a str {
    let of = |(path, _): &&(PathBuf, String)| path.ends_with(name);
    let (_, why) = found.passed_over.iter().find(of).unwrap_or_else(|| panic!("{name}: {found:#?}"));
    why
}

fn cards(specs: &[&str]) -> Vec<Card> {
    specs.iter().flat_map(|spec| spec.parse::<CardSpec>().unwrap().cards).collect()
}

fn host(gib: u64) -> Option<PlannedHost> {
    let total = Bytes::gib(gib);
    Some(PlannedHost { room: HostRoom { total, free: total }, is_shared: false })
}

fn adapter(architecture: &str) -> DraftHeader {
    let mut draft = DraftHeader::default();
    draft.put("general.type", "adapter");
    draft.put("general.architecture", architecture);
    draft.put("adapter.type", "lora");
    draft.tensors.push(DraftTensor {
        name: "blk.0.attn_q.weight.lora_a".to_owned(),
        kind: F16,
        shape: vec![2560, 16],
    });
    draft
}

const FAMILIES: [&str; 12] = [
    "llama-1b",
    "qwen2-7b",
    "gemma3n-e2b",
    "phi3-mini",
    "command-r",
    "jamba-3b",
    "lfm2-1b",
    "mamba2",
    "granite-h-tiny",
    "qwen35-9b",
    "falcon-h1-1b",
    "q30",
];

/// 60 files, of which not all are models.
fn folder_of_60() -> ModelFolder {
    let folder = ModelFolder::new();
    for family in FAMILIES {
        let of = |quant| format!("{family}/{family}-{quant}.gguf");
        folder.copies(family, &["Q4_K_M", "Q8_0", "IQ2_XS"].map(of));
    }
    folder.model("gemma3-4b", "Gemma drei/größer als.gguf");
    folder.model("gemma3-4b-mmproj", "Gemma drei/sehen.gguf");
    folder.model("gemma3-4b-mmproj", "Gemma drei/mmproj-F16.gguf");
    folder.model("gemma3-4b-mmproj", "alone/mmproj-model-f16.gguf");
    folder.model("nomic-embed", "embed/nomic.gguf");
    folder.model("bge-base", "embed/bge.gguf");
    folder.model("l8", "llama/llama 8b.gguf");
    folder.model("llama-1b", "llama/llama-8b-draft.gguf");
    folder.model("llama-1b", "llama/1b/llama-8b-draft.gguf");
    write_header(&folder.path("lfm2-1b/lfm2-poems.gguf"), &adapter("lfm2")).unwrap();
    write_header(&folder.path("alone/of-nobody-lora.gguf"), &adapter("llama")).unwrap();
    folder.shards("whole-of.gguf", 3);
    folder.shards("torn.gguf", 4);
    fs::remove_file(folder.path("torn-00003-of-00004.gguf")).unwrap();
    folder.model("bge-base", "embed/bge-2.gguf");
    folder.model("llama-1b", "same.gguf");
    let head = fs::read(folder.path("same.gguf")).map(|bytes| bytes[..3000].to_vec()).unwrap();
    folder.bytes("cut.gguf", &head);
    folder.bytes("text.gguf", b"no model at all");
    folder.bytes("empty.gguf", b"");
    folder.bytes("loading.gguf.part", &head);
    let mut unheard = DraftHeader::default();
    for (key, value) in [("block_count", 1_u32), ("context_length", 1), ("embedding_length", 1)] {
        unheard.put(format!("unheard.{key}"), value);
    }
    unheard.put("general.architecture", "unheard");
    unheard.tensors.push(DraftTensor {
        name: "token_embd.weight".to_owned(),
        kind: F16,
        shape: vec![32, 32],
    });
    write_header(&folder.path("unheard.gguf"), &unheard).unwrap();
    folder
}

#[test]
fn each_of_60_files_is_served_or_named() {
    let folder = folder_of_60();
    let files = folder.files();
    assert_eq!(files.len(), 60);
    for (target, link) in [(".", "loop"), ("same.gguf", "z-same.gguf"), ("gone", "dangling.gguf")] {
        std::os::unix::fs::symlink(target, folder.path(link)).unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path("pipe.gguf"), rustix::fs::Mode::RUSR).unwrap();
    let found = folder.found();
    let served: BTreeSet<String> = found.models.iter().flat_map(|model| model.options.to_argv()).collect();
    let is_served = |file: &PathBuf| {
        let set = plimsoll_model::split::siblings(&file.to_string_lossy());
        set.iter().any(|path| served.contains(path))
    };
    let is_named = |file: &PathBuf| {
        let set = plimsoll_model::split::siblings(&file.to_string_lossy());
        found.passed_over.iter().any(|(path, _)| set.iter().any(|file| path == Path::new(file)))
    };
    for file in &files {
        assert!(is_served(file) != is_named(file), "{}: {:#?}", file.display(), found.passed_over);
    }
    for (name, why) in [
        ("cut.gguf", "the download is incomplete or the header is damaged"),
        ("text.gguf", "not a GGUF file"),
        ("empty.gguf", "it is empty"),
        ("loading.gguf.part", "still being downloaded"),
        ("unheard.gguf", "architecture `unheard` is not known here"),
        ("torn-00001-of-00004.gguf", "file 3 of 4 is missing"),
        ("alone/mmproj-model-f16.gguf", "belongs to no model in its folder"),
        ("alone/of-nobody-lora.gguf", "belongs to no model in its folder"),
        ("1b/llama-8b-draft.gguf", "belongs to no model in its folder"),
        ("Gemma drei/sehen.gguf", "is used for"),
        ("pipe.gguf", "not a regular file"),
        ("dangling.gguf", "cannot be read"),
        ("z-same.gguf", "the same file as"),
    ] {
        assert!(reason(&found, name).contains(why), "{name}: {}", reason(&found, name));
    }
    assert_eq!(flags(&found, "Gemma drei"), "--model größer als.gguf --mmproj mmproj-F16.gguf");
    assert_eq!(flags(&found, "nomic"), "--model nomic.gguf --embeddings");
    assert_eq!(flags(&found, "llama"), "--model llama 8b.gguf --model-draft llama-8b-draft.gguf");
    assert_eq!(flags(&found, "lfm2-poems"), "--model lfm2-1b-IQ2_XS.gguf --lora lfm2-poems.gguf");
    assert_eq!(flags(&found, "whole-of"), "--model whole-of-00001-of-00003.gguf");
    let distinct: BTreeSet<&str> = names(&found).into_iter().collect();
    assert_eq!(distinct.len(), found.models.len());
}

/// The models with chosen flags, and all lines on them.
fn configured(found: Found, cards: &[Card], gib: u64) -> (Configuration, Vec<String>) {
    let mut configuration = Configuration::default();
    let lines = found.add_to(&mut configuration, cards, host(gib));
    (configuration, lines)
}

#[test]
fn a_configuration_of_init_has_the_same_models() {
    let folder = folder_of_60();
    let found = folder.found();
    for specs in [&["3090"][..], &["2x3060"], &["kind=host,total=16GiB"]] {
        let count = found.models.len();
        let (configuration, lines) = configured(found.clone(), &cards(specs), 64);
        let refused = configuration.warnings.len() - found.passed_over.len();
        assert_eq!((configuration.models.len() + refused, lines.len()), (count, configuration.models.len()));
        let models: Vec<ConfiguredModel> = configuration.models.clone();
        let written = write_found(&folder.places(), configuration, &lines).unwrap();
        let read = plimsoll_config::parse("plimsoll.toml", &written.toml, &|_| None).unwrap();
        assert_eq!(read.models.len(), models.len());
        for model in models {
            let again = read.models.iter().find(|again| again.name == model.name).unwrap();
            let params = |model: &ConfiguredModel| {
                model.launch.options().unwrap().params(plimsoll_flags::ProgramKind::LlamaServer).unwrap()
            };
            assert_eq!(params(again), params(&model), "{}", model.name);
        }
        assert!(written.toml.contains("# -c "), "{}", written.toml);
    }
}

#[test]
fn files_that_are_named_are_paired_and_bring_the_rest_of_their_sets() {
    let folder = ModelFolder::new();
    folder.model("gemma3-4b", "a/m.gguf");
    folder.model("gemma3-4b-mmproj", "a/mmproj-F16.gguf");
    folder.model("llama-1b", "b/m.gguf");
    folder.shards("whole-of.gguf", 3);
    folder.settle();
    let named = ["a/mmproj-F16.gguf", "a/m.gguf", "b/m.gguf", "a/m.gguf", "whole-of-00002-of-00003.gguf"];
    let paths = named.iter().map(|name| folder.path(name)).collect();
    let found = find(&Places { paths, ..Places::default() }, SystemTime::now());
    assert_eq!(names(&found), ["a/m", "b/m", "whole-of"]);
    assert_eq!(flags(&found, "a/m"), "--model m.gguf --mmproj mmproj-F16.gguf");
    assert_eq!(flags(&found, "whole-of"), "--model whole-of-00001-of-00003.gguf");
    assert!(found.passed_over.is_empty(), "{:?}", found.passed_over);
}

#[test]
fn a_file_is_not_served_until_it_is_whole_and_keeps_still() {
    let folder = ModelFolder::new();
    folder.model("l8", "l8.gguf");
    let path = folder.path("l8.gguf");
    let whole = fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(whole / 2).unwrap();
    settle(&path);
    let places = folder.places();
    let half = find(&places, SystemTime::now());
    assert!(reason(&half, "l8.gguf").contains("the download is incomplete"), "{half:?}");
    // Whole in length, as a downloader that reserves its space makes it, and written a moment ago.
    file.set_len(whole).unwrap();
    let now = SystemTime::now();
    file.set_modified(now).unwrap();
    let young = find(&places, now);
    assert!(reason(&young, "l8.gguf").contains("may still be written") && young.wait.is_some());
    assert!(places.settled(now).is_empty());
    let later = now + young.wait.unwrap();
    assert_eq!((names(&find(&places, later)), places.settled(later).len()), (vec!["l8"], 1));
    // A downloader's own file beside it.
    folder.bytes("l8.gguf.aria2", b"");
    let loading = find(&places, later);
    assert_eq!(reason(&loading, "l8.gguf"), "it is still being downloaded");
    // A clock that is ahead holds nothing back.
    file.set_modified(now + Duration::from_secs(9000)).unwrap();
    fs::remove_file(folder.path("l8.gguf.aria2")).unwrap();
    assert_eq!(names(&find(&places, now)), ["l8"]);
}

#[test]
fn a_section_of_the_configuration_wins_by_name_and_by_file() {
    let folder = ModelFolder::new();
    for name in ["a.gguf", "b.gguf", "c.gguf"] {
        folder.model("llama-1b", name);
    }
    let text = format!(
        "[models.a]\ncmd = \"x ${{PORT}}\"\n[models.mine]\nmodel = \"{}\"\n",
        folder.path("b.gguf").display()
    );
    let configuration = plimsoll_config::parse("plimsoll.toml", &text, &|_| None).unwrap();
    let mut found = folder.found();
    found.retain_new(&configuration);
    assert_eq!(names(&found), ["c"]);
}

#[test]
fn the_caches_name_models_as_llama_server_does() {
    let folder = ModelFolder::new();
    let snapshot = "hub/models--org--r-GGUF/snapshots/abc";
    folder.model("gemma3-4b", &format!("{snapshot}/r-q4_k_m.gguf"));
    folder.model("gemma3-4b-mmproj", &format!("{snapshot}/mmproj-r.gguf"));
    folder.model("llama-1b", "xdg/llama.cpp/org_s_s-Q8_0.gguf");
    folder.settle();
    let base = folder.0.path().to_owned();
    let caches = Caches::of_environment(|name| match name {
        "HF_HOME" => Some(base.clone().into()),
        "XDG_CACHE_HOME" => Some(base.join("xdg").into()),
        _ => None,
    });
    let found = find(&Places { caches, ..Places::default() }, SystemTime::now());
    assert_eq!(names(&found), ["org/r-GGUF:Q4_K_M", "org_s_s-Q8_0"]);
    assert!(flags(&found, "org/r-GGUF:Q4_K_M").ends_with("--mmproj mmproj-r.gguf"));
}
