//! `plimsoll ps` and `plimsoll status`: show a running server's cards and models, once or each second.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{ServerArgument, printable, report};
use crate::report::{ErrorReport, print_as};
use crate::screen;
use crate::terminal;

/// Time between two prints of `--watch`.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: plimsoll ps 127.0.0.1:8081; plimsoll status --json; plimsoll status --watch\n\nExit status: 0, \
        or 1 if the server does not answer."
)]
pub(crate) struct List {
    #[command(flatten)]
    server: ServerArgument,
    /// Print the server's status as JSON, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Repeat each second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

pub(crate) fn list(arguments: &List) -> Result<ExitCode, ErrorReport> {
    arguments.show(screen::status)
}

/// The list, between what concerns the server itself and what it did last.
pub(crate) fn status(arguments: &List) -> Result<ExitCode, ErrorReport> {
    arguments.show(|status| {
        let server = screen::server(status, &arguments.server.server().url.to_string());
        server + &screen::status(status) + &screen::marks(status)
    })
}

impl List {
    fn show(&self, text: impl Fn(&Value) -> String) -> Result<ExitCode, ErrorReport> {
        // In the place of the last one; a pipe gets one after the other.
        let is_document = self.json.as_deref() == Some(Path::new("-"));
        let clears = self.watch && terminal::stdout_is_terminal() && !is_document;
        loop {
            let status =
                self.server.server().document(Method::GET, "/api/status", &Value::Null).map_err(report)?;
            if clears {
                terminal::clear_screen().map_err(ErrorReport::of("cannot write to stdout"))?;
            }
            print_as(self.json.as_deref(), &status, || screen::Paper::fitted(&text(&printable(&status))))?;
            if !self.watch {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(AGAIN);
        }
    }
}
