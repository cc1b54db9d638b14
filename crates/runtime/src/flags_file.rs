//! Changes a model's flags in the configuration file: plans them first, saves them in one step, and can undo
//! the change.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use http::StatusCode;
use plimsoll_base::masked;
use plimsoll_config::{
    ChangeFlagsError, ConfigMistakes, Configuration, ConfiguredModel, LONGEST_CONFIGURATION, WrittenFlags,
};
use plimsoll_file::{FileUsers, Replacement};
use plimsoll_flags::Options;
use plimsoll_route::{FlagsOrder, HttpProblem, digest_of};
use plimsoll_scheduler::ModelId;
use plimsoll_task::spawn_blocking;
use serde_json::{Value, json};

use super::board::dry_run;
use super::survey::Patience;
use super::{ConfigureError, Runtime};

/// Error: flags cannot be shown, planned or saved.
#[derive(Debug, thiserror::Error)]
enum FlagsFileError {
    #[error("{}: flags are changed only in Plimsoll's own TOML; `plimsoll import` writes one from this file",
        path.display())]
    Format { path: PathBuf },
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("there is no configuration {} to hold flags; write one with `plimsoll init {} -o {0}`, and then run \
        `plimsoll reload`", path.display(), path.parent().unwrap_or(Path::new(".")).display())]
    NoFile { path: PathBuf },
    #[error("cannot write the configuration {}: {error}; change it in an editor", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("{}: the file has changed meanwhile; read its flags again", path.display())]
    Changed { path: PathBuf },
    #[error("{}: there is no change of flags to undo, or the file was changed since", path.display())]
    NothingToUndo { path: PathBuf },
    #[error("{}: {error}", path.display())]
    Change { path: PathBuf, error: ChangeFlagsError },
    #[error("{0}")]
    Mistakes(String),
    #[error("{}: the flags of `{model}` hold a secret, which is not sent to a page; change them in the file",
        path.display())]
    Secret { path: PathBuf, model: String },
    #[error("{0}; the change was undone, and the file has its former text again")]
    Reload(#[from] ConfigureError),
}

impl From<FlagsFileError> for HttpProblem {
    fn from(error: FlagsFileError) -> Self {
        let (status, code) = match error {
            FlagsFileError::Changed { .. } => (StatusCode::CONFLICT, "config_changed"),
            FlagsFileError::NothingToUndo { .. } => (StatusCode::CONFLICT, "nothing_to_undo"),
            FlagsFileError::Write { .. } => (StatusCode::CONFLICT, "config_read_only"),
            FlagsFileError::Format { .. } => (StatusCode::CONFLICT, "config_format"),
            FlagsFileError::NoFile { .. } => (StatusCode::CONFLICT, "no_config"),
            FlagsFileError::Read { .. } | FlagsFileError::Reload(_) => {
                (StatusCode::BAD_REQUEST, "bad_config")
            }
            FlagsFileError::Change { .. } | FlagsFileError::Mistakes(_) | FlagsFileError::Secret { .. } => {
                (StatusCode::BAD_REQUEST, "bad_flags")
            }
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<ConfigMistakes> for FlagsFileError {
    fn from(mistakes: ConfigMistakes) -> Self {
        Self::Mistakes(mistakes.to_string())
    }
}

/// The configuration file as it is now.
#[derive(Clone, Debug)]
struct ConfigText {
    /// As the user named it, for messages.
    path: PathBuf,
    text: String,
    digest: String,
}

/// The text with other flags, and the model as it reads there.
struct Changed {
    text: String,
    entry: ConfiguredModel,
    warnings: Vec<String>,
}

impl ConfigText {
    fn read(path: &Path) -> Result<Self, FlagsFileError> {
        let path = path.to_owned();
        if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
            return Err(FlagsFileError::Format { path });
        }
        match plimsoll_file::read_text(&path, LONGEST_CONFIGURATION) {
            Ok(text) => Ok(Self { digest: digest(&text), path, text }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(FlagsFileError::NoFile { path }),
            Err(error) => Err(FlagsFileError::Read { path, error }),
        }
    }

    /// The same, if it still has this digest.
    fn read_same(path: &Path, digest: &str) -> Result<Self, FlagsFileError> {
        let file = Self::read(path)?;
        if file.digest == digest { Ok(file) } else { Err(FlagsFileError::Changed { path: file.path }) }
    }

    fn written(&self, model: &str) -> Result<(WrittenFlags, String), FlagsFileError> {
        let fail = |error| FlagsFileError::Change { path: self.path.clone(), error };
        let mut written = WrittenFlags::of(&self.text, model).map_err(fail)?;
        let flags = written.text().map_err(fail)?;
        let (before, _) = self.roster(&self.text, model)?;
        let words = before.launch.options().map(Options::to_argv).unwrap_or_default();
        if masked(&words) != words {
            return Err(FlagsFileError::Secret { path: self.path.clone(), model: model.to_owned() });
        }
        Ok((written, flags))
    }

    fn changed(&self, model: &str, flags: &str) -> Result<Changed, FlagsFileError> {
        let (written, old) = self.written(model)?;
        let (before, known) = self.roster(&self.text, model)?;
        let fail = |error| FlagsFileError::Change { path: self.path.clone(), error };
        let text = if flags == old { self.text.clone() } else { written.replaced(flags).map_err(fail)? };
        let (entry, mut warnings) = self.roster(&text, model)?;
        let refused = entry.flags_beyond_reach(&before);
        if !refused.is_empty() {
            let lines: Vec<String> = refused.iter().map(ToString::to_string).collect();
            return Err(FlagsFileError::Mistakes(lines.join("\n")));
        }
        warnings.retain(|warning| !known.contains(warning));
        Ok(Changed { text, entry, warnings })
    }

    /// The model as this text has it, with the warnings of the whole.
    fn roster(&self, text: &str, model: &str) -> Result<(ConfiguredModel, Vec<String>), FlagsFileError> {
        let env = |name: &str| std::env::var(name).ok();
        let mut roster = plimsoll_config::parse_each(&self.path.to_string_lossy(), text, &env)?;
        if let Some(refused) = roster.refused.iter().find(|refused| refused.name == model) {
            let lines: Vec<String> = refused.errors().map(ToString::to_string).collect();
            return Err(FlagsFileError::Mistakes(lines.join("\n")));
        }
        roster.confine();
        let Configuration { models, warnings, .. } = roster;
        let warnings = warnings.iter().filter(|warning| !warning.is_cosmetic).map(ToString::to_string);
        let error = ChangeFlagsError::FindModel(model.to_owned());
        let missing = || FlagsFileError::Change { path: self.path.clone(), error };
        let entry = models.into_iter().find(|entry| entry.name == model).ok_or_else(missing)?;
        Ok((entry, warnings.collect()))
    }

    /// Puts `text` into the place of this one in one step, and this one beside it.
    fn replace(&self, text: &str) -> Result<(), FlagsFileError> {
        let write = || {
            let place = Place::of(&self.path)?;
            place.put(&place.former(), &self.text)?;
            place.put(&place.path, text)
        };
        write().map_err(|error| FlagsFileError::Write { path: self.path.clone(), error })
    }

    /// Puts this text into its place again.
    fn restore(&self) -> Result<(), FlagsFileError> {
        let write = || Place::of(&self.path).and_then(|place| place.put(&place.path, &self.text));
        write().map_err(|error| FlagsFileError::Write { path: self.path.clone(), error })
    }
}

/// The file behind the path of the configuration, which may be a link.
struct Place {
    path: PathBuf,
    about: Metadata,
}

impl Place {
    /// Fails for a file that may not be written, although a new one could take its place.
    fn of(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let about = fs::metadata(&path)?;
        if about.permissions().readonly() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"));
        }
        rustix::fs::access(&path, rustix::fs::Access::WRITE_OK)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?;
        Ok(Self { path, about })
    }

    /// The place of the text before the last change.
    fn former(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".former");
        self.path.with_file_name(name)
    }

    /// Writes a file with the owner and the permissions of the configuration.
    fn put(&self, path: &Path, text: &str) -> io::Result<()> {
        let how = Replacement { users: FileUsers::Of(&self.about), sync: true };
        plimsoll_file::replace(path, text.as_bytes(), how)
    }
}

/// Carries out an order of an operator.
pub(super) async fn carry_out(runtime: &Runtime, order: FlagsOrder) -> Result<Value, HttpProblem> {
    match order {
        FlagsOrder::Show { model } => show(runtime, model).await,
        FlagsOrder::Plan { model, flags } => plan(runtime, model, flags).await,
        FlagsOrder::Save { model, flags, digest } => {
            let name = runtime.state.entry(model).name.clone();
            let change = move |file: &ConfigText| Ok(file.changed(&name, &flags)?.text);
            change_file(runtime, digest, false, change).await
        }
        FlagsOrder::Undo { digest } => {
            let former = |file: &ConfigText| {
                let read = |error| FlagsFileError::Read { path: file.path.clone(), error };
                let place = Place::of(&file.path).map_err(read)?.former();
                plimsoll_file::read_text(&place, LONGEST_CONFIGURATION).map_err(read)
            };
            change_file(runtime, digest, true, former).await
        }
    }
}

async fn show(runtime: &Runtime, model: ModelId) -> Result<Value, HttpProblem> {
    let (name, path) = (runtime.state.entry(model).name.clone(), runtime.settings.config.clone());
    let saved = runtime.turns.flags.lock().await.clone();
    let chosen = runtime.state.entry(model).launch.options().map(Options::to_argv).unwrap_or_default();
    in_background(move || {
        let file = match ConfigText::read(&path) {
            // Models of a folder have flags that were chosen for them.
            Err(error @ FlagsFileError::NoFile { .. }) => {
                if masked(&chosen) != chosen {
                    return Err(FlagsFileError::Secret { path, model: name });
                }
                return Ok(json!({
                    "model": name, "flags": chosen.join(" "), "file": path.to_string_lossy(), "digest": "",
                    "undo": false, "refusal": error.to_string(),
                }));
            }
            file => file?,
        };
        let (_, flags) = file.written(&name)?;
        let mut shown = json!({
            "model": name, "flags": flags, "file": file.path.to_string_lossy(), "digest": file.digest,
            "undo": saved.as_ref() == Some(&file.digest),
        });
        if let Err(error) = Place::of(&file.path) {
            let refusal = FlagsFileError::Write { path: file.path, error };
            shown["refusal"] = json!(refusal.to_string());
        }
        Ok(shown)
    })
    .await
    .map_err(Into::into)
}

async fn plan(runtime: &Runtime, model: ModelId, flags: String) -> Result<Value, HttpProblem> {
    let (name, path) = (runtime.state.entry(model).name.clone(), runtime.settings.config.clone());
    let changed = in_background(move || ConfigText::read(&path)?.changed(&name, &flags)).await?;
    let surveyor = runtime.readings.surveyor(Patience::Known);
    let mut answer = dry_run(&runtime.state, surveyor, model, changed.entry).await?;
    answer["warnings"] = json!(changed.warnings);
    Ok(answer)
}

/// Writes the file anew and reads it; a text that cannot be applied is taken back.
async fn change_file(
    runtime: &Runtime,
    digest_of_page: String,
    is_undo: bool,
    change: impl FnOnce(&ConfigText) -> Result<String, FlagsFileError> + Send + 'static,
) -> Result<Value, HttpProblem> {
    let mut saved = runtime.turns.flags.lock().await;
    let (path, last) = (runtime.settings.config.clone(), saved.clone());
    let (file, text) = in_background(move || {
        let file = ConfigText::read_same(&path, &digest_of_page)?;
        if is_undo && last.as_ref() != Some(&file.digest) {
            return Err(FlagsFileError::NothingToUndo { path: file.path });
        }
        let text = change(&file)?;
        if text != file.text {
            file.replace(&text)?;
        }
        Ok((file, text))
    })
    .await?;
    let new = digest(&text);
    match runtime.read_config(&runtime.settings.config).await {
        Ok(notes) => {
            if new != file.digest {
                *saved = Some(new.clone());
            }
            Ok(json!({ "success": true, "reload": notes, "digest": new }))
        }
        Err(error) => {
            in_background(move || file.restore()).await?;
            Err(FlagsFileError::from(error).into())
        }
    }
}

/// The file may lie on a disk that hangs.
async fn in_background<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, FlagsFileError> + Send + 'static,
) -> Result<T, FlagsFileError> {
    let done = spawn_blocking(act).await;
    done.unwrap_or_else(|error| {
        Err(FlagsFileError::Mistakes(format!("the work on the file failed: {error}")))
    })
}

fn digest(text: &str) -> String {
    digest_of(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
