//! Parses the values of `plimsoll serve`'s settings, which the command line and files write in the same way.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_flags::quoted;
use schemars::JsonSchema;
use serde::Deserialize;

use super::duration;

/// The longest path that Linux takes, and far more than any origin.
const LONGEST: usize = 4095;
/// The longest description of a card; its error repeats it.
const LONGEST_CARD: usize = 500;
/// The longest time of `ask`.
const LONGEST_ASK: Duration = Duration::from_secs(3600);

/// Size of memory. A number without a unit that is less than a MiB of bytes is refused: bytes are not meant.
pub fn reserve_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: plimsoll_base::ParseBytesError| error.to_string())?;
    let number = text.trim();
    let is_bare = number.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare && !size.is_zero() && size < Bytes::mib(1) {
        // The size of a card or a model has one or two digits in GiB.
        let unit = if number.len() > 2 { "MiB" } else { "GiB" };
        Err(format!("`{0}` is a number of bytes; did you mean {0}{unit}?", quoted(number)))
    } else {
        Ok(size)
    }
}

/// Origin of web pages, as browsers send it: `https://host` or `https://host:port`; `localhost` for every
/// port of this machine, as for llama-server's `--cors-origins`; `*` for all.
pub fn web_origin(text: &str) -> Result<String, String> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@']);
    let plain = text.len() <= LONGEST && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    // Pages of files and of sandboxed frames send `null`.
    let known = matches!(text, "*" | "null" | "localhost")
        || text.split_once("://").is_some_and(|(_, host)| is_host(host));
    if plain && known {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{}` is not the origin of a web page; write https://host or https://host:port without a path, \
            localhost for every port of this machine, or * for all",
            quoted(text)
        ))
    }
}

/// The cards that a description as for `--card` stands for.
pub(crate) fn cards(text: &str) -> Result<Vec<Card>, String> {
    if text.len() > LONGEST_CARD {
        Err(format!(
            "`{}` is too long for the description of a card; write for example \
            name=H200,total=80GiB",
            quoted(text)
        ))
    } else {
        text.parse()
            .map(|spec: CardSpec| spec.cards)
            .map_err(|error: plimsoll_base::CardSpecError| error.to_string())
    }
}

fn file(text: &str) -> Result<PathBuf, String> {
    if text.trim().is_empty() || text.len() > LONGEST {
        Err(format!("`{}` is not the path of a file; write for example engines.log", quoted(text)))
    } else {
        Ok(text.into())
    }
}

/// The time of `ask`. The command line counts it in milliseconds and all other durations are in seconds, so a
/// file has to name the unit.
fn ask_time(text: &str) -> Result<Duration, String> {
    let bare = text.trim().bytes().all(|byte| byte.is_ascii_digit()) && text.trim() != "0";
    let time = duration::parse(text).filter(|time| !bare && *time <= LONGEST_ASK);
    time.ok_or_else(|| {
        format!("`{}` is not a time of at most 1h with its unit; write for example 500ms", quoted(text))
    })
}

/// Types of a file's texts; a newtype with `TryFrom`, so that serde reports the line of a bad value.
macro_rules! texts {
    ($($name:ident($kind:ty) reads $read:ident;)*) => {
        $(
            #[derive(Clone, Debug, Deserialize, JsonSchema)]
            #[serde(try_from = "String")]
            #[schemars(with = "String")]
            pub(crate) struct $name(pub(crate) $kind);

            impl TryFrom<String> for $name {
                type Error = String;

                fn try_from(text: String) -> Result<Self, String> {
                    $read(&text).map(Self)
                }
            }
        )*
    };
}

texts! {
    ReserveText(Bytes) reads reserve_size;
    FileText(PathBuf) reads file;
    AskText(Duration) reads ask_time;
}
