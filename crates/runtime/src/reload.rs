//! Reloads the configuration: reads, applies and logs it.

use plimsoll_base::counted;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{ConfigureError, Runtime};
use crate::config_error::ReadConfigError;
use crate::config_file::Config;
use crate::forecast::this_host;
use plimsoll_task::{spawn_blocking, spawn_local};

/// Time for which a reload waits for the forecasts of the changed models; a disk may hang.
const FORECASTS_WITHIN: Duration = Duration::from_secs(5);

/// Changes of a reload, in words, and the forecasts in progress.
struct Applied {
    /// Names of the models that were added, removed or changed.
    models: Vec<String>,
    notes: Vec<String>,
    forecasts: Option<JoinHandle<Vec<String>>>,
}

impl Runtime {
    /// Takes the warnings of the first reading, which a reload does not repeat.
    pub fn has_warned(&self, config: &Config) {
        self.reports.operator_log.warned.replace(config.warnings().collect());
    }

    /// Reads a configuration, applies it, and logs and returns what it changed; an error changes nothing.
    pub async fn read_config(&self, path: &Path) -> Result<Vec<String>, ConfigureError> {
        match self.apply_config(path).await {
            Ok(Applied { models, mut notes, forecasts }) => {
                let changed = named(&models);
                tracing::info!("{}: read again, {changed}", path.display());
                notes.insert(0, changed);
                notes.extend(troubles(forecasts).await);
                Ok(notes)
            }
            Err(error) => {
                tracing::error!("{error}; the old configuration remains in effect");
                Err(error)
            }
        }
    }

    /// The files may lie on a disk that hangs, so another thread reads them.
    async fn apply_config(&self, path: &Path) -> Result<Applied, ConfigureError> {
        // One after the other, so that the file that was read last is the one that stays.
        let _turn = self.turns.reload.lock().await;
        let (file, places) = (path.to_owned(), self.settings.places.clone());
        let (cards, host) = (self.settings.served(), this_host());
        let read = spawn_blocking(move || {
            let mut config = Config::read_with(&file, places.as_ref())?;
            let chosen = config.choose_flags(&cards, host);
            Ok((config, chosen))
        });
        let read = read.await;
        let (mut config, chosen) = read.unwrap_or_else(|error| {
            Err(ReadConfigError::Read { path: path.to_owned(), error: std::io::Error::other(error) })
        })?;
        config.roster.resolve_cards(self.settings.cards());
        // A mistake in its entry must not end a model that runs.
        let refuses_anew = self.state.registry.borrow().refuses_anew(&config.roster.refused);
        let mut config = if refuses_anew { config.whole()? } else { config };
        let of_variables = config.of_variables(self.settings.cards());
        config.roster.warnings.extend(of_variables);
        config.warn();
        let warnings: Vec<String> = config.warnings().collect();
        let mut notes = config.warn_of_restart(&self.settings.serve);
        // Without a key the listener would answer every machine that reaches it.
        if self.settings.needs_keys && config.keys.is_empty() {
            let path = path.to_owned();
            return Err(ConfigureError::NoKey { path });
        }
        // Models first: an unknown card must leave the old keys in place, too.
        let changed = self.configure(config.roster)?;
        let changes = self.settings.keys.replace(config.keys);
        for (act, name) in &changes.named {
            tracing::info!("audit {act} key {name}: {}", path.display());
            notes.push(format!("key {name}: {}", done(act)));
        }
        if changes.plain {
            if self.settings.keys.is_empty() {
                notes.push("the API keys were removed; requests need none now".to_owned());
                tracing::warn!("{}: the API keys were removed; requests need none now", path.display());
            } else {
                notes.push("the API keys were replaced".to_owned());
                tracing::info!("{}: the API keys were replaced", path.display());
            }
        }
        let before = self.reports.operator_log.warned.replace(warnings.clone());
        let is_new = |warning: &String| !before.contains(warning);
        notes.extend(warnings.into_iter().filter(is_new).map(|warning| format!("warning: {warning}")));
        let models: Vec<String> = changed.iter().map(|id| self.state.entry(*id).name.clone()).collect();
        let is_changed = |line: &&String| models.iter().any(|name| line.starts_with(&format!("{name}: ")));
        chosen.iter().filter(is_changed).for_each(|line| tracing::info!("{line}"));
        // A model that was removed needs no forecast.
        let present: Vec<_> = changed.into_iter().filter(|id| self.state.is_present(*id)).collect();
        let forecasts = (!present.is_empty()).then(|| spawn_local(self.me().foresee(present)));
        Ok(Applied { models, notes, forecasts })
    }
}

/// How many models changed, and the first of them.
fn named(models: &[String]) -> String {
    const MOST: usize = 8;
    let names = models.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    let changed = format!("{} changed", counted(models.len(), "model"));
    match models.len() {
        0 => changed,
        1..=MOST => format!("{changed}: {names}"),
        more => format!("{changed}: {names} and {} more", more - MOST),
    }
}

/// Obstacles and troubles of a changed model.
async fn troubles(forecasts: Option<JoinHandle<Vec<String>>>) -> Vec<String> {
    let Some(forecasts) = forecasts else { return Vec::new() };
    match timeout(FORECASTS_WITHIN, forecasts).await {
        // A task that panicked has logged it.
        Ok(reported) => reported.unwrap_or_default(),
        Err(_) => vec![
            "the changed models are still being checked; the log will name those that cannot be loaded"
                .to_owned(),
        ],
    }
}

/// The word for the change of a key.
fn done(act: &str) -> &'static str {
    match act {
        "add" => "added",
        "remove" => "removed",
        "replace" => "replaced",
        _ => "its settings changed",
    }
}
