//! Computes the key of a model's saved slots: a hash of everything on which the content of its cache depends.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_base::Order;
use plimsoll_config::{ConfiguredModel, Launch};
use plimsoll_exact::{engine_stamp, file_stamp};
use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagValue, Options};
use ring::digest::{SHA256, digest};

use super::store::hex;

/// Beginning of a model's file that is digested: its header, or the first part of a large vocabulary.
const HEADER: u64 = 1 << 20;
/// Flags with which slots are not saved, and the reason.
const UNFIT: [(&str, &str); 3] = [
    ("--slot-save-path", "its flags set --slot-save-path"),
    ("--embedding", "the model computes no answers"),
    ("--rerank", "the model computes no answers"),
];
/// Variables of the daemon that change how an engine computes.
const OF_ENGINES: [&str; 2] = ["GGML_", "LLAMA_ARG_"];

/// The key of a model's slots, or the reason why they cannot be saved.
///
/// DECISION: every flag counts, although some change nothing of the cache. A needless recomputation costs
/// seconds, a slot of other weights would give wrong answers. The files that flags name count by their state,
/// the model also by the digest of its header.
pub(super) fn slot_key(
    entry: &ConfiguredModel,
    program: Option<&Path>,
    inherited: &[(OsString, OsString)],
    context: Option<u64>,
) -> Result<String, &'static str> {
    let Launch::LlamaServer { options, .. } = &entry.launch else {
        return Err("the model is started by `cmd`");
    };
    let program = program.ok_or("the program of the model's engine is unknown")?;
    if let Some((_, why)) = UNFIT.iter().find(|(flag, _)| options.get(flag).is_some()) {
        return Err(why);
    }
    for setting in options.settings() {
        match setting.flag.effect {
            // Its file may change without a change of the flag.
            FlagClass::Remote | FlagClass::Bundle => return Err("the model is not a file on this machine"),
            FlagClass::Draft | FlagClass::DraftRemote | FlagClass::Speculation => {
                return Err("the engine saves no cache of a draft model");
            }
            // Requests may change its scale.
            FlagClass::Adapters | FlagClass::ScaledAdapters => return Err("the model has adapters (LoRA)"),
            _ => {}
        }
    }
    let model =
        options.text("--model").map(PathBuf::from).ok_or("the model is not a file on this machine")?;
    let header = header(&model).map_err(|_| "the header of its model cannot be read")?;
    let own = entry.environment(0);
    let searched = own.iter().find(|(name, _)| name == "LD_LIBRARY_PATH").map(|(_, value)| OsStr::new(value));
    let inherits =
        inherited.iter().find(|(name, _)| name == "LD_LIBRARY_PATH").map(|(_, value)| value.as_os_str());
    let engine = engine_stamp(program, searched.or(inherits).unwrap_or_default());
    let variables: Vec<_> = inherited
        .iter()
        .filter(|(name, _)| OF_ENGINES.iter().any(|start| name.to_string_lossy().starts_with(start)))
        .collect();
    let text = format!(
        "{engine}\n{own:?}\n{variables:?}\n{context:?}\n{:?}\n{}\n{header}",
        options.to_argv(),
        stamps(options, &model)
    );
    Ok(hex(digest(&SHA256, text.as_bytes()).as_ref()))
}

fn header(model: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    plimsoll_file::open(model)?.take(HEADER).read_to_end(&mut bytes)?;
    Ok(hex(digest(&SHA256, &bytes).as_ref()))
}

/// The state of all files that flags name, and of the parts of a divided model.
fn stamps(options: &Options, model: &Path) -> String {
    let texts = options.settings().iter().filter_map(|setting| match &setting.value {
        FlagValue::Text(text) => Some(text.split(',')),
        _ => None,
    });
    let mut files: Vec<PathBuf> = texts.flatten().map(PathBuf::from).filter(|path| path.is_file()).collect();
    files.extend(parts(model));
    files.iter().map(|path| file_stamp(path)).collect::<Vec<_>>().join(";")
}

/// The parts of a model that is divided into files: `NAME-00001-of-00003.gguf`.
fn parts(model: &Path) -> Vec<PathBuf> {
    let name = model.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((name, of)) = name.rsplit_once("-of-") else { return Vec::new() };
    let start = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let belongs = |name: &str| name.starts_with(start) && name.ends_with(of);
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(belongs))
        .map(|entry| entry.path())
        .collect();
    files.order();
    files
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use std::fs::File;

    use super::*;

    fn entry(folder: &Path, more: &str) -> ConfiguredModel {
        let model = folder.join("a-00001-of-00002.gguf");
        let text = format!("[models.a]\nmodel = '{}'\n{more}", model.display());
        plimsoll_config::parse("test.toml", &text, &|_| None).unwrap().models.remove(0)
    }

    #[test]
    fn slot_key_changes_with_inputs_of_the_cache_alone() {
        let folder = tempfile::tempdir().unwrap();
        let parts =
            ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "engine"].map(|name| folder.path().join(name));
        parts.iter().for_each(|path| fs::write(path, "GGUF").unwrap());
        let key = |more: &str, variable: &str, context| {
            let inherited = [(OsString::from(variable), OsString::from("1"))];
            slot_key(&entry(folder.path(), more), Some(&parts[2]), &inherited, context).unwrap()
        };
        let first = key("flags = '-c 4096'", "HOME", None);
        assert_eq!(key("flags = '-c 4096'\nttl = '5m'", "PATH", None), first);
        let others = [
            key("flags = '-c 8192'", "HOME", None),
            key("flags = '-c 4096 -ctk q8_0'", "HOME", None),
            key("flags = '-c 4096'\nenv = { A = '1' }", "HOME", None),
            key("flags = '-c 4096'", "GGML_X", None),
            key("flags = '-c 4096'", "HOME", Some(2048)),
        ];
        others.iter().for_each(|other| assert_ne!(*other, first));
        for path in &parts {
            let before = key("flags = '-c 4096'", "HOME", None);
            let later = SystemTime::now() + Duration::from_secs(60);
            File::open(path).unwrap().set_modified(later).unwrap();
            assert_ne!(key("flags = '-c 4096'", "HOME", None), before, "{}", path.display());
        }
        // Another header in a file that looks the same from outside.
        let (before, date) = (key("", "HOME", None), fs::metadata(&parts[0]).unwrap().modified().unwrap());
        fs::write(&parts[0], "GGUX").unwrap();
        File::open(&parts[0]).unwrap().set_modified(date).unwrap();
        assert_ne!(key("", "HOME", None), before);
    }

    #[test]
    fn models_whose_slots_cannot_be_read_or_are_not_whole_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let reason =
            |more: &str| slot_key(&entry(folder.path(), more), Some(folder.path()), &[], None).unwrap_err();
        assert_eq!(reason(""), "the header of its model cannot be read");
        fs::write(folder.path().join("a-00001-of-00002.gguf"), "GGUF").unwrap();
        for (flags, why) in [
            ("--slot-save-path /tmp", "set --slot-save-path"),
            ("--embeddings", "no answers"),
            ("-md /b.gguf", "draft"),
            ("--lora /l.gguf", "adapters"),
        ] {
            assert!(reason(&format!("flags = '{flags}'")).contains(why), "{flags}");
        }
        let command = plimsoll_config::parse("a.toml", "[models.a]\ncmd = 'x ${PORT}'", &|_| None).unwrap();
        assert!(slot_key(&command.models[0], Some(folder.path()), &[], None).is_err());
        assert!(slot_key(&entry(folder.path(), ""), None, &[], None).is_err());
    }
}
