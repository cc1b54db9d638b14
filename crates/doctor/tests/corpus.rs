//! Test of the diagnosis on real problem reports: how often the verdict is the cause that the issue thread
//! confirmed.
//!
//! The reports belong to others and are not in the repository. Without a folder of reports next to the
//! checkout, the test prints that and checks nothing. The threads are divided into two halves by the digest
//! of their address. The rules were written with the first half only.
//!
//! `PLIMSOLL_CORPUS=FOLDER` uses another folder of reports in the same form. `PLIMSOLL_CORPUS_MISSES=all`
//! prints why each wrong verdict was wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, diagnose};
use serde_json::Value;

struct Case {
    id: String,
    seen: bool,
    cause: String,
    sublabel: String,
    verdict: Diagnosis,
}

impl Case {
    fn is_right(&self) -> bool {
        // `host_oom` is newer than the labels, which file it under another cause; `judge.py` has the same.
        let of_host = matches!(self.sublabel.as_str(), "host_oom_killer" | "host_ram");
        self.verdict.cause.code() == self.cause || self.verdict.cause == Cause::HostOom && of_host
    }
}

fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("PLIMSOLL_CORPUS").map(PathBuf::from);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    named.or_else(|| alongside(here))
}

fn alongside<'a>(mut folders: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join("shared/corpus")).filter(|folder| folder.is_dir()))
}

/// The reports that were read while the rules were written: those of the threads whose address has an even
/// SHA-256.
const IN_VIEW: [u16; 40] = [
    11, 16, 23, 35, 43, 46, 53, 55, 60, 62, 63, 66, 72, 73, 75, 92, 94, 98, 100, 105, 107, 114, 117, 120,
    123, 124, 126, 127, 129, 132, 134, 137, 139, 169, 170, 171, 176, 180, 182, 195,
];

fn text(case: &Value, field: &str) -> String {
    match &case[field] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn judged(case: &Value) -> Case {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, text(case, "log").as_bytes());
    reader.feed(LineSource::Context, text(case, "context").as_bytes());
    reader.feed(LineSource::Context, format!("\n{}\n", text(case, "platform")).as_bytes());
    let id = text(case, "id");
    Case {
        seen: id.parse().is_ok_and(|id| IN_VIEW.contains(&id)),
        cause: text(case, "cause"),
        sublabel: text(case, "sublabel"),
        verdict: diagnose(&reader.finish()),
        id,
    }
}

fn share(cases: &[&Case]) -> f64 {
    let right = cases.iter().filter(|case| case.is_right()).count();
    right as f64 / cases.len().max(1) as f64
}

fn by_cause<'a>(cases: &[&'a Case]) -> BTreeMap<&'a str, Vec<&'a Case>> {
    let mut causes: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        causes.entry(&case.cause).or_default().push(case);
    }
    causes
}

fn macro_average(cases: &[&Case]) -> f64 {
    let causes = by_cause(cases);
    causes.values().map(|cases| share(cases)).sum::<f64>() / causes.len().max(1) as f64
}

fn print(name: &str, cases: &[&Case]) {
    let sure: Vec<&Case> = cases.iter().copied().filter(|case| case.verdict.confidence >= 0.8).collect();
    println!(
        "{name}: {} cases, {:.3} right, macro average {:.3}; at confidence 0.8 or more {} cases, {:.3} right",
        cases.len(),
        share(cases),
        macro_average(cases),
        sure.len(),
        share(&sure)
    );
}

fn print_confusion(cases: &[&Case]) {
    let names: BTreeSet<&str> =
        cases.iter().flat_map(|case| [case.cause.as_str(), case.verdict.cause.code()]).collect();
    for (cause, cases) in by_cause(cases) {
        let counts = names.iter().filter_map(|name| {
            let count = cases.iter().filter(|case| case.verdict.cause.code() == *name).count();
            (count > 0).then(|| format!("{name} {count}"))
        });
        println!("  {cause:<34} {:.2}  {}", share(&cases), counts.collect::<Vec<_>>().join(", "));
    }
}

#[test]
fn nine_of_ten_confirmed_reports_are_named_as_their_threads_confirm_them() {
    let Some(folder) = folder() else {
        println!("skipped: no folder `shared/corpus` beside the checkout");
        return;
    };
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect();
    files.sort();
    let values: Vec<Value> =
        files.iter().map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap()).collect();
    let (confirmed, unconfirmed): (Vec<Case>, Vec<Case>) = {
        let (yes, no): (Vec<&Value>, Vec<&Value>) =
            values.iter().partition(|case| case["confirmed"] == Value::Bool(true));
        (yes.into_iter().map(judged).collect(), no.into_iter().map(judged).collect())
    };
    let all: Vec<&Case> = confirmed.iter().collect();
    let half = |seen: bool| all.iter().copied().filter(|case| case.seen == seen).collect::<Vec<_>>();
    print("threads in view", &half(true));
    print("threads held back", &half(false));
    print("confirmed", &all);
    print("unconfirmed, by our reading", &unconfirmed.iter().collect::<Vec<_>>());
    let every: Vec<&Case> = confirmed.iter().chain(&unconfirmed).collect();
    print("all", &every);
    print_confusion(&every);
    if std::env::var_os("PLIMSOLL_CORPUS_MISSES").is_some() {
        let only = std::env::var("PLIMSOLL_CORPUS_MISSES").unwrap_or_default();
        for case in confirmed.iter().chain(&unconfirmed).filter(|case| !case.is_right()) {
            if only == "all" || case.seen || only.contains(&case.id) {
                println!("MISS {} {} {}\n{}", case.id, case.cause, case.verdict.cause, case.verdict.reason);
            }
        }
    }
    let average = macro_average(&all);
    assert!(average >= 0.90, "macro average {average:.3}");
    for (cause, cases) in by_cause(&all) {
        assert!(share(&cases) >= 0.75, "{cause}: {:.3}", share(&cases));
    }
    let sure: Vec<&Case> = all.iter().copied().filter(|case| case.verdict.confidence >= 0.8).collect();
    assert!(share(&sure) >= 0.97, "at confidence 0.8 or more: {:.3}", share(&sure));
}
