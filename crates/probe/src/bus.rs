//! Stores the measured transfer rate of the bus between host memory and the cards in a file.
//!
//! Guard measures it in the first engine that may exchange memory. The file is in the user's configuration
//! folder (`plimsoll/bus.json`).

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_base::{BusRate, Bytes};
use serde::{Deserialize, Serialize};

use crate::user_folder;

const FILE: &str = "bus.json";
const SCHEMA: &str = "plimsoll.bus/1";
/// Maximum length of the file.
const LONGEST: Bytes = Bytes::kib(4);

#[derive(Debug, Serialize, Deserialize)]
struct BusFile {
    schema: String,
    bytes_per_second: BusRate,
}

/// The rate, if an engine on this machine has measured it.
pub fn measured() -> Option<BusRate> {
    read(&place()?)
}

/// Keeps the rate for later plans.
pub fn keep(rate: BusRate) -> io::Result<()> {
    write(&place().ok_or(io::ErrorKind::NotFound)?, rate)
}

// DECISION: one rate for the machine. Cards in slots of different widths differ, but a file with a row for
// each card would have to follow cards that move.
fn place() -> Option<PathBuf> {
    Some(user_folder::path()?.join(FILE))
}

fn read(path: &Path) -> Option<BusRate> {
    let text = plimsoll_file::read_text(path, LONGEST).ok()?;
    let file: BusFile = serde_json::from_str(&text).ok()?;
    (file.schema == SCHEMA).then_some(file.bytes_per_second)
}

fn write(path: &Path, bytes_per_second: BusRate) -> io::Result<()> {
    let file = BusFile { schema: SCHEMA.to_owned(), bytes_per_second };
    user_folder::replace(path, &serde_json::to_string(&file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_a_damaged_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plimsoll/bus.json");
        assert_eq!(read(&path), None);
        let rate = BusRate::new(51_000_000_000).unwrap();
        write(&path, rate).unwrap();
        assert_eq!(read(&path), Some(rate));
        for damaged in [
            "",
            r#"{"schema":"plimsoll.bus/2","bytes_per_second":1}"#,
            r#"{"schema":"plimsoll.bus/1","bytes_per_second":0}"#,
            r#"{"schema":"plimsoll.bus/1","bytes_per_second":-1}"#,
        ] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(read(&path), None, "{damaged}");
        }
    }
}
