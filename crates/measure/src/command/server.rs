//! Command-line arguments that name the server under test: its address and its API key.

use plimsoll_verb::KEY_HINT;
use plimsoll_verb::report::ErrorReport;

use crate::load::{LoadFailure, Target};

/// A failure in words; that of a key with the way to pass one.
pub(super) fn with_hint(failure: &LoadFailure) -> String {
    let hint = if matches!(failure, LoadFailure::Status { status: 401, .. }) { KEY_HINT } else { "" };
    format!("{failure}{hint}")
}

/// The server that a command puts load on. There is no default, so that no server is loaded by accident.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadedServer {
    /// Address of the server, e.g. http://127.0.0.1:8080
    #[arg(value_name = "URL", env = "PLIMSOLL_URL", required_unless_present = "url")]
    place: Option<Target>,
    /// Address of the server, as an option in place of the argument
    #[arg(long, value_name = "URL")]
    url: Option<Target>,
    /// API key of the server
    #[arg(long, value_name = "KEY", env = "PLIMSOLL_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

impl LoadedServer {
    /// Its address and key.
    pub(crate) fn server(&self) -> Result<(Target, Option<String>), ErrorReport> {
        let url = self.url.clone().or_else(|| self.place.clone());
        let url = url.ok_or_else(|| ErrorReport::input(ErrorReport::new("no server is named")))?;
        Ok((url, self.api_key.clone()))
    }
}
