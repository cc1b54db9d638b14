//! Finds the configuration file and the model folders of `plimsoll serve`: from its arguments, else at the
//! usual places.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_import::{Places, Repository};

use crate::report::ErrorReport;

/// The name of a configuration that is looked for.
const FILE: &str = "plimsoll.toml";

const NOTHING: &str = "there is nothing to serve: no plimsoll.toml in this folder, in ~/.config/plimsoll or in /etc/plimsoll, and no \
    model in the caches of the hub and of llama.cpp or in Ollama's store\nhint: `plimsoll serve FOLDER` serves the \
    GGUF files there, `plimsoll serve -hf USER/REPO:QUANT` one of the hub; `plimsoll quickstart` is a tour with two small models";

/// Where the models come from.
pub(crate) struct Sources {
    /// The configuration, which may be missing beside places.
    pub(crate) config: PathBuf,
    pub(crate) places: Option<Places>,
}

impl Sources {
    pub(crate) fn of(arguments: &[PathBuf], repository: Option<String>) -> Result<Self, ErrorReport> {
        let is_place = |path: &&PathBuf| path.is_dir() || is_model(path);
        let (paths, files): (Vec<&PathBuf>, Vec<&PathBuf>) = arguments.iter().partition(is_place);
        let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
        if let Some(missing) = paths.iter().find(|path| !path.exists()) {
            return Err(ErrorReport::input(ErrorReport::new(format!(
                "there is no file {}\nhint: name a folder of GGUF files, a .gguf file or a configuration",
                missing.display()
            ))));
        }
        let file = match files.as_slice() {
            [] => None,
            [file] => Some((*file).clone()),
            [first, second, ..] => {
                let text = format!(
                    "{} and {} are two configurations, but a server has one; folders and .gguf files may stand \
                    beside it",
                    first.display(),
                    second.display()
                );
                return Err(ErrorReport::input(ErrorReport::new(text)));
            }
        };
        if paths.is_empty() && repository.is_none() {
            return match file.or_else(usual) {
                Some(config) => Ok(Self { config, places: None }),
                None => Self::of_machine(),
            };
        }
        let own =
            paths.iter().map(|path| if path.is_dir() { path.join(FILE) } else { path.with_file_name(FILE) });
        let own: Vec<PathBuf> = own.collect();
        let there = file.or_else(|| own.iter().find(|path| path.is_file()).cloned()).or_else(usual);
        let config = there.or_else(|| own.first().cloned()).unwrap_or_else(|| FILE.into());
        let repository = repository.map(Repository::new);
        Ok(Self { config, places: Some(Places { paths, repository, ..Places::default() }) })
    }

    /// The caches and stores of this machine.
    pub(crate) fn of_machine() -> Result<Self, ErrorReport> {
        let places = Places::of_machine(&|name| std::env::var(name).ok());
        if places.settled(SystemTime::now()).is_empty() {
            return Err(ErrorReport::input(ErrorReport::new(NOTHING)));
        }
        Ok(Self { config: FILE.into(), places: Some(places) })
    }
}

fn is_model(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// The configuration at its usual place.
fn usual() -> Option<PathBuf> {
    let of_user =
        plimsoll_file::user_base("XDG_CONFIG_HOME", ".config").map(|base| base.join("plimsoll").join(FILE));
    let places = [Some(PathBuf::from(FILE)), of_user, Some(Path::new("/etc/plimsoll").join(FILE))];
    places.into_iter().flatten().find(|path| path.is_file())
}
