//! Tests that Prometheus accepts the page `/metrics`, and that the Grafana dashboard uses only metrics on
//! that page.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::isolation::four_cards;
use crate::daemon::Setup;
use crate::http::{chat, chat_stream, get};

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
    // Pinned, because the failure of `rest` would stop an idle model.
    let setup = Setup::with_cards(&[]).model("one", "20GiB", "", "pin = true").model("two", "40GiB", "", "");
    let daemon = four_cards(setup.model("rest", "1GiB", "fail=oom_at_load", ""));
    assert_eq!(chat(daemon.address, "one").status, 200);
    assert_eq!(chat(daemon.address, "two").status, 200);
    chat(daemon.address, "rest");
    let page = get(daemon.address, "/metrics").text();
    let families = families(&page);
    // Four cards and the host.
    assert_eq!(families["plimsoll_card_total_bytes"], 5, "{page}");
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
    let requested: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(requested.len() >= 10, "{requested:?}");
    for expression in requested {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for word in words.filter(|word| word.starts_with("plimsoll_")) {
            let ends = ["_bucket", "_sum"].iter().find_map(|end| word.strip_suffix(end));
            let family = ends.unwrap_or(word);
            assert!(families.contains_key(family), "{expression}: no metric {word}");
        }
    }
}

/// What Prometheus' own tool says of a page; `None` on a machine without it.
fn promtool(page: &str) -> Option<(bool, String)> {
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    tool.stdin
        .take()
        .expect("as the test has made it")
        .write_all(page.as_bytes())
        .expect("as the test has made it");
    let output = tool.wait_with_output().expect("as the test has made it");
    Some((
        output.status.success(),
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    ))
}

#[test]
fn tokens_and_times_are_counted_by_model_and_engines_stand_behind_them_with_a_label() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").model("beta", "100MiB", "", "").start();
    for model in ["alpha", "beta"] {
        assert_eq!(chat(daemon.address, model).status, 200);
        assert_eq!(chat_stream(daemon.address, model).status, 200);
    }
    let page = get(daemon.address, "/metrics").text();
    let families = families(&page);
    assert!(families["plimsoll_answer_tokens"] >= 34, "{page}");
    for line in [
        "plimsoll_prompt_tokens_count{model=\"beta\"} 2",
        "plimsoll_first_token_seconds_count{model=\"alpha\"} 1",
        "llamacpp:requests_processing{model=\"alpha\"} 0",
        "llamacpp:requests_processing{model=\"beta\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
    let status: Value = get(daemon.address, "/api/status").json();
    assert!(status["models"][0]["speed"].as_f64().is_some_and(|speed| speed > 0.0), "{status}");
    let memory: Value = get(daemon.address, "/memory").json();
    assert_eq!(memory["devices"][0]["total"], 1 << 30, "{memory}");
    // The engines' families have names of their own making, which the tool does not like.
    let own: Vec<&str> = page.lines().filter(|line| !line.contains("llamacpp:")).collect();
    if let Some((is_clean, stated)) = promtool(&(own.join("\n") + "\n")) {
        assert!(is_clean && stated.is_empty(), "{stated}");
    }
    if let Some((_, stated)) = promtool(&page) {
        assert!(stated.lines().all(|line| line.contains("should not contain ':'")), "{stated}");
    }
}

#[test]
fn long_a_real_prometheus_scrapes_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    assert_eq!(chat_stream(daemon.address, "alpha").status, 200);
    let config = folder.path().join("prometheus.yml");
    let target = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs: [{{ job_name: plimsoll, static_configs: [{{ targets: ['{}'] }}] }}]\n",
        daemon.address
    );
    std::fs::write(&config, target).unwrap();
    let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={own}"))
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus, which cargo xtask test --long installs");
    let ask = |query: &str| {
        std::net::TcpStream::connect(own).ok()?;
        let answer = get(own, &format!("/api/v1/query?query={query}"));
        let found: Value = serde_json::from_slice(&answer.body).ok()?;
        let result = found["data"]["result"].as_array()?.first()?;
        result["value"][1].as_str().map(str::to_owned)
    };
    let begun = Instant::now();
    let answers = loop {
        let answers = ["up", "plimsoll_first_token_seconds_count", "llamacpp:requests_processing"].map(ask);
        if answers.iter().all(Option::is_some) || begun.elapsed() > Duration::from_secs(60) {
            break answers;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    assert_eq!(answers, ["1", "1", "0"].map(|value| Some(value.to_owned())));
}
