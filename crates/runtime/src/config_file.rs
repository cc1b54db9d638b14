//! Reader of `plimsoll serve`'s configuration file and of the API key files that it names.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_base::{Card, CardKind};
use plimsoll_config::{
    ConfigMistakes, Configuration, ConfiguredKey, ConfiguredModel, DerivedFilters, KeySecret,
    LONGEST_CONFIGURATION, Launch, ServeSettings,
};
use plimsoll_flags::{FlagOrigin, Options, Warning, quoted};
use plimsoll_hub::{DerivedModel, DownloadedModel};
use plimsoll_import::{Found, Places, Settled};
use plimsoll_plan::PlannedHost;
use plimsoll_planner::HostRoom;

use super::FlagsLeftOut;
use crate::config_error::ReadConfigError;
use crate::key_file::{self, WrittenKey};
use plimsoll_route::digest_of;

/// Warning of a file with API keys that every user of the machine may read.
fn open_to_all(path: &Path) -> Option<Warning> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let file = path.to_string_lossy();
    (mode & 0o004 != 0).then(|| {
        let text = "the file contains API keys, and every user of this machine may read it";
        Warning::new(FlagOrigin::file(&file.clone().into(), 0), text)
            .hint(format!("run `chmod o-rwx {file}`"))
    })
}

/// Downloaded models, but for those whose names the configuration has.
fn downloaded(roster: &Configuration) -> Vec<ConfiguredModel> {
    let Some(folder) = &roster.serve.downloads else { return Vec::new() };
    let known = |name: &str| roster.models.iter().any(|model| model.name == name);
    let entry = |model: DownloadedModel| {
        let path = |path: &PathBuf| folder.join(path).to_string_lossy().into_owned();
        let mut argv = vec!["--model".to_owned(), path(model.files.first()?)];
        argv.extend(model.projector.iter().flat_map(|file| ["--mmproj".to_owned(), path(file)]));
        let origin = FlagOrigin::file(&folder.to_string_lossy().into(), 0);
        let options = Options::from_argv(&argv).ok()?;
        let launch = Launch::LlamaServer { program: None, options };
        Some(ConfiguredModel { launch, ..ConfiguredModel::new(model.name, origin) })
    };
    DownloadedModel::all(folder).into_iter().filter(|model| !known(&model.name)).filter_map(entry).collect()
}

/// Adds the derived models of the folder of downloads: each is a name of its model, with filters of its own.
///
/// DECISION: a derived model shares the engine of its model, because a second one would need the same memory
/// again.
fn add_derived(roster: &mut Configuration) {
    let Some(folder) = roster.serve.downloads.clone() else { return };
    let origin = FlagOrigin::file(&folder.to_string_lossy().into(), 0);
    for DerivedModel { name, of, default, system } in DerivedModel::all(&folder) {
        let not_served = |why: String| {
            let text = format!("the derived model `{name}` is not served: {why}");
            let hint = format!("to remove it, run `plimsoll download {name} --remove`");
            Warning::new(origin.clone(), text).hint(hint)
        };
        if roster.has_model(&name) {
            roster
                .warnings
                .push(not_served("another model in the configuration has the same name".to_owned()));
            continue;
        }
        let Some(entry) = roster.models.iter_mut().find(|model| model.name == of) else {
            let why = format!("the model `{}`, from which it is derived, is not served", quoted(&of));
            roster.warnings.push(not_served(why));
            continue;
        };
        let filters = DerivedFilters { default, system };
        Arc::make_mut(&mut entry.filters).derived.insert(name.clone(), filters);
        entry.aliases.push(name);
    }
}

fn roster(path: &Path) -> Result<Configuration, ReadConfigError> {
    let read = |error| ReadConfigError::Read { path: path.to_owned(), error };
    let text = plimsoll_file::read_text(path, LONGEST_CONFIGURATION).map_err(read)?;
    let env = |name: &str| std::env::var(name).ok();
    Ok(plimsoll_config::parse_each(&path.to_string_lossy(), &text, &env)?)
}

/// The file's, which may be missing where models are found elsewhere.
fn roster_with(path: &Path, places: Option<&Places>) -> Result<Configuration, ReadConfigError> {
    if places.is_some() && !path.exists() { Ok(Configuration::default()) } else { roster(path) }
}

/// A configuration with the API keys from its key files.
#[derive(Debug, Default)]
pub struct Config {
    pub roster: Configuration,
    /// As digests. Those of `api-keys` and of files have no name.
    pub keys: Vec<ConfiguredKey>,
    /// Models that were found beside those of the file, before flags are chosen for the cards.
    pub found: Option<Found>,
    /// The files in those places, by which a change is seen.
    pub settled: Settled,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ReadConfigError> {
        Self::of(path, roster(path)?)
    }

    /// The same with the models of `places`, beside which a file is not needed.
    pub fn read_with(path: &Path, places: Option<&Places>) -> Result<Self, ReadConfigError> {
        Ok(Self::of(path, roster_with(path, places)?)?.with_found(places))
    }

    /// Reads what can be read, and the mistakes of the file that no model has.
    pub fn read_with_mistakes(
        path: &Path,
        places: Option<&Places>,
    ) -> Result<(Self, Option<ConfigMistakes>), ReadConfigError> {
        match roster_with(path, places) {
            Ok(roster) => Ok((Self::of(path, roster)?.with_found(places), None)),
            Err(ReadConfigError::Parse(mut mistakes)) => {
                let roster = std::mem::take(&mut *mistakes.rest);
                Ok((Self::of(path, roster)?.with_found(places), Some(mistakes)))
            }
            Err(error) => Err(error),
        }
    }

    /// Looks for models in these places.
    #[must_use]
    pub fn with_found(mut self, places: Option<&Places>) -> Self {
        let Some(places) = places else { return self };
        // Before the files are read, so that a change meanwhile is seen as one.
        self.settled = places.settled(SystemTime::now());
        let mut found = plimsoll_import::find_settled(places);
        found.retain_new(&self.roster);
        self.found = Some(found);
        self
    }

    /// Chooses flags for the models that were found, and adds them to those of the file; the result is a line
    /// on each.
    pub fn choose_flags(&mut self, cards: &[Card], host: Option<HostRoom>) -> Vec<String> {
        let Some(found) = self.found.take() else { return Vec::new() };
        let is_shared = cards.iter().any(|card| card.shares_host);
        let host = host.map(|room| PlannedHost { room, is_shared });
        found.add_to(&mut self.roster, cards, host)
    }

    fn of(path: &Path, mut roster: Configuration) -> Result<Self, ReadConfigError> {
        roster.confine();
        roster.warn_of_shell_words();
        roster.notify_ports();
        // Files are read at every reload, so that a key can be revoked without touching the configuration.
        let plain = std::mem::take(&mut roster.serve.api_keys);
        let mut plain: Vec<WrittenKey> = plain.into_iter().map(|key| WrittenKey::of(path, key)).collect();
        let mut keys = std::mem::take(&mut roster.serve.keys);
        if !plain.is_empty() || keys.iter().any(|key| matches!(key.secret, KeySecret::Text(_))) {
            roster.warnings.extend(open_to_all(path));
        }
        for file in &roster.serve.api_key_files {
            let (keys, warnings) = key_file::read(file)?;
            roster.warnings.extend(open_to_all(Path::new(file)).into_iter().chain(warnings));
            plain.extend(keys);
        }
        roster.warnings.extend(plain.iter().flat_map(WrittenKey::warnings));
        for WrittenKey { text, .. } in plain {
            let bad = |why| ReadConfigError::ReadKey { path: path.to_owned(), why };
            keys.push(ConfiguredKey::unlimited(String::new(), KeySecret::read(&text).map_err(bad)?));
        }
        roster.models.extend(downloaded(&roster));
        add_derived(&mut roster);
        let of_named = key_file::of_named(path, &roster, &keys);
        roster.warnings.extend(of_named);
        for key in &mut keys {
            if let KeySecret::Text(text) = &key.secret {
                key.secret = KeySecret::Digest(digest_of(text.as_bytes()));
            }
        }
        // Of two keys with the same text, one would have the rights of the other.
        for (place, key) in keys.iter().enumerate().filter(|(_, key)| !key.name.is_empty()) {
            if keys.iter().enumerate().any(|(other, it)| other != place && it.secret == key.secret) {
                return Err(ReadConfigError::SameKey { path: path.to_owned(), name: key.name.clone() });
            }
        }
        Ok(Self { roster, keys, found: None, settled: Settled::new() })
    }

    /// Returns all mistakes of refused models as an error, if there are any.
    pub fn whole(self) -> Result<Self, ReadConfigError> {
        Ok(Self { roster: self.roster.whole()?, ..self })
    }

    /// The warnings that a person should read.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.roster.warnings.iter().filter(|warning| !warning.is_cosmetic).map(ToString::to_string)
    }

    /// Takes out the warnings of flags that plans leave out, model by model.
    pub fn take_flags_left_out(&mut self) -> Vec<FlagsLeftOut> {
        let Configuration { models, warnings, .. } = &mut self.roster;
        models.iter().map(|entry| FlagsLeftOut::take(entry, warnings)).collect()
    }

    /// Logs refused models, and settings of the file that have another effect here.
    pub fn warn(&self) {
        for refused in &self.roster.refused {
            for error in refused.errors() {
                tracing::error!("{error}; the model `{}` is not served", refused.name);
            }
        }
        for warning in &self.roster.warnings {
            if warning.is_cosmetic { tracing::info!("{warning}") } else { tracing::warn!("{warning}") }
        }
    }

    /// Warnings of variables that choose cards, which engines do not get as written.
    pub fn of_variables<'a>(&self, mut cards: impl Iterator<Item = &'a Card>) -> Vec<Warning> {
        // Cards without a UUID are only described: the variable then reaches the engine.
        if cards.all(|card| card.kind != CardKind::Cuda || card.uuid.is_some()) {
            self.roster.models.iter().flat_map(ConfiguredModel::card_variables_left_out).collect()
        } else {
            Vec::new()
        }
    }

    /// Logs them, once the cards are known.
    pub fn notify_of_variables<'a>(&self, cards: impl Iterator<Item = &'a Card>) {
        self.of_variables(cards).iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// Logs settings of the server that differ from those of the start and take effect only at a restart, and
    /// returns them as notes.
    pub fn warn_of_restart(&self, start: &ServeSettings) -> Vec<String> {
        // Keys and models are applied at once; these are held by tasks that run already.
        let differ = self.roster.serve.differ_since(start).into_iter();
        let notes = differ.map(|key| format!("{key} has changed; restart the server to apply it"));
        notes.inspect(|note| tracing::warn!("{note}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_a_hole_of_a_terabyte_and_a_pipe_are_no_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let (hole, fifo) = (folder.path().join("hole"), folder.path().join("fifo"));
        std::fs::File::create(&hole).unwrap().set_len(1 << 40).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        for (path, why) in [
            (hole, "it is longer than"),
            (fifo, "it is not a regular file"),
            ("/dev/zero".into(), "it is not a regular file"),
        ] {
            let error = Config::read(&path).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains(why), "{error}");
        }
    }
}
