//! Records the differences between one engine's memory and the planner's formulas (`data/drift/ENGINE.json`),
//! and sums them up for the planner.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::DriftError;
use super::ask::Difference;
use super::engines::Engine;
use super::flags::FlagDrift;

/// Differences below are rounding: the engine's log has two digits of a MiB.
const EQUAL: f64 = 0.05;
/// Differences are worse by more than this.
const SLACK: f64 = 0.5;
/// Differences that a plan states.
const STATED: f64 = 1.0;
const FORMS: &str = "crates/planner/data/closed-forms.txt";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    engine: String,
    version: String,
    /// The engine's word for cards; empty until a model was asked.
    interface: String,
    /// Rows compared, and those that are equal.
    rows: u32,
    equal: u32,
    worst: BTreeMap<String, Worst>,
    /// Architectures that no row was seen of, with the engine's message.
    pub(super) unanswered: BTreeMap<String, String>,
    pub(super) flags: FlagDrift,
}

/// Largest difference of an architecture: closed form less engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Worst {
    mib: f64,
    term: String,
    model: String,
    flags: String,
}

impl Record {
    pub(super) fn new(engine: &Engine, version: String) -> Self {
        Self { engine: engine.name.clone(), version, ..Self::default() }
    }

    pub(super) fn path(root: &Path, engine: &str) -> PathBuf {
        root.join("data/drift").join(format!("{engine}.json"))
    }

    /// The record of an engine; empty where there is none.
    pub(super) fn read(path: &Path) -> Result<Self, DriftError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(DriftError::File { path: path.to_owned(), error }),
        };
        serde_json::from_slice(&text)
            .map_err(|error| DriftError::Record { path: path.to_owned(), why: error.to_string() })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), DriftError> {
        let wrong = |error| DriftError::File { path: path.to_owned(), error };
        let text = serde_json::to_string_pretty(self).map_err(|error| wrong(error.into()))?;
        fs::create_dir_all(path.parent().unwrap_or(path)).map_err(wrong)?;
        fs::write(path, text + "\n").map_err(wrong)
    }

    pub(super) fn add(&mut self, architecture: &str, rows: &[Result<Difference, String>]) {
        for difference in rows.iter().flatten() {
            self.rows += 1;
            self.equal += u32::from(difference.mib.abs() <= EQUAL);
            self.interface.clone_from(&difference.interface);
            let mib = (difference.mib * 100.0).round() / 100.0;
            let worst = self.worst.get(architecture);
            if worst.is_none_or(|worst| mib.abs() > worst.mib.abs()) {
                let worst = Worst {
                    mib,
                    term: difference.term.to_owned(),
                    model: difference.model.clone(),
                    flags: difference.flags.to_owned(),
                };
                self.worst.insert(architecture.to_owned(), worst);
            }
        }
        let refused = rows.iter().find_map(|row| row.as_ref().err());
        if let Some(words) = refused.filter(|_| rows.iter().all(Result::is_err)) {
            self.unanswered.insert(architecture.to_owned(), words.clone());
        }
    }

    /// This record with the rows of a newer one.
    pub(super) fn with(mut self, newer: Self) -> Self {
        for name in newer.worst.keys() {
            self.unanswered.remove(name);
        }
        self.worst.extend(newer.worst);
        self.unanswered.extend(newer.unanswered);
        // Rows are those of the last whole run, or of the first choice.
        let (rows, equal) = if self.rows == 0 { (newer.rows, newer.equal) } else { (self.rows, self.equal) };
        let interface = if newer.interface.is_empty() { self.interface } else { newer.interface };
        Self { worst: self.worst, unanswered: self.unanswered, rows, equal, interface, ..newer }
    }

    /// Rows that are worse than the record, and flags that it does not have.
    pub(super) fn worse(&self, recorded: &Self) -> Vec<String> {
        let mut worse = Vec::new();
        for (name, worst) in &self.worst {
            let bound = recorded.worst.get(name).map_or(STATED, |old| old.mib.abs() + SLACK);
            if worst.mib.abs() > bound {
                let Worst { mib, term, model, flags } = worst;
                worse.push(format!(
                    "{name}: {mib:+.2} MiB in {term} ({model} {flags}), recorded within {bound:.2}"
                ));
            }
        }
        for (what, seen, old) in
            [("new", &self.flags.new, &recorded.flags.new), ("gone", &self.flags.gone, &recorded.flags.gone)]
        {
            worse.extend(
                seen.iter().filter(|flag| !old.contains(flag)).map(|flag| format!("flag {flag} is {what}")),
            );
        }
        worse
    }

    pub(super) fn table(&self, recorded: &Self) -> String {
        let mut text = format!(
            "\n{} {}: {} of {} rows equal, {} architectures\n",
            self.engine,
            self.version,
            self.equal,
            self.rows,
            self.worst.len()
        );
        let mut worst: Vec<(&String, &Worst)> =
            self.worst.iter().filter(|(_, worst)| worst.mib.abs() > EQUAL).collect();
        worst.sort_by(|a, b| b.1.mib.abs().total_cmp(&a.1.mib.abs()));
        for (name, Worst { mib, term, model, flags }) in worst {
            let was = recorded.worst.get(name).map_or("new".to_owned(), |old| format!("{:+.2}", old.mib));
            text += &format!("  {name:<18} {mib:>+10.2} MiB  {term:<12} was {was:<9} {model}  {flags}\n");
        }
        for (name, words) in &self.unanswered {
            text += &format!("  {name:<18} not asked: {words}\n");
        }
        for (what, flags) in [("new", &self.flags.new), ("gone", &self.flags.gone)] {
            if !flags.is_empty() {
                text += &format!("  {what} flags: {}\n", flags.join(" "));
            }
        }
        text
    }

    /// Number of upstream's build; 0 where the engine was built from sources without it.
    fn build(&self) -> u32 {
        let build = self.version.split_once("(build ").and_then(|(_, rest)| rest.split([',', ')']).next());
        build.and_then(|build| build.parse().ok()).unwrap_or(0)
    }

    /// The build by upstream's number, as `b11063`; the version where an engine states no number.
    fn release(&self) -> String {
        match self.build() {
            0 => self.version.split(" (").next().unwrap_or_default().to_owned(),
            build => format!("b{build}"),
        }
    }
}

/// The newest record of each interface, as the planner has it compiled in.
pub(super) struct Forms(Vec<Record>);

impl Forms {
    pub(super) fn read(root: &Path) -> Result<Self, DriftError> {
        let folder = root.join("data/drift");
        let wrong = |error| DriftError::File { path: folder.clone(), error };
        let mut newest: BTreeMap<String, Record> = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let record = Record::read(&path)?;
            let interface = record.interface.clone();
            let is_newer = newest
                .get(&interface)
                .is_none_or(|old| (record.build(), record.rows) > (old.build(), old.rows));
            if is_newer && !interface.is_empty() {
                newest.insert(interface, record);
            }
        }
        Ok(Self(newest.into_values().collect()))
    }

    pub(super) fn write(&self, root: &Path) -> Result<(), DriftError> {
        let path = root.join(FORMS);
        fs::write(&path, self.text()).map_err(|error| DriftError::File { path, error })
    }

    fn text(&self) -> String {
        let mut text = "# Closed form less engine, in MiB, by interface and architecture, and `off` where seen without flash attention: \
            `cargo xtask drift --write`.\n".to_owned();
        for record in &self.0 {
            text += &format!("{} {}\n", record.interface, record.release());
            for (name, worst) in record.worst.iter().filter(|(_, worst)| worst.mib.abs() > STATED) {
                let without_flash = if worst.flags.contains("-fa off") { " off" } else { "" };
                text += &format!("{name} {:.1}{without_flash}\n", worst.mib);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, mib: f64) -> Record {
        let mut record = Record {
            engine: "e".to_owned(),
            version: "0.5.0-dev (build 11063)".to_owned(),
            ..Record::default()
        };
        let row = |mib| {
            Ok(Difference {
                model: "m".to_owned(),
                flags: "-fa on",
                term: "compute",
                mib,
                interface: "CUDA".to_owned(),
            })
        };
        record.add(name, &[row(0.0), row(mib), Err("refused".to_owned())]);
        record
    }

    #[test]
    fn worse_is_what_passes_the_record() {
        let old = record("llama", -8.0);
        assert!(record("llama", 8.4).worse(&old).is_empty());
        assert_eq!(record("llama", -9.0).worse(&old).len(), 1);
        assert!(record("new", 0.9).worse(&old).is_empty());
        assert_eq!(record("new", 1.1).worse(&old).len(), 1);
        let mut flags = record("llama", 0.0);
        flags.flags.new.push("--x".to_owned());
        assert_eq!(flags.worse(&old), ["flag --x is new"]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_damaged_one_reported_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = Record::path(folder.path(), "e");
        assert!(Record::read(&path).unwrap().worst.is_empty());
        record("llama", -8.125).write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap().worst, record("llama", -8.125).worst);
        assert_eq!(
            Forms::read(folder.path()).unwrap().text().lines().skip(1).collect::<Vec<_>>(),
            ["CUDA b11063", "llama -8.1"]
        );
        fs::write(&path, "{").unwrap();
        let error = Record::read(&path).unwrap_err().to_string();
        assert!(error.contains("hint: restore it"), "{error}");
    }
}
