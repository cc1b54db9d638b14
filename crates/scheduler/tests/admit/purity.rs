//! Tests that the scheduler decides by data alone: no thread, lock or clock can be reached from its entry
//! `on_event`.
//!
//! Clippy refuses them in this crate and in all that it imports. Here: nothing foreign comes in with the
//! inputs, neither by a trait object nor by a function.

use std::fs;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};

use plimsoll_scheduler::place::NeedAnswers;
use plimsoll_scheduler::{ModelSpec, SchedulerEffect, SchedulerEvent, SchedulerSettings};

/// Holds for no trait object of a foreign type, no closure, and nothing with a cell in it.
fn is_data<T: Clone + PartialEq + Send + Sync + RefUnwindSafe + 'static>() {}

#[test]
fn inputs_and_outputs_are_data() {
    is_data::<SchedulerEvent>();
    is_data::<SchedulerEffect>();
    is_data::<SchedulerSettings>();
    is_data::<ModelSpec>();
    is_data::<NeedAnswers>();
}

#[test]
fn no_source_calls_foreign_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for crate_folder in ["../scheduler/src", "../base/src/demand.rs"] {
        for file in sources(&folder.join(crate_folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for (number, line) in (1..).zip(product.lines()) {
                let code = line.split("//").next().unwrap_or_default();
                for word in ["dyn ", "thread_local", "LazyLock", "OnceLock"] {
                    assert!(!code.contains(word), "{}:{number}: {word}", file.display());
                }
                let is_public = code.trim_start().starts_with("pub ");
                assert!(!is_public || !code.contains(": fn("), "{}:{number}: a function", file.display());
            }
        }
    }
}

#[test]
fn clippy_refuses_threads_locks_and_clocks_in_this_crate_and_in_its_imports() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let refused = fs::read_to_string(folder.join("../../clippy.toml")).unwrap();
    for path in [
        "thread::spawn",
        "thread::scope",
        "thread::sleep",
        "thread::Builder",
        "sync::Mutex",
        "sync::RwLock",
        "sync::Condvar",
        "sync::mpsc::Sender",
        "time::Instant",
        "time::Instant::now",
        "time::SystemTime::now",
    ] {
        assert!(refused.contains(&format!("\"std::{path}\"")), "{path} is allowed");
    }
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let imports = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let imports: Vec<&str> = imports.lines().take_while(|line| !line.starts_with('[')).collect();
    let own: Vec<&str> = imports.into_iter().filter_map(|line| line.strip_prefix("plimsoll-")).collect();
    assert_eq!(own, ["base.workspace = true"]);
    for name in ["base", "scheduler"] {
        let lib = fs::read_to_string(folder.join(format!("../{name}/src/lib.rs"))).unwrap();
        assert!(lib.contains("deny(clippy::disallowed_methods, clippy::disallowed_types)"), "{name}");
    }
}

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| sources(&path))
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}
