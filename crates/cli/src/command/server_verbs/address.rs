//! Finds the address of a running server: from an argument, from an option, or from the environment.

use plimsoll_measure::load::Target;

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
