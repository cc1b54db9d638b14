//! Tests that `/metrics` is a page that Prometheus takes, and that the Grafana dashboard asks for what is on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::daemon::Setup;
use crate::http::{chat, get};
use crate::isolation::four_cards;

/// The families of a page, after the rules of Prometheus' text format: one head for each family, its samples
/// after it and together, and no series twice.
fn families(page: &str) -> BTreeMap<String, usize> {
    let (mut families, mut series) = (BTreeMap::new(), BTreeSet::new());
    let mut current = String::new();
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            current = head.split(' ').next().unwrap_or_default().to_owned();
            assert!(families.insert(current.clone(), 0).is_none(), "{current} has two heads");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(name, current);
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        } else {
            let (labels, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = labels.split('{').next().unwrap_or_default();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(name == current || family == Some(&current), "{line} stands under {current}");
            // The order of the labels does not distinguish two series.
            let mut parts: Vec<&str> = labels.trim_end_matches('}').split(['{', ',']).collect();
            parts.sort_unstable();
            assert!(series.insert(parts.join(",")), "{line} is there twice");
            *families.get_mut(&current).expect("a head") += 1;
        }
    }
    families
}

#[test]
fn equal_cards_and_many_models_make_a_page_that_prometheus_takes() {
    let daemon =
        four_cards(Setup::with_cards(&[]).model("one", "20GiB", "", "").model("two", "40GiB", "", "").model(
            "rest",
            "1GiB",
            "fail=oom_at_load",
            "",
        ));
    assert_eq!(chat(daemon.address, "one").status, 200);
    assert_eq!(chat(daemon.address, "two").status, 200);
    chat(daemon.address, "rest");
    let page = get(daemon.address, "/metrics").text();
    let families = families(&page);
    assert_eq!(families["plimsoll_card_total_bytes"], 4, "{page}");
    // The claim of the model that failed may still be there.
    assert!(families["plimsoll_claim_bytes"] >= 3, "{page}");
    assert!(page.contains("plimsoll_claim_bytes{card=\"Fake 24G GPU-"), "{page}");
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let families = families(&get(daemon.address, "/metrics").text());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(asked.len() >= 10, "{asked:?}");
    for expression in asked {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for word in words.filter(|word| word.starts_with("plimsoll_")) {
            let family = word.strip_suffix("_bucket").unwrap_or(word);
            assert!(families.contains_key(family), "{expression}: no metric {word}");
        }
    }
}
