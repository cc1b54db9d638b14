//! Writes the folder of `plimsoll quickstart`: two tiny models, and the configuration that serves them.
//!
//! The files are the same for every run, so a second run reuses them. A file is written whole or not at all.

use std::path::{Path, PathBuf};
use std::{fs, io};

use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting};
use plimsoll_file::Replacement;
use plimsoll_flags::ProgramKind;
use plimsoll_model::tiny::TinyModel;
use plimsoll_planner::{EngineBuild, Plan};

use crate::command::plan;
use crate::report::ErrorReport;

/// One thread is enough for models of this size, and leaves the other cores free. `--cache-ram 0` disables
/// the prompt cache: up to 8 GiB, which no plan counts, would break a budget of a few MiB.
const FLAGS: &str = "--threads 1 --cache-ram 0";
/// Context of each conversation, in tokens.
const CONTEXT: u32 = 2048;
/// Number of conversations of the model that never fits: their cache alone is many times the budget.
const CROWD: u32 = 256;
/// Size of the host that the plans assume until the budget is known.
const AMPLE: Bytes = Bytes::gib(64);

/// A model of the tour.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) file: String,
    /// Number of concurrent conversations, each with its own context.
    pub(crate) slots: u32,
}

/// The folder with its files.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) config: PathBuf,
    /// Two models, of which only one fits at a time.
    pub(crate) pair: [Member; 2],
    /// A model that never fits.
    pub(crate) giant: Member,
}

impl Folder {
    pub(crate) fn make(path: &Path) -> Result<Self, ErrorReport> {
        let failed = |error: io::Error| {
            let place = path.display();
            ErrorReport::new(format!(
                "cannot make the folder {place}: {error}\nhint: choose another with --folder"
            ))
        };
        // Relative paths in a configuration start at the current folder, which a later `serve` may not share.
        let path = std::path::absolute(path).map_err(failed)?;
        fs::create_dir_all(&path).map_err(failed)?;
        let member = |name, file: &str, slots| {
            let file = path.join(file).into_os_string().into_string();
            let file = file.map_err(|_| {
                let hint = "hint: choose another folder with --folder";
                ErrorReport::new(format!(
                    "{} is not a valid name in a configuration file\n{hint}",
                    path.display()
                ))
            })?;
            Ok::<_, ErrorReport>(Member { name, file, slots })
        };
        let folder = Self {
            config: path.join("plimsoll.toml"),
            pair: [member("alpha", "alpha.gguf", 1)?, member("beta", "beta.gguf", 1)?],
            // The same file as the first model: the refusal follows from the number of conversations alone.
            giant: member("alpha-crowd", "alpha.gguf", CROWD)?,
        };
        for (member, model) in folder.pair.iter().zip(models()) {
            write_model(Path::new(&member.file), &model)?;
        }
        // The configuration is last: when it exists, the models that it names exist too.
        whole(&folder.config, folder.configuration().as_bytes())?;
        Ok(folder)
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.pair.iter().chain([&self.giant])
    }

    fn configuration(&self) -> String {
        let head = "# Written again by each run of `plimsoll quickstart`: copy this file before you change \
            it.\n";
        let tables = self.members().map(Member::table);
        head.to_owned() + &tables.collect::<String>()
    }

    /// Budget for one and a half of the larger model: enough for each, never for both.
    pub(crate) fn budget(&self, engine: EngineBuild) -> Result<Card, ErrorReport> {
        let mut largest = Bytes::ZERO;
        for member in &self.pair {
            largest = largest.max(member.plan(engine, &card(AMPLE))?.host.peak);
        }
        Ok(card(largest.scaled(3, 2)))
    }
}

impl Member {
    fn flags(&self) -> String {
        let context = CONTEXT.saturating_mul(self.slots);
        format!("{FLAGS} -np {} -c {context}", self.slots)
    }

    fn table(&self) -> String {
        let Self { name, file, .. } = self;
        // A JSON string is also a TOML basic string, so quotes and backslashes in the path are escaped.
        let file = serde_json::Value::from(file.as_str());
        format!("\n[models.{name}]\nmodel = {file}\nflags = \"{}\"\n", self.flags())
    }

    pub(crate) fn plan(&self, engine: EngineBuild, card: &Card) -> Result<Plan, ErrorReport> {
        let flags = self.flags();
        let words = ["--model", &self.file].into_iter().chain(flags.split(' '));
        let words: Vec<String> = words.map(str::to_owned).collect();
        plan::by_words(&words, engine, ProgramKind::LlamaServer, std::slice::from_ref(card))
    }
}

/// Two models of different depth, so that listings and plans show different sizes.
fn models() -> [TinyModel; 2] {
    let alpha = TinyModel { name: "alpha", ..TinyModel::default() };
    let beta = TinyModel { name: "beta", layers: 4, ..TinyModel::default() };
    [alpha, beta]
}

fn card(total: Bytes) -> Card {
    Card {
        id: CardId::new("budget"),
        kind: CardKind::Host,
        name: "budget".to_owned(),
        uuid: None,
        total,
        free: total,
        compute_capability: None,
        legacy_pool: false,
        shares_host: false,
        counting: Counting::Driver,
        maker: plimsoll_base::CardMaker::Nvidia,
        address: None,
    }
}

/// Writes the model unless an identical file exists; an older Plimsoll may have written a different one.
fn write_model(path: &Path, model: &TinyModel) -> Result<(), ErrorReport> {
    let file = model.file();
    // A file of the same name may be a real model of many GiB.
    let length = Bytes::new(u64::try_from(file.len()).unwrap_or(u64::MAX));
    let is_there = plimsoll_file::read(path, length).is_ok_and(|found| found == file);
    if is_there { Ok(()) } else { whole(path, &file) }
}

fn whole(path: &Path, content: &[u8]) -> Result<(), ErrorReport> {
    plimsoll_file::replace(path, content, Replacement::USUAL).map_err(|error| {
        let remedy = "free some space, or choose another place with --folder";
        ErrorReport::new(format!("cannot write {}: {error}\nhint: {remedy}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_finds_what_the_first_one_wrote() {
        let place = tempfile::tempdir().unwrap();
        let first = Folder::make(place.path()).unwrap();
        let written = |folder: &Folder| fs::metadata(&folder.pair[0].file).unwrap().modified().unwrap();
        let time = written(&first);
        let second = Folder::make(place.path()).unwrap();
        assert_eq!(written(&second), time);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_model_that_an_older_program_wrote_is_written_anew() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("alpha.gguf");
        fs::write(&file, "GGUF of another time").unwrap();
        Folder::make(place.path()).unwrap();
        assert!(fs::metadata(&file).unwrap().len() > 1 << 20);
    }

    #[test]
    fn the_configuration_names_three_models_without_a_warning() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(&place.path().join("with \"quotes\"")).unwrap();
        let text = fs::read_to_string(&folder.config).unwrap();
        let roster = plimsoll_config::parse("plimsoll.toml", &text, &|_| None).unwrap();
        let names: Vec<&str> = roster.models.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, ["alpha", "beta", "alpha-crowd"]);
        assert!(roster.warnings.is_empty(), "{:?}", roster.warnings);
    }

    #[test]
    fn the_budget_holds_either_of_the_pair_but_not_both_and_never_the_giant() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(place.path()).unwrap();
        let card = folder.budget(EngineBuild::LLAMA_CPP).unwrap();
        let need = |member: &Member| member.plan(EngineBuild::LLAMA_CPP, &card).unwrap().host.peak;
        let [alpha, beta] = folder.pair.each_ref().map(need);
        assert!(alpha <= card.total && beta <= card.total);
        assert!(alpha + beta > card.total, "{alpha} and {beta} in {}", card.total);
        assert!(need(&folder.giant) > card.total);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_the_remedy() {
        let error = Folder::make(Path::new("/proc/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/proc/nowhere") && error.contains("--folder"), "{error}");
    }
}
