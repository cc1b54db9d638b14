//! Prints the greeting of `plimsoll` without a subcommand: the cards and models of this machine, and commands
//! to type next.
//!
//! Only cheap looks: no engine is started, no model's header is read, and no server is asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plimsoll_base::{Card, counted};
use plimsoll_cards::{KernelCard, Machine};
use plimsoll_engine::program::{self, EngineHome};
use plimsoll_report::shortened;

use crate::report::{ErrorReport, print};

/// Columns of the greeting.
const WIDTH: usize = 80;
/// Cards that have a line of their own.
const MOST_CARDS: usize = 4;
/// Entries of the caches that are looked at, and folders that lie in one another.
const MOST_ENTRIES: usize = 4096;
const DEPTH: usize = 5;

const NEXT: &str = "
next:
  plimsoll quickstart             a tour with two small models, without a GPU
  plimsoll plan MODEL.gguf        memory of a model here, and whether it fits
  plimsoll plan *.gguf            which models fit at the same time
  plimsoll serve FOLDER           one address for all models of a folder
  plimsoll doctor                 why memory is short, or an allocation failed
  plimsoll --help                 all commands
";

pub(super) fn run() -> Result<ExitCode, ErrorReport> {
    print(text(&Sight::of_machine()))?;
    Ok(ExitCode::SUCCESS)
}

/// What was seen.
struct Sight {
    cards: Vec<String>,
    engine: Option<PathBuf>,
    /// Folders with the model files in them.
    models: Vec<(String, usize)>,
}

impl Sight {
    fn of_machine() -> Self {
        let engine =
            program::on_search_path().or_else(|| program::installed(&EngineHome::from_environment().ok()?));
        let home = std::env::var("HOME").ok().filter(|home| !home.is_empty());
        let found = |(name, folder, ending): (&str, PathBuf, &str)| {
            let mut left = MOST_ENTRIES;
            Some((name.to_owned(), files(&folder, ending, DEPTH, &mut left))).filter(|(_, count)| *count > 0)
        };
        let models = places(home.as_deref()).into_iter().filter_map(found).collect();
        Self { cards: cards(&plimsoll_cards::look()), engine: engine.map(|engine| engine.path), models }
    }
}

/// The usual places of models, and the ending of the files there that stand for one each.
fn places(home: Option<&str>) -> Vec<(&'static str, PathBuf, &'static str)> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = home.map(Path::new);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")));
    let hub = set("HF_HUB_CACHE")
        .or_else(|| Some(set("HF_HOME").or_else(|| Some(cache.clone()?.join("huggingface")))?.join("hub")));
    let llama = set("LLAMA_CACHE").or_else(|| Some(cache?.join("llama.cpp")));
    let ollama = set("OLLAMA_MODELS").or_else(|| Some(home?.join(".ollama/models")));
    let ollama = ollama.map(|folder| folder.join("manifests"));
    [("the hub's cache", hub, ".gguf"), ("llama.cpp's cache", llama, ".gguf"), ("Ollama's store", ollama, "")]
        .into_iter()
        .filter_map(|(name, folder, ending)| Some((name, folder?, ending)))
        .collect()
}

/// Files with this ending below a folder; links to folders are not followed.
fn files(folder: &Path, ending: &str, depth: usize, left: &mut usize) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Some(fewer) = left.checked_sub(1) else { break };
        *left = fewer;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 0 {
            count += files(&entry.path(), ending, depth - 1, left);
        } else if !is_folder && entry.file_name().to_string_lossy().ends_with(ending) {
            count += 1;
        }
    }
    count
}

fn cards(machine: &Machine) -> Vec<String> {
    let line = |card: &Card| format!("{}, {} of {} free", card.name, card.free, card.total);
    let mut lines: Vec<String> = machine.cards.iter().map(line).collect();
    lines.extend(machine.kernel_cards.iter().filter_map(KernelCard::shown).map(|card| line(&card)));
    if lines.is_empty() {
        let free =
            |host: &Card| format!(", so models run in host memory: {} of {} free", host.free, host.total);
        lines.push(format!("none is seen{}", machine.host.as_ref().map(free).unwrap_or_default()));
    }
    lines
}

fn text(sight: &Sight) -> String {
    let mut lines = vec!["Plimsoll: the load line for GPU memory".to_owned(), String::new()];
    for (number, card) in sight.cards.iter().take(MOST_CARDS).enumerate() {
        lines.push(format!("{:8}{card}", if number == 0 { "cards" } else { "" }));
    }
    if let Some(more) = sight.cards.len().checked_sub(MOST_CARDS).filter(|more| *more > 0) {
        lines.push(format!("{:8}and {}", "", counted(more, "more card")));
    }
    lines.push(match &sight.engine {
        Some(engine) => format!("engine  {}", engine.display()),
        None => "engine  none on PATH; `plimsoll engine install` gets one for the CPU".to_owned(),
    });
    let places = sight.models.iter().map(|(place, count)| format!("{} in {place}", counted(*count, "file")));
    let places: Vec<String> = places.collect();
    let none = "none in the usual caches; `plimsoll plan` takes a path, or -hf USER/REPO";
    lines.push(format!("models  {}", if places.is_empty() { none.to_owned() } else { places.join(", ") }));
    let text: String = lines.iter().map(|line| shortened(line, WIDTH) + "\n").collect();
    text + NEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_one_screen_whatever_is_there() {
        let long = "x".repeat(200);
        let none = Sight { cards: vec!["none is seen".to_owned()], engine: None, models: Vec::new() };
        let much = Sight {
            cards: vec![long.clone(); 9],
            engine: Some(PathBuf::from(&long)),
            models: vec![(long, 5000), ("Ollama's store".to_owned(), 1)],
        };
        for sight in [none, much] {
            let text = text(&sight);
            assert!(text.lines().count() <= 20, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        }
    }

    #[test]
    fn files_are_counted_and_a_loop_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("models--a--b/snapshots/c");
        fs::create_dir_all(&deep).unwrap();
        std::os::unix::fs::symlink(folder.path(), deep.join("loop")).unwrap();
        fs::write(deep.join("m.gguf"), "").unwrap();
        fs::write(deep.join("m.json"), "").unwrap();
        assert_eq!(files(folder.path(), ".gguf", DEPTH, &mut 100), 1);
        assert_eq!(files(&folder.path().join("nowhere"), ".gguf", DEPTH, &mut 100), 0);
        assert_eq!(files(folder.path(), "", DEPTH, &mut 2), 0);
    }
}
