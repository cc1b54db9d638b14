//! Lists model names for shell completion: those of the running server, else those of the configuration file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use plimsoll_base::Bytes;
use serde_json::Value;

use super::{ServerAddress, ServerVerbError, block_on, collect_body};
use crate::report::{ErrorReport, print};

/// Time after which a shell is given what is known without the server.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest configuration that is read.
const LONGEST: Bytes = Bytes::mib(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Names {
    #[command(flatten)]
    server: ServerAddress,
}

/// Prints one name a line. A failure prints nothing: nobody reads an error while a word is completed.
pub(crate) fn names(arguments: &Names) -> Result<ExitCode, ErrorReport> {
    let names = arguments.server.names().unwrap_or_else(|_| configured());
    let printable = names.iter().filter(|name| !name.chars().any(char::is_control));
    print(printable.map(|name| format!("{name}\n")).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

impl ServerAddress {
    fn names(&self) -> Result<Vec<String>, ServerVerbError> {
        let body = block_on(async {
            let asked = async {
                let (_client, answer) = self.send(Method::GET, "/v1/models", &Value::Null).await?;
                let body = collect_body(answer, super::LONGEST_ANSWER).await;
                body.map_err(|error| self.unreachable(error))
            };
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(ServerVerbError::Endless { url: self.url.to_string() }),
            }
        })?;
        let list: Value = serde_json::from_slice(&body)
            .map_err(|error| ServerVerbError::Foreign { url: self.url.to_string(), error })?;
        let models = list["data"].as_array().into_iter().flatten();
        Ok(models.filter_map(|model| model["id"].as_str()).map(str::to_owned).collect())
    }
}

/// Names in the configuration in the current folder, in the user's, or in the system's.
fn configured() -> Vec<String> {
    let of_user = plimsoll_file::user_base("XDG_CONFIG_HOME", ".config").map(|base| base.join("plimsoll"));
    let folders = [Some(PathBuf::new()), of_user, Some(PathBuf::from("/etc/plimsoll"))];
    let mut files = folders.into_iter().flatten().map(|folder| folder.join("plimsoll.toml"));
    files.find(|file| file.is_file()).map_or_else(Vec::new, |file| of_file(&file))
}

fn of_file(path: &Path) -> Vec<String> {
    let Ok(text) = plimsoll_file::read_text(path, LONGEST) else { return Vec::new() };
    let parsed =
        plimsoll_config::parse_each(&path.to_string_lossy(), &text, &|name| std::env::var(name).ok());
    let models = parsed.map(|configuration| configuration.models).unwrap_or_default();
    models.into_iter().map(|model| model.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_lists_its_models_and_a_broken_one_lists_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plimsoll.toml");
        std::fs::write(&file, "[models.\"a b\"]\nmodel = 'a.gguf'\n[models.c]\nmodel = 'c.gguf'\n").unwrap();
        assert_eq!(of_file(&file), ["a b", "c"]);
        std::fs::write(&file, "[models").unwrap();
        assert!(of_file(&file).is_empty() && of_file(&folder.path().join("nowhere")).is_empty());
    }
}
