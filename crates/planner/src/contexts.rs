//! What contexts were measured to take: the table that `plimsoll calibrate` writes and a plan reads before the published values.
//!
//! DECISION: a row belongs to a kind of card, a driver and a build of an engine, because nothing else decides these bytes. Of a card
//! and an engine the row of this very build is taken, else the first of that engine, which is nearer than any published value; the
//! plan names the build and the driver that were measured. Who reads the table puts the rows of the driver at hand first.

use plimsoll_base::Bytes;
use serde::{Deserialize, Serialize};

use super::request::{Engine, EngineKind};

const SCHEMA: &str = "plimsoll.contexts/2";
/// Its rows lack what a context takes as it is opened.
const SCHEMA_1: &str = "plimsoll.contexts/1";
const HEAD: &str = "# Written by `plimsoll calibrate`: what a CUDA context takes, in bytes. Without its table a card has the published value again.\n";

/// What a process takes of one kind of card besides what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredContext {
    /// The card's name, as the driver tells it.
    pub card: String,
    pub driver: String,
    pub engine: EngineKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<u32>,
    /// Context, modules and handles once a model is loaded.
    pub context: Bytes,
    /// The part of `context` that is there as it is opened, before anything is loaded into it; none where that could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened: Option<Bytes>,
    /// What a prompt that uses cuBLAS adds for good; none where that could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cublas: Option<Bytes>,
    /// The version line of the engine that was measured.
    pub version: String,
    /// The day, for people.
    pub measured: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadContextsError {
    #[error("{0}\nhint: measure anew with `plimsoll calibrate`, after moving the file away")]
    Parse(String),
    #[error(
        "its schema is `{0}` and this program reads `{SCHEMA}`\nhint: move the file away and measure anew with `plimsoll calibrate`"
    )]
    Schema(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was measured cannot be written as TOML: {0}")]
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
        toml::from_str(text).map_err(|error| ReadContextsError::Parse(said(text, &error)))?;
    match file.schema.as_str() {
        SCHEMA | SCHEMA_1 => Ok(file.contexts),
        _ => Err(ReadContextsError::Schema(file.schema)),
    }
}

/// The place and the fault in one line.
fn said(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!(
        "line {line}: {}",
        error.message().lines().next().unwrap_or_default()
    )
}

/// The text of a table.
pub fn write(contexts: &[MeasuredContext]) -> Result<String, WriteContextsError> {
    let file = ContextsFile {
        schema: SCHEMA.to_owned(),
        contexts: contexts.to_vec(),
    };
    let text = toml::to_string(&file).map_err(|error| WriteContextsError(error.to_string()))?;
    Ok(HEAD.to_owned() + &text)
}

/// Takes the place of what was measured before of the same card, driver and build.
pub fn learn(contexts: &mut Vec<MeasuredContext>, new: MeasuredContext) {
    contexts.retain(|old| !old.is_of(&new));
    contexts.push(new);
}

/// Puts the rows of this driver first, and of each driver the newest.
pub fn prefer(contexts: &mut [MeasuredContext], driver: Option<&str>) {
    contexts.sort_by(|a, b| {
        let foreign = |row: &MeasuredContext| driver.is_some_and(|driver| row.driver != driver);
        let newest = || b.measured.cmp(&a.measured);
        foreign(a).cmp(&foreign(b)).then_with(newest)
    });
}

/// The row that a plan for this card and this engine takes.
pub(super) fn find<'a>(
    contexts: &'a [MeasuredContext],
    card: &str,
    engine: Engine,
) -> Option<&'a MeasuredContext> {
    let of_engine = || {
        contexts
            .iter()
            .filter(|row| row.is_named(card) && row.engine == engine.kind)
    };
    let of_build = of_engine().find(|row| row.build == engine.build);
    of_build.or_else(|| of_engine().next())
}

impl MeasuredContext {
    /// A card that a user describes may go without the vendor's words: `H200` is `NVIDIA H200`.
    fn is_named(&self, card: &str) -> bool {
        let rest = self.card.strip_suffix(card);
        !card.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(' '))
    }

    fn is_of(&self, other: &Self) -> bool {
        let key = |row: &Self| {
            // builds that are not stamped are told apart by what they print
            let unstamped = row.build.is_none().then(|| row.version.clone());
            (
                row.card.clone(),
                row.driver.clone(),
                row.engine,
                row.build,
                unstamped,
            )
        };
        key(self) == key(other)
    }

    /// How a plan names it.
    pub(super) fn label(&self) -> String {
        let Self {
            card,
            driver,
            engine,
            measured,
            ..
        } = self;
        let build = self.build.map_or(String::new(), |build| format!("@{build}"));
        format!(
            "{card}, driver {driver}, {}{build} (measured here on {measured})",
            engine.name()
        )
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
            version: "version: 10605 (abc)".to_owned(),
            measured: measured.to_owned(),
        }
    }

    #[test]
    fn what_is_written_reads_back() {
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
    fn a_table_of_the_first_schema_reads_on_and_is_written_as_the_second() {
        let old = "schema = \"plimsoll.contexts/1\"\n\n[[context]]\ncard = \"NVIDIA H200\"\ndriver = \"1\"\nengine = \"llama.cpp\"\nbuild = 5\n\
                   context = 618659840\ncublas = 102760448\nversion = \"version: 10605 (abc)\"\nmeasured = \"d\"\n";
        let rows = read(old).unwrap();
        let row = MeasuredContext {
            opened: None,
            ..row("1", Some(5), "d")
        };
        assert_eq!(rows, [row]);
        assert!(write(&rows).unwrap().contains("schema = \"plimsoll.contexts/2\""));
    }

    #[test]
    fn a_damaged_table_is_refused_with_its_line_and_one_of_another_kind_by_its_schema() {
        let damaged = write(&[row("1", Some(1), "d")])
            .unwrap()
            .replace("context = 618659840", "context = -1");
        let error = read(&damaged).unwrap_err().to_string();
        assert!(
            error.starts_with("line ") && error.contains("plimsoll calibrate"),
            "{error}"
        );
        let other = read("schema = \"plimsoll.contexts/9\"").unwrap_err();
        assert_eq!(other, ReadContextsError::Schema("plimsoll.contexts/9".to_owned()));
    }

    #[test]
    fn a_new_measure_takes_the_place_of_the_old_one_of_its_driver_and_build() {
        let mut rows = vec![row("1", Some(5), "2026-01-01"), row("2", Some(5), "2026-01-02")];
        learn(&mut rows, row("1", Some(5), "2026-01-03"));
        learn(&mut rows, row("1", Some(6), "2026-01-04"));
        let days: Vec<&str> = rows.iter().map(|row| row.measured.as_str()).collect();
        assert_eq!(days, ["2026-01-02", "2026-01-03", "2026-01-04"]);
    }

    #[test]
    fn the_same_build_is_taken_before_the_same_driver_and_that_before_the_newest() {
        let mut rows = vec![
            row("2", Some(6), "2026-01-03"),
            row("1", Some(5), "2026-01-01"),
            row("1", Some(7), "2026-01-02"),
        ];
        let build = |rows: &[MeasuredContext], build| {
            let engine = Engine {
                kind: EngineKind::LlamaCpp,
                build,
            };
            find(rows, "NVIDIA H200", engine).and_then(|row| row.build)
        };
        prefer(&mut rows, Some("1"));
        assert_eq!(build(&rows, Some(6)), Some(6));
        assert_eq!(build(&rows, Some(9)), Some(7), "of driver 1 the newest");
        prefer(&mut rows, None);
        assert_eq!(build(&rows, Some(9)), Some(6), "of all the newest");
        let ik = Engine {
            kind: EngineKind::IkLlamaCpp,
            build: Some(6),
        };
        assert_eq!(find(&rows, "NVIDIA H200", ik), None);
        for (card, known) in [
            ("NVIDIA H100", false),
            ("H200", true),
            ("200", false),
            ("NVIDIA H200 NVL", false),
            ("", false),
        ] {
            assert_eq!(find(&rows, card, Engine::LLAMA_CPP).is_some(), known, "{card}");
        }
    }
}
