//! Finds the address of a running server: from an argument, from an option, or from the environment.

use plimsoll_lab::load::{LoadFailure, Target};

use crate::report::ErrorReport;

/// Hint for a key that a server refuses.
pub(in crate::command) const KEY_HINT: &str =
    "\nhint: pass a key with --api-key, or in the variable PLIMSOLL_API_KEY";

/// A failure in words; that of a key with the way to pass one.
pub(in crate::command) fn with_hint(failure: &LoadFailure) -> String {
    let hint = if matches!(failure, LoadFailure::Status { status: 401, .. }) { KEY_HINT } else { "" };
    format!("{failure}{hint}")
}

/// The running server, and the key that it wants.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerAddress {
    /// Address of the server
    #[arg(long, value_name = "URL", env = "PLIMSOLL_URL", default_value = "http://127.0.0.1:8080")]
    pub(in crate::command) url: Target,
    /// API key of the server
    // A key on the command line is visible to every user of the machine, so the environment is the usual way.
    #[arg(long, value_name = "KEY", env = "PLIMSOLL_API_KEY", hide_env_values = true)]
    pub(in crate::command) api_key: Option<String>,
}

/// The running server of a command without another argument, which may be its address.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgument {
    /// Address of the server, as with --url
    #[arg(value_name = "URL")]
    place: Option<Target>,
    #[command(flatten)]
    server: ServerAddress,
}

impl ServerArgument {
    /// Returns the server at the address that the command line names first.
    pub(crate) fn server(&self) -> ServerAddress {
        let server = self.server.clone();
        ServerAddress { url: self.place.clone().unwrap_or(server.url), ..server }
    }
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
    pub(crate) fn server(&self) -> Result<ServerAddress, ErrorReport> {
        let url = self.url.clone().or_else(|| self.place.clone());
        let url = url.ok_or_else(|| ErrorReport::input(ErrorReport::new("no server is named")))?;
        Ok(ServerAddress { url, api_key: self.api_key.clone() })
    }
}
