//! Table of measured CUDA context sizes, written by `plimsoll measure calibrate`.
//!
//! Each row holds for one card model, driver version and engine build.

use std::cmp::Reverse;

use plimsoll_base::{Bytes, Order};
use serde::{Deserialize, Serialize};

use crate::{EngineBuild, EngineKind, SpeedRates};

const SCHEMA: &str = "plimsoll.contexts/2";
/// Rows of the first schema lack the opened size.
const SCHEMA_1: &str = "plimsoll.contexts/1";
const HEAD: &str = "# Written by `plimsoll measure calibrate`: memory of a CUDA context, in bytes. For a card \
    without an entry here, plans use the published value.\n";

/// Memory of a process on one kind of card in addition to its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredContext {
    /// The card's name, as the driver reports it.
    pub card: String,
    pub driver: String,
    pub engine: EngineKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<u32>,
    /// Context, modules and handles once a model is loaded.
    pub context: Bytes,
    /// The part of `context` that exists when it is opened, before anything is loaded, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened: Option<Bytes>,
    /// Memory that the first prompt with cuBLAS adds for good; `None` if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cublas: Option<Bytes>,
    /// Rates of its kernels, with `--speed`; `None` if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Box<SpeedRates>>,
    /// The version line of the engine that was measured.
    pub version: String,
    /// The day of the measurement, for display.
    pub measured: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadContextsError {
    #[error("{0}\nhint: move the file away and measure again with `plimsoll measure calibrate`")]
    Parse(String),
    #[error(
        "the file's schema is `{0}`, but this program reads `{SCHEMA}`\nhint: move the file away and \
        measure again with `plimsoll measure calibrate`"
    )]
    Schema(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the measurements cannot be written as TOML: {0}")]
pub struct WriteContextsError(String);

#[derive(Serialize, Deserialize)]
struct ContextsFile {
    schema: String,
    #[serde(default, rename = "context")]
    contexts: Vec<MeasuredContext>,
}

/// Reads the text of a table.
pub fn read(text: &str) -> Result<Vec<MeasuredContext>, ReadContextsError> {
    let file: ContextsFile =
        toml::from_str(text).map_err(|error| ReadContextsError::Parse(located(text, &error)))?;
    match file.schema.as_str() {
        SCHEMA | SCHEMA_1 => Ok(file.contexts),
        _ => Err(ReadContextsError::Schema(file.schema)),
    }
}

/// The line number and the error in one line.
fn located(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", error.message().lines().next().unwrap_or_default())
}

/// The text of a table.
pub fn write(contexts: &[MeasuredContext]) -> Result<String, WriteContextsError> {
    let file = ContextsFile { schema: SCHEMA.to_owned(), contexts: contexts.to_vec() };
    let text = toml::to_string(&file).map_err(|error| WriteContextsError(error.to_string()))?;
    Ok(HEAD.to_owned() + &text)
}

/// Adds a measurement, which replaces an older one of the same card, driver and build.
pub fn learn(contexts: &mut Vec<MeasuredContext>, new: MeasuredContext) {
    // Drivers and builds differ in size, so only the same of both is replaced.
    contexts.retain(|old| !old.is_of(&new));
    contexts.push(new);
}

/// Sorts the rows of this driver first, and within a driver the newest.
pub fn prefer(contexts: &mut [MeasuredContext], driver: Option<&str>) {
    let foreign = |row: &MeasuredContext| driver.is_some_and(|driver| row.driver != driver);
    contexts.order_by_cached_key(|row| (foreign(row), Reverse(row.measured.clone())));
}

/// The row for this card and this engine.
pub(super) fn find<'a>(
    contexts: &'a [MeasuredContext],
    card: &str,
    engine: EngineBuild,
) -> Option<&'a MeasuredContext> {
    let of_engine = |row: &&MeasuredContext| row.is_named(card) && row.engine == engine.kind;
    let mut rows = contexts.iter().filter(of_engine);
    // DECISION: a context depends more on the project than on its build: another build's row is closer than
    // any.
    let of_build = rows.clone().find(|row| row.build == engine.build);
    of_build.or_else(|| rows.next())
}

impl MeasuredContext {
    /// True for the whole name or its last words: a user may describe `NVIDIA H200` as `H200`.
    fn is_named(&self, card: &str) -> bool {
        let rest = self.card.strip_suffix(card);
        !card.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(' '))
    }

    fn is_of(&self, other: &Self) -> bool {
        let key = |row: &Self| {
            // Builds without a number differ only in the version line that they print.
            let unstamped = row.build.is_none().then(|| row.version.clone());
            (row.card.clone(), row.driver.clone(), row.engine, row.build, unstamped)
        };
        key(self) == key(other)
    }

    /// The text of its source in a plan.
    pub(super) fn label(&self) -> String {
        let Self { card, driver, engine, measured, .. } = self;
        let build = self.build.map_or(String::new(), |build| format!("@{build}"));
        format!("{card}, driver {driver}, {}{build} (measured here on {measured})", engine.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(driver: &str, build: Option<u32>, measured: &str) -> MeasuredContext {
        MeasuredContext {
            card: "NVIDIA H200".to_owned(),
            driver: driver.to_owned(),
            engine: EngineKind::LlamaCpp,
            build,
            context: Bytes::mib(590),
            opened: Some(Bytes::mib(518)),
            cublas: Some(Bytes::mib(98)),
            speed: None,
            version: "version: 10605 (abc)".to_owned(),
            measured: measured.to_owned(),
        }
    }

    #[test]
    fn a_written_table_reads_back() {
        let rows = [
            row("580.159.04", Some(10_605), "2026-11-21"),
            MeasuredContext {
                opened: None,
                cublas: None,
                engine: EngineKind::IkLlamaCpp,
                ..row("580.159.04", None, "2026-11-21")
            },
        ];
        let text = write(&rows).unwrap();
        assert_eq!(read(&text), Ok(rows.to_vec()), "{text}");
        assert!(text.starts_with("# Written by"), "{text}");
        assert_eq!(read(&write(&[]).unwrap()), Ok(Vec::new()));
    }

    #[test]
    fn a_table_of_the_first_schema_is_read_and_written_as_the_second() {
        let old = "schema = \"plimsoll.contexts/1\"\n\n[[context]]\ncard = \"NVIDIA H200\"\ndriver = \"1\"\nengine = \"llama.cpp\"\nbuild = 5\n\
                   context = 618659840\ncublas = 102760448\nversion = \"version: 10605 (abc)\"\nmeasured = \"d\"\n";
        let rows = read(old).unwrap();
        let row = MeasuredContext { opened: None, ..row("1", Some(5), "d") };
        assert_eq!(rows, [row]);
        assert!(write(&rows).unwrap().contains("schema = \"plimsoll.contexts/2\""));
    }

    #[test]
    fn a_damaged_table_is_refused_by_line_and_another_schema_by_name() {
        let damaged =
            write(&[row("1", Some(1), "d")]).unwrap().replace("context = 618659840", "context = -1");
        let error = read(&damaged).unwrap_err().to_string();
        assert!(error.starts_with("line ") && error.contains("plimsoll measure calibrate"), "{error}");
        let other = read("schema = \"plimsoll.contexts/9\"").unwrap_err();
        assert_eq!(other, ReadContextsError::Schema("plimsoll.contexts/9".to_owned()));
    }

    #[test]
    fn a_new_measurement_replaces_the_old_one_of_its_driver_and_build() {
        let mut rows = vec![row("1", Some(5), "2026-01-01"), row("2", Some(5), "2026-01-02")];
        learn(&mut rows, row("1", Some(5), "2026-01-03"));
        learn(&mut rows, row("1", Some(6), "2026-01-04"));
        let days: Vec<&str> = rows.iter().map(|row| row.measured.as_str()).collect();
        assert_eq!(days, ["2026-01-02", "2026-01-03", "2026-01-04"]);
    }

    #[test]
    fn the_same_build_comes_before_the_same_driver_and_that_before_the_newest() {
        let mut rows = vec![
            row("2", Some(6), "2026-01-03"),
            row("1", Some(5), "2026-01-01"),
            row("1", Some(7), "2026-01-02"),
        ];
        let build = |rows: &[MeasuredContext], build| {
            let engine = EngineBuild { kind: EngineKind::LlamaCpp, build };
            find(rows, "NVIDIA H200", engine).and_then(|row| row.build)
        };
        prefer(&mut rows, Some("1"));
        assert_eq!(build(&rows, Some(6)), Some(6));
        assert_eq!(build(&rows, Some(9)), Some(7), "of driver 1 the newest");
        prefer(&mut rows, None);
        assert_eq!(build(&rows, Some(9)), Some(6), "of all the newest");
        let ik = EngineBuild { kind: EngineKind::IkLlamaCpp, build: Some(6) };
        assert_eq!(find(&rows, "NVIDIA H200", ik), None);
        for (card, known) in
            [("NVIDIA H100", false), ("H200", true), ("200", false), ("NVIDIA H200 NVL", false), ("", false)]
        {
            assert_eq!(find(&rows, card, EngineBuild::LLAMA_CPP).is_some(), known, "{card}");
        }
    }
}
