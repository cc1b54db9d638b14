//! `plimsoll yield`: has a running server keep memory of a card free for other programs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use plimsoll_base::Bytes;
use plimsoll_verb::time;
use serde_json::{Value, json};

use super::{ServerAddress, encoded, printable, report};
use crate::report::{ErrorReport, print_as};
use crate::screen;

const MORE: &str = "\
Idle models are unloaded at once, busy ones once their current answers are finished. A request for a model that needs the memory \
waits for the end of the yield, or is refused. What other programs take of the card counts as part of the size.

Examples:
  plimsoll yield 8GiB --for 2h
  plimsoll yield
  plimsoll yield --end

Exit status: 0, 1 if the server does not answer or refuses, 2 if it has no such card.";

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Yield {
    /// Memory to keep free, e.g. 8GiB; without it, list the memory that is kept free
    #[arg(value_parser = plimsoll_config::reserve_size)]
    size: Option<Bytes>,
    /// Card, by its name or UUID; needed where several are served
    #[arg(long, value_name = "CARD")]
    card: Option<String>,
    /// Time after which the yield ends, e.g. 30m, 2h; otherwise it ends with the server or with --end
    #[arg(long = "for", value_name = "TIME", value_parser = time, requires = "size")]
    time: Option<Duration>,
    /// Let models use the memory again
    #[arg(long, conflicts_with = "size")]
    end: bool,
    /// Print the answer as JSON, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    server: ServerAddress,
}

pub(crate) fn give_way(arguments: &Yield) -> Result<ExitCode, ErrorReport> {
    let Yield { size, card, time, end, server, .. } = arguments;
    let yields = match size {
        Some(size) => {
            // Rounded up, because a yield of zero seconds would not yield.
            let seconds = time.map(|time| u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX));
            let order = json!({ "size": size, "card": card, "for": seconds });
            server.document(Method::POST, "/api/yield", &order)
        }
        None if *end => {
            let card = card.as_ref().map_or_else(String::new, |card| format!("?card={}", encoded(card)));
            server.document(Method::DELETE, &format!("/api/yield{card}"), &Value::Null)
        }
        None => server.document(Method::GET, "/api/yield", &Value::Null),
    };
    let yields = yields.map_err(report)?;
    print_as(arguments.json.as_deref(), &yields, || screen::yields(&printable(&yields)))?;
    Ok(ExitCode::SUCCESS)
}
